"""Saving where it cannot be done: the error names the file, and the old one stays.

Every function that writes a file is tried with a disk that is full from any write on,
with a bound on the size of files, and with places that are no places for a file.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import specdec_lib as sd
from specdec_lib import cli, files, records
from specdec_lib.bench import command as bench
from specdec_lib.bench import suite
from specdec_lib.experiments import Sweep
from specdec_lib.llama import fetch
from specdec_lib.llama.answers import Answers, distill
from specdec_lib.pair import train_pair
from specdec_lib.text import Tokenizer

TEXT = "The cat sat on the mat. The dog sat on the cat. " * 4
PAIR = train_pair([TEXT], order=2, draft_order=1, merges=9)
ANSWERS = Answers("v", 9, (4.0, 0.0, 0.0)).with_answer([1, 2], [3, 4, 5])
KEY = {"draft": "a", "temperature": 1.0, "k": 2, "seed": 0}
ROWS = [KEY | {"prompt": f"p{i}", "emitted": i} for i in range(4)]
BASELINE = {
    "format": suite.FORMAT,
    "version": suite.VERSION,
    "machine": {"cpu": "a"},
    "log_ratios": {name: [0.1, 0.2] for name in suite.RATIOS},
    "counts": {"tokens": 3},
}


def _distill(path):
    model = PAIR.target
    distill(model, [[0, 5]], path, vocabulary="v", max_new_tokens=3)


def _from_a_file(path):
    """A fetched model, out of a copy of it."""
    content = b"GGUF" + bytes(3 * 2**20)
    source = path.with_name("copy.gguf")
    source.write_bytes(content)
    entry = fetch.Source(
        "m", "", "p", "1", "m.gguf", _sha256(content), len(content), ""
    )
    try:
        fetch._take(entry, source, path, lambda what: None)
    finally:
        source.unlink()


def _sha256(content):
    import hashlib

    return hashlib.sha256(content).hexdigest()


# name of the file -> what writes it, whole or not at all
SAVES = {
    "model.npz": PAIR.target.save,
    "pair.npz": PAIR.save,
    "tokenizer.json": PAIR.tokenizer.save,
    "answers.npz": ANSWERS.save,
    "distilled.npz": _distill,
    "records.csv": lambda path: records.write_records(ROWS, path),
    "records.jsonl": lambda path: records.write_records(ROWS, path),
    "baseline.json": lambda path: suite.write_baseline(BASELINE, path),
    "fetched.gguf": _from_a_file,
}
READS = {
    "model.npz": sd.NGramModel.load,
    "pair.npz": sd.Pair.load,
    "tokenizer.json": Tokenizer.load,
    "answers.npz": Answers.load,
    "distilled.npz": Answers.load,
    "records.csv": records.read_records,
    "records.jsonl": records.read_records,
    "baseline.json": suite.read_baseline,
    "fetched.gguf": Path.read_bytes,
}


class Full:
    """``open`` for files on a disk that is full at the n-th act of a kind."""

    def __init__(self, n, kind="write"):
        self.left, self.kind, self.acts = n, kind, 0

    def __call__(self, path, mode="r", *rest, **named):
        file = builtins.open(path, mode, *rest, **named)  # noqa: SIM115
        return _Watched(file, self) if "w" in mode or "+" in mode else file

    def act(self, kind):
        if kind != self.kind:
            return
        self.acts += 1
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class _Watched:
    def __init__(self, file, disk):
        self._file, self._disk = file, disk

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, data):
        self._disk.act("write")
        return self._file.write(data)

    def flush(self):
        self._disk.act("flush")
        return self._file.flush()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()


def saved(name, path, disk, monkeypatch):
    """Save on this disk; the error, or None where it went well."""
    with monkeypatch.context() as patch:
        for module in (files, records):
            patch.setattr(module, "open", disk, raising=False)
        if disk.kind == "fsync":
            patch.setattr(os, "fsync", lambda number: disk.act("fsync"))
        if disk.kind == "replace":
            patch.setattr(os, "replace", lambda *names: disk.act("replace"))
        try:
            SAVES[name](path)
        except OSError as error:
            return error
    return None


def assert_told(error, path):
    """As the command line says it: one line with the file and the cause."""
    assert error.filename == str(path)
    assert cli._one_line(error) == f"{path}: {os.strerror(error.errno)}"


def stale(name, path):
    """An older file of this kind that has to stay; None: there is none."""
    old = b"an older file" if name != "distilled.npz" else None
    if old is not None:
        path.write_bytes(old)
    return old


@pytest.mark.parametrize("name", SAVES)
def test_a_disk_that_is_full_from_any_write_on(tmp_path, monkeypatch, tried, name):
    path = tmp_path / name
    n = 0
    for kind in ("write", "flush", "fsync", "replace"):
        whole = Full(10**9, kind)
        assert saved(name, tmp_path / name, whole, monkeypatch) is None
        assert whole.acts >= 1
        if kind != "replace":
            READS[name](path)
            path.unlink()
        for place in range(whole.acts):
            old = stale(name, path)
            error = saved(name, path, Full(place, kind), monkeypatch)
            assert error is not None, (kind, place)
            assert error.errno == errno.ENOSPC
            assert_told(error, path)
            if old is None:
                assert os.listdir(tmp_path) == []
            else:
                assert path.read_bytes() == old
                assert os.listdir(tmp_path) == [name]
                path.unlink()
            n += 1
    SAVES[name](path)
    READS[name](path)
    tried("saves on a full disk", n)


def small_sweep():
    return Sweep(
        target=PAIR.target,
        drafts={"model": sd.ModelDraft(PAIR.draft)},
        prompts={"a": [0, 5], "b": [0, 9]},
        ks=(1, 2),
        temperatures=(1.0,),
        max_new_tokens=4,
    )


def test_a_sweep_on_a_full_disk_goes_on_later(tmp_path, monkeypatch, tried):
    """Each record is one write; what was on the disk stays, and nothing half."""
    whole = small_sweep().run()
    for n in range(4):
        for part in (0, 7, 60):  # so much of the line still went in
            path = tmp_path / f"{n}-{part}.jsonl"
            left = [n]

            def cut(log, record, where, left=left, part=part):
                if left[0] == 0:
                    log = Cut(log, part)
                left[0] -= 1
                records.append_record(log, record, where)

            with monkeypatch.context() as patch:
                patch.setattr("specdec_lib.experiments.append_record", cut)
                with pytest.raises(OSError) as caught:
                    small_sweep().run(path)
            assert_told(caught.value, path)
            assert path.read_bytes().count(b"\n") == n
            assert path.read_bytes().endswith(b"\n") or n == 0
            assert records.read_records(path) == whole[:n]
            assert small_sweep().run(path) == whole
            tried("saves on a full disk")


class Cut:
    """A file that takes some bytes, and then no more."""

    def __init__(self, file, room):
        self._file, self._room = file, room

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, data):
        if not self._room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = self._file.write(data[: self._room])
        self._room -= done
        return done


def test_a_figure_on_a_full_disk(tmp_path, monkeypatch, tried):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    draws = []

    def draw(rows, ax):
        ax.plot([1, 2])
        draws.append(rows)

    monkeypatch.setattr("specdec_lib.bench.figure.speeds_against_k", draw)
    names = ["bench.csv", "bench.png", "bench.svg"]
    for n, name in enumerate(names):
        folder = tmp_path / name
        folder.mkdir()
        for each in names:
            (folder / each).write_bytes(b"old")
        disk = Full(n)
        with monkeypatch.context() as patch:
            patch.setattr(files, "open", disk, raising=False)
            with pytest.raises(OSError, match="No space left") as caught:
                bench.write_report([KEY], {}, folder)
        assert_told(caught.value, folder / name)
        assert sorted(os.listdir(folder)) == names
        assert all((folder / each).read_bytes() == b"old" for each in names[n:])
    assert sorted(bench.write_report([KEY], {}, folder)) == [
        str(folder / each) for each in names
    ]
    tried("saves on a full disk", 3)


SCRIPT = """
import errno, os, resource, signal, sys
sys.path[:0] = [{tests!r}, {unit!r}]
from pathlib import Path
from test_hostile_saving import SAVES, assert_told, stale
from specdec_lib.experiments import Sweep
folder, n = Path({folder!r}), 0
for name, save in SAVES.items():
    if name == "fetched.gguf":  # whose source is written first
        continue
    for size in ({sizes}):
        path = folder / name
        old = stale(name, path)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            save(path)
            error = None
        except OSError as caught:
            error = caught
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert error is not None and error.errno == errno.EFBIG, (name, size, error)
        assert_told(error, path)
        if old is None:
            assert os.listdir(folder) == []
        else:
            assert path.read_bytes() == old and os.listdir(folder) == [name]
            path.unlink()
        n += 1
