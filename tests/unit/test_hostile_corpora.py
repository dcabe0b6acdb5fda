"""Texts that are none, or without end: refused by name, or read in bounded memory."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest
from hostile_kit import REFUSED, at_most

from specdec_lib import cli, files
from specdec_lib.bench import suite
from specdec_lib.llama.answers import Answers
from specdec_lib.ngram import NGramModel
from specdec_lib.pair import Pair, train_pair
from specdec_lib.prompts import read_prompts
from specdec_lib.records import read_records
from specdec_lib.text import Tokenizer, read_corpus, read_text

CATS = "The cat sat on the mat. The dog sat on the cat. "

# ---- bytes that are no UTF-8

BROKEN = {
    "overlong": [b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x80\xaf", b"\xe0\x9f\xbf",
                 b"\xf0\x80\x80\xaf", b"\xf0\x8f\xbf\xbf", b"\xc0\x80"],
    "surrogates": [b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80"],
    "beyond Unicode": [b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80",
                       b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80",
                       b"\xfe", b"\xff"],
    "without a start": [bytes([b]) for b in range(0x80, 0xC0)],
    "cut short": ["é".encode()[:1], "漢".encode()[:1], "漢".encode()[:2],
                  *("𝒜".encode()[:n] for n in (1, 2, 3))],
    "other encodings": [CATS.encode("utf-16"), CATS.encode("utf-32"),
                        "naïve café".encode("latin-1"), "漢字".encode("shift-jis"),
                        "漢字".encode("gb18030"), b"\xff\xfe", b"\xfe\xff"],
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_bytes_that_are_no_text(tmp_path, tried, kind):
    """Named by their place, wherever they stand, and read as nothing else."""
    n = 0
    path = tmp_path / "bad.txt"
    for bad in BROKEN[kind]:
        at = next(i for i in range(len(bad) + 1) if not _decodes(bad[: i + 1], bad))
        for before in (b"", b"a", "né\n".encode(), b"\xef\xbb\xbf", b"x" * 1000):
            for after in (b"", b"a", b"\n" + CATS.encode()):
                path.write_bytes(before + bad + after)
                said = rf"bad\.txt: not UTF-8; the byte at offset {len(before) + at} "
                for read in (read_text, read_corpus):
                    with pytest.raises(ValueError, match=said):
                        read(path)
                with pytest.raises(ValueError, match=r"bad\.txt"):
                    read_prompts(path)
                n += 1
    tried("texts that are no UTF-8", n)


def _decodes(start, whole):
    """Whether what is wrong with ``whole`` lies after ``start``; by Python's codec."""
    try:
        whole.decode()
    except UnicodeDecodeError as error:
        return len(start) <= error.start
    return True