print(n)
"""


def test_files_that_may_not_be_so_long(tmp_path, root, tried):
    """The system itself refuses, in the middle of a file."""
    pytest.importorskip("resource", reason="no limits of this kind on this system")
    code = SCRIPT.format(
        tests=str(root / "tests"),
        unit=str(root / "tests" / "unit"),
        folder=str(tmp_path),
        sizes="0, 1, 20, 60,",
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == 4 * (len(SAVES) - 1)
    tried("saves on a full disk", int(done.stdout))


@pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="this system has no /dev/full"
)
@pytest.mark.parametrize("name", SAVES)
def test_a_device_that_is_always_full(tmp_path, monkeypatch, tried, name):
    """The system's own full device in place of the disk: what a save writes is kept in
    memory, and fails as it goes to the disk, and once more as the file is closed."""
    path = tmp_path / name
    old = stale(name, path)

    def full(where, mode="r", *rest, **named):
        if "w" in mode:
            builtins.open(where, mode).close()
            return builtins.open("/dev/full", mode)
        return builtins.open(where, mode, *rest, **named)

    monkeypatch.setattr(files, "open", full, raising=False)
    with pytest.raises(OSError, match="No space left") as caught:
        SAVES[name](path)
    assert_told(caught.value, path)
    assert os.listdir(tmp_path) == ([name] if old else [])
    assert not old or path.read_bytes() == old
    with pytest.raises(ValueError, match="/dev/full must be a file, it is a pipe or a"):
        files.write_atomically("/dev/full", lambda file: file.write(b"a"))
    tried("saves on a full disk", 2)


def places(folder):
    """Places where no file can be, and the words that say so."""
    (folder / "a folder").mkdir()
    (folder / "full").mkdir()
    (folder / "full" / "of").touch()
    (folder / "file").write_bytes(b"kept")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere/file")
    return {
        "a folder": "Is a directory",
        "full": "Is a directory",
        "none/file": "No such file or directory",
        "file/below": "Not a directory",
        "pipe": "must be a file, it is a pipe or a device",
        "socket": "must be a file, it is a pipe or a device",
        "loop": "levels of symbolic links",
        "dangling": "No such file or directory",
        "a" * 300: "File name too long",
    }


@pytest.mark.parametrize("name", [name for name in SAVES if name != "fetched.gguf"])
def test_places_that_are_none(tmp_path, monkeypatch, tried, name):
    monkeypatch.chdir(tmp_path)
    there = places(tmp_path)
    before = sorted(map(str, tmp_path.rglob("*")))
    for place, said in there.items():
        if name == "distilled.npz" and place in ("a folder", "full"):
            said = "directory|must be a file"
        with pytest.raises((OSError, ValueError), match=said) as caught:
            SAVES[name](Path(place))
        assert place in str(caught.value)
        assert len(str(caught.value)) < 600
        assert sorted(map(str, tmp_path.rglob("*"))) == before
        assert (tmp_path / "file").read_bytes() == b"kept"
    tried("places that are none for a file", len(there))


AS_NOBODY = """
import os, sys
sys.path[:0] = [{tests!r}, {unit!r}]
from pathlib import Path
from test_hostile_saving import SAVES, assert_told
folder, n = Path({folder!r}), 0
for save in SAVES.values():  # imports all that it needs
    save(folder / "open" / "first")
    (folder / "open" / "first").unlink()
os.setgid(65534)
os.setuid(65534)
for name, save in SAVES.items():
    if name in ("fetched.gguf", "distilled.npz"):
        continue
    for place in ("closed", "open/read-only"):
        path = folder / place / name if place == "closed" else folder / place
        before = sorted(os.listdir(folder / "open"))
        try:
            save(path)
            raise SystemExit(f"{{name}} was written to {{path}}")
        except PermissionError as error:
            assert_told(error, path)
        assert sorted(os.listdir(folder / "open")) == before
        assert (folder / "open" / "read-only").read_bytes() == b"kept"
        n += 1
    save(folder / "open" / name)
print(n)
"""


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can become a user to whom files are closed",
)
def test_places_where_one_may_not_write(tmp_path, root, tried):
    folder = Path("/tmp") / f"hostile-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        (folder / "closed").mkdir(mode=0o555)
        (folder / "open").mkdir()
        os.chmod(folder / "open", 0o777)
        (folder / "open" / "read-only").write_bytes(b"kept")
        os.chmod(folder / "open" / "read-only", 0o444)
        code = AS_NOBODY.format(
            tests=str(root / "tests"), unit=str(root / "tests/unit"), folder=str(folder)
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr[-2000:]
    finally:
        for path in sorted(folder.rglob("*"), reverse=True):
            os.chmod(path, 0o777)
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
    tried("places where one may not write", int(done.stdout))


def test_a_link_stays_a_link_and_a_mode_a_mode(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    os.chmod(real, 0o600)
    link.symlink_to(real)
    PAIR.tokenizer.save(link)
    assert link.is_symlink()
    assert Tokenizer.load(real) == PAIR.tokenizer
    assert real.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["link.json", "real.json"]


def test_a_download_onto_a_full_disk(tmp_path, monkeypatch, tried):
    """It says so, names the place, and what arrived is gone on with."""
    hub = fetch._Hub("http://hub", lambda what: None)
    part = tmp_path / ".model.part"
    for n in range(3):
        answer = io.BytesIO(bytes(3 * fetch.PIECE))
        answer.status, answer.headers = 200, {}
        monkeypatch.setattr(fetch._Hub, "_open", lambda *given, it=answer: it)
        part.unlink(missing_ok=True)
        monkeypatch.setattr(fetch, "open", Full(n), raising=False)
        with pytest.raises(OSError, match="No space left") as caught:
            hub._fetch("http://hub/model", part)
        assert_told(caught.value, part)
        assert part.stat().st_size == n * fetch.PIECE
    tried("saves on a full disk", 3)


@pytest.mark.parametrize("kind", ("train", "sweep", "bench"))
def test_the_command_line_says_where(tmp_path, monkeypatch, capsys, tried, kind):
    corpus = tmp_path / "cats.txt"
    corpus.write_text(TEXT)
    out = tmp_path / "out"
    out.write_bytes(b"")
    flags = {
        "train": ["--corpus", str(corpus), "--merges", "5", "-o", str(out)],
        "sweep": ["--corpus", str(corpus), "--merges", "5", "-o", str(out), "--k", "1",
                  "--prompts", "1", "--prompt-tokens", "2", "--max-tokens", "2"],
        "bench": ["--gate", str(out), "--record"],
    }[kind]  # fmt: skip
    monkeypatch.setattr(suite, "fresh_runs", lambda *given, **named: [1])
    monkeypatch.setattr(suite, "record", lambda runs: BASELINE)
    monkeypatch.setattr(
        os, "fsync", lambda number: Full(0, "fsync").act("fsync")
    )  # fmt: skip
    assert cli.main([kind, *flags]) == 2
    told = capsys.readouterr()
    assert f"specdec: error: {out}: No space left on device\n" in told.err
    assert "Traceback" not in told.err
    assert out.read_bytes() == b""
    assert sorted(os.listdir(tmp_path)) == ["cats.txt", "out"]
    tried("saves on a full disk")