def test_byte_order_marks(tmp_path, tried):
    mark = "\ufeff".encode()
    path = tmp_path / "cats.txt"
    for content, text in {
        mark + b"cat": "cat",
        mark + mark + b"cat": "\ufeffcat",
        b"cat" + mark: "cat\ufeff",
        mark + b"\r\n\rcat": "\n\ncat",
    }.items():
        path.write_bytes(content)
        assert read_text(path) == text
        assert read_corpus(path).texts == [text]
    for content in (mark, mark + b" \n"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cats\.txt: the file is empty"):
            read_corpus(path)
    tried("texts with byte-order marks", 6)


# ---- texts that are odd, and texts all the same

ODD = {
    "NUL bytes": "\0" * 1000 + "cat\0dog\0" * 20,
    "NUL bytes alone": "\0" * 300_000,
    "an endless line": "a" * 10_000_000,
    "an endless line of words": "cat " * 50_000,
    "an endless line of marks": "-" * 1_000_000,
    "an endless line of blanks": " " * 1_000_000 + "x",
    "a million empty lines": "\n" * 1_000_000 + "cat",
    "a million lines of Windows": "\r\n" * 1_000_000 + "cat",
    "a million old Macintosh lines": "\r" * 1_000_000 + "cat",
    "one letter": "x",
    "control characters": "".join(map(chr, range(32))) * 50,
    "no characters": "\ufffe\uffff\U0010ffff" * 50,
    "joined": "👩‍👩‍👧‍👦" * 500,
    "accents without end": "e" + "\u0301" * 20_000,
    "both directions": "\u202eabc\u202d" * 500,
    "separators": "\u2028\u2029\x85\x0b\x0cx" * 500,
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_texts_are_texts(tmp_path, tried, text):
    """Trained on, encoded and decoded to the letter, in bounded time and memory."""
    path = tmp_path / "odd.txt"
    path.write_bytes(text.encode())
    started = perf_counter()
    found = read_text(path)
    assert found == text.replace("\r\n", "\n").replace("\r", "\n")
    pair = train_pair(read_corpus(path).texts, order=3, merges=20)
    some = found[:5000] + found[-5000:]
    assert pair.tokenizer.decode(pair.tokenizer.encode(some)) == some
    assert abs(pair.target.probabilities([0]).sum() - 1) < 1e-9
    assert perf_counter() - started < 20
    tried("odd texts")


def test_reading_takes_no_more_than_the_text(tmp_path, tried):
    path = tmp_path / "long.txt"
    path.write_bytes(b"\n" * 3_000_000)
    with at_most(14):
        assert len(read_text(path)) == 3_000_000
    with at_most(14), pytest.raises(ValueError, match=r"long\.txt: the file is empty"):
        read_corpus(path)
    with at_most(40), pytest.raises(ValueError, match=r"long\.txt must hold at least"):
        read_prompts(path)
    tried("odd texts", 2)


# ---- what is no file at all

READERS = {
    "corpus": read_corpus,
    "text": read_text,
    "prompts": read_prompts,
    "prompts.toml": read_prompts,
    "records": read_records,
    "records.csv": read_records,
    "baseline": suite.read_baseline,
    "tokenizer": Tokenizer.load,
    "model": NGramModel.load,
    "pair": Pair.load,
    "answers": Answers.load,
}


def suffix(name):
    return name.partition(".")[2] and "." + name.partition(".")[2]


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file(tmp_path, tried, name):
    """Refused before it is opened: a pipe would keep its reader waiting for ever."""
    read, end = READERS[name], suffix(name)
    names = {
        each: tmp_path / f"{each}{end}" for each in ("pipe", "socket", "link", "none")
    }
    os.mkfifo(names["pipe"])
    names["link"].symlink_to(names["pipe"])
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(names["socket"]))
    (tmp_path / f"self{end}").symlink_to(f"self{end}")
    names |= {"self": tmp_path / f"self{end}", "long": tmp_path / ("a" * 300)}
    names |= {"below": tmp_path / "file" / "below"}
    (tmp_path / "file").write_text("a")
    devices = [
        Path("/dev/zero"),
        Path("/dev/tty"),
        Path("/dev/urandom"),
        Path("/dev/null"),
    ]
    n = 0
    for path in (*names.values(), *devices):
        if path in devices and not path.exists():
            continue
        with pytest.raises(REFUSED) as caught:
            read(path)
        assert path.name in str(caught.value)
        assert len(str(caught.value)) < 700
        n += 1
    if name != "corpus":  # to which a folder is many files
        with pytest.raises(REFUSED, match=re.escape(str(tmp_path))):
            read(tmp_path)
        n += 1
    tried("what is no file", n)


@pytest.mark.parametrize("name", READERS)
def test_files_that_are_larger_than_any(tmp_path, tried, name):
    """A terabyte of nothing, none of it on the disk."""
    path = tmp_path / f"huge{suffix(name)}"
    path.touch()
    os.truncate(path, 2**40)
    with at_most(8), pytest.raises(ValueError, match="huge") as caught:
        READERS[name](path)
    assert len(str(caught.value)) < 700
    tried("files larger than any")


@pytest.mark.parametrize("name", READERS)
def test_files_that_are_empty(tmp_path, tried, name):
    path = tmp_path / f"empty{suffix(name)}"
    path.touch()
    if name in ("text", "records"):
        assert len(READERS[name](path)) == 0
    else:
        with pytest.raises(ValueError, match="empty"):
            READERS[name](path)
    tried("files that are empty")


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("becomes", ("a pipe", "nothing", "a folder", "a device"))
def test_a_file_that_changes_before_it_is_read(
    tmp_path, monkeypatch, tried, name, becomes
):
    """It was a file when it was looked at, and is none when it is opened."""
    path = tmp_path / f"turns{suffix(name)}"
    path.write_text("cat")
    look, changed = os.stat, []

    def look_and_change(where, **named):
        seen = look(where, **named)
        if where == path and not changed:
            changed.append(True)
            path.unlink()
            if becomes == "a pipe":
                os.mkfifo(path)
            elif becomes == "a folder":
                path.mkdir()
            elif becomes == "a device":
                path.symlink_to("/dev/zero")
        return seen

    monkeypatch.setattr(files.os, "stat", look_and_change)
    with pytest.raises(REFUSED, match="turns"):
        READERS[name](path)
    tried("files that change before they are read")


def test_a_file_that_changes_while_it_is_read(tmp_path, monkeypatch, tried):
    """Shorter or longer than it said: what is there is read, up to the bound."""
    path = tmp_path / "turns.txt"
    size = os.fstat

    def look_and(change):
        def looked(number):
            seen = size(number)
            change()
            return seen

        return looked

    def grow():
        with path.open("ab") as file:
            file.write(b"x" * 500)

    for read in (read_text, read_prompts, read_corpus):
        path.write_text("cat " * 100)
        with monkeypatch.context() as patch:
            patch.setattr(files.os, "fstat", look_and(lambda: os.truncate(path, 3)))
            found = read(path)
        assert "cat" in str(found)
        assert "cat cat" not in str(found)
    path.write_text("cat")
    monkeypatch.setattr(files.os, "fstat", look_and(grow))
    with pytest.raises(ValueError, match=r"turns\.txt: larger than max_bytes = 100"):
        read_text(path, 100)
    with pytest.raises(ValueError, match="larger than max_bytes"):
        files.read_all(path, os.stat(path).st_size + 600)
    tried("files that change before they are read", 5)


def test_folders(tmp_path, tried):
    """Pipes in a folder are passed over; files that go away are named."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("cat")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "self.txt").symlink_to("self.txt")
    (tmp_path / "gone.txt").symlink_to("nowhere")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "round").symlink_to(tmp_path)
    assert [each.name for each in read_corpus(tmp_path).documents] == ["a.txt", "b.txt"]
    with pytest.raises(ValueError, match=rf"{tmp_path}: larger than max_bytes = 5"):
        read_corpus(tmp_path, max_bytes=5)
    (tmp_path / "c.txt").write_bytes(b"cat\xff")
    with pytest.raises(ValueError, match=r"c\.txt: not UTF-8"):
        read_corpus(tmp_path)
    tried("what is no file", 7)


AS_NOBODY = """
import json, os, sys
sys.path[:0] = [{tests!r}, {unit!r}]
import test_hostile_corpora as here
from pathlib import Path
folder, said = Path({folder!r}), []
here.train_pair([here.CATS], merges=3)
os.setgid(65534)
os.setuid(65534)
for name, read in here.READERS.items():
    for path in (folder / "closed.txt", folder / "closed" / "in.txt"):
        try:
            read(path)
            said.append(name + " was read")
        except OSError as error:
            text = here.cli._one_line(error)
            if "Permission denied" not in text or str(path) not in text:
                said.append(text)
        except ValueError as error:
            said.append(str(error))
print(json.dumps(said))
"""


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can become a user to whom files are closed",
)
def test_files_that_one_may_not_read(root, tried):
    folder = Path("/tmp") / f"hostile-read-{os.getpid()}"
    folder.mkdir(mode=0o755)
    closed = folder / "closed"
    try:
        closed.mkdir(mode=0o700)
        for path in (folder / "closed.txt", closed / "in.txt"):
            path.write_text("cat")
            os.chmod(path, 0o000)
        code = AS_NOBODY.format(
            tests=str(root / "tests"), unit=str(root / "tests/unit"), folder=str(folder)
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert json.loads(done.stdout) == []
    finally:
        for path in (folder / "closed.txt", closed / "in.txt"):
            path.unlink(missing_ok=True)
        closed.rmdir()
        folder.rmdir()
    tried("files that one may not read", 2 * len(READERS))


# ---- the same by the command line


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    path = tmp_path_factory.mktemp("pair") / "cats.npz"
    train_pair([CATS * 10], order=2, merges=5).save(path)
    return str(path)


# How each flag that takes a file is given one, and what that file is.
FLAGS = {
    "generate --corpus": lambda path, pair, out: ["generate", "--corpus", path],
    "generate --model": lambda path, pair, out: ["generate", "--model", path],
    "train --corpus": lambda path, pair, out: ["train", "--corpus", path, "-o", out],
    "sweep --corpus": lambda path, pair, out: ["sweep", "--corpus", path, "-o", out],
    "sweep --model": lambda path, pair, out: ["sweep", "--model", path, "-o", out],
    "sweep --text": lambda path, pair, out: [
        "sweep", "--model", pair, "--text", path, "-o", out],
    "bench --model": lambda path, pair, out: ["bench", "--model", path],
    "bench --gate": lambda path, pair, out: ["bench", "--gate", path],
    "serve --model": lambda path, pair, out: ["serve", "--port", "0", "--model", path],
    "models get": lambda path, pair, out: ["models", "get", path],
    "models get --from": lambda path, pair, out: [
        "models", "get", "smollm2", "--from", path],
    "models distill": lambda path, pair, out: ["models", "distill", path],
    "models distill --prompts": lambda path, pair, out: [
        "models", "distill", "smollm2", "--prompts", path],
    "generate --history": lambda path, pair, out: [
        "generate", "--model", "smollm2", "--history", path],
}  # fmt: skip


def hostile(folder):
    """A file of each kind, by its name."""
    made = {
        "nul.txt": b"\0" * 3,
        "empty.txt": b"",
        "blank.txt": b"\n" * 1000,
        "broken.txt": b"caf\xe9",
        "utf16.txt": "cat".encode("utf-16"),
        "cut.gguf": b"GGUF\3\0\0\0",
        "zip.npz": b"PK\3\4" + bytes(40),
        "deep.toml": b"a = " + b"[" * 50_000,
        "cut.json": b'{"format": ',
    }
    for name, content in made.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.gguf")
    (folder / "self").symlink_to("self")
    names = [*made, "folder", "pipe", "pipe.gguf", "self", "none.txt", "none/none.npz"]
    (folder / "huge.txt").touch()
    os.truncate(folder / "huge.txt", 2**40)
    return [*names, "huge.txt", "a" * 300, "new\nline.txt"]


# Any UTF-8 with a letter, or a NUL, is a text.
TEXTS = {"nul.txt", "cut.gguf", "zip.npz", "deep.toml", "cut.json"}


@pytest.mark.parametrize("flag", FLAGS)
def test_files_on_the_command_line(tmp_path, monkeypatch, capsys, tried, pair, flag):
    """One line on standard error that names the file, exit code 2, nothing written."""
    from specdec_lib.llama import fetch, targets

    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(targets, "_transformers", _no_hub)
    place = fetch.place("smollm2")
    if flag.endswith("--from"):
        pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    assert not place.exists()
    names = hostile(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(map(str, tmp_path.rglob("*")))
    n = 0
    for name in names:
        for path in (name, str(tmp_path / name)):
            text = flag.rpartition("--")[2] in ("corpus", "text", "prompts")
            if text and name in TEXTS and (flag, name) != ("sweep --text", "nul.txt"):
                continue
            out = str(tmp_path / "out")
            try:
                code = cli.main(FLAGS[flag](path, pair, out))
            except SystemExit as stop:
                code = stop.code
            told = capsys.readouterr()
            assert code == 2, (path, told)
            assert told.out == ""
            assert told.err.startswith("specdec: error: "), told.err
            assert told.err.count("\n") == 1, told.err
            assert len(told.err) < 1500
            shown = Path(" ".join(name.split())).name, repr(Path(name).name)[1:-1]
            if not re.search("smollm2 is not on this|cannot be reached", told.err):
                assert any(each in told.err for each in shown), (path, told.err)
            assert not os.path.exists(out)
            n += 1
    made = set(map(str, tmp_path.rglob("*"))) - set(before)
    assert {Path(each).name for each in made} <= {"models"}
    tried("files on the command line", n)


def _no_hub(name):
    raise FileNotFoundError(f"there is no model {name} here")
