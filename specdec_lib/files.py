"""Files that are written whole or not at all, and archives that say what they are."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

AnyPath = str | os.PathLike[str]
MAX_BYTES = 1 << 28  # of a text that is read as a whole


def open_file(path: AnyPath) -> BinaryIO:
    """``path``, open to be read.

    ValueError for a pipe or a device, which may keep a reader waiting for ever; OSError
    for what cannot be opened.
    """
    _check_kind(path, os.stat(path).st_mode)
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    try:
        _check_kind(path, os.fstat(file.fileno()).st_mode)  # it may be another by now
    except BaseException:
        file.close()
        raise
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_all(path: AnyPath, max_bytes: int = MAX_BYTES) -> bytes:
    """All of a file; ValueError where it is larger than ``max_bytes``."""
    with open_file(path) as file:
        check_size(path, os.fstat(file.fileno()).st_size, max_bytes)
        pieces: list[bytes] = []
        size = 0
        while piece := file.read(1 << 20):
            pieces.append(piece)
            size += len(piece)
            check_size(path, size, max_bytes)  # it may grow
    return b"".join(pieces)


def check_size(path: AnyPath, size: int, max_bytes: int) -> None:
    """ValueError for a file of ``size`` bytes, if these are over ``max_bytes``."""
    if size > max_bytes:
        raise ValueError(f"{path}: larger than max_bytes = {max_bytes} bytes")


def _check_kind(path: AnyPath, mode: int) -> None:
    """ValueError unless it is a file, or a folder, of which the system itself tells."""
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ValueError(f"{path} must be a file, it is a pipe or a device")


def parse_json(text: str | bytes) -> Any:
    """What ``text`` says in JSON; ValueError for text that does not, or too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@contextmanager
def naming(path: AnyPath) -> Iterator[None]:
    """OSErrors in here are said to be of ``path``."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # not of a file beside it, which nobody named
            error.filename, error.filename2 = os.fspath(path), None
        raise


def write_atomically(path: AnyPath, write: Callable[[BinaryIO], object]) -> None:
    """Replace ``path`` by what ``write(file)`` writes, once all of it is on the disk.

    On any error the old file stays as it was, and nothing is left beside it. OSError
    names ``path``; ValueError for a pipe or a device, which would be lost. A link is
    followed, and a file that may not be written is not replaced either.
    """
    final = Path(os.path.realpath(path))
    unfinished = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    with naming(path):
        if final.is_symlink():  # to itself, in the end
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        exists = final.exists()
        if exists:
            _check_kind(path, final.stat().st_mode)
            if not os.access(final, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        try:
            with open(unfinished, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            if exists:
                shutil.copymode(final, unfinished)
            os.replace(unfinished, final)
        finally:
            with suppress(OSError):  # where even that fails, the first error is news
                unfinished.unlink(missing_ok=True)


def write_archive(path: AnyPath, kind: str, version: int, **arrays: Any) -> None:
    """Write arrays as an ``.npz`` that names its kind and version; see above."""
    head: dict[str, Any] = {"format": np.array(kind), "version": np.array(version)}
    write_atomically(path, lambda file: np.savez(file, **head | arrays))


def read_archive(path: AnyPath, kind: str, version: int) -> dict[str, Any]:
    """The arrays of an archive; nothing in it is ever unpickled.

    They take no more memory than the file is long, whatever it says of itself. Raises
    ValueError naming the file if it is broken, or of another kind or version.
    """
    with open_file(path) as file:
        try:
            if file.read(2) != b"PK":  # NumPy would take it for a pickle, and say so
                raise ValueError("it is no archive of arrays")
            _check_archive(file, os.fstat(file.fileno()).st_size)
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                content = {name: archive[name] for name in archive.files}
            found = str(content.pop("format")), int(content.pop("version"))
        except Exception as error:  # many kinds, by where the file breaks
            name = kind.removeprefix("specdec ")
            said = str(error)[:200]  # NumPy may quote as much of the file as it likes
            raise ValueError(f"{path} is not a saved {name}: {said}") from error
    if found != (kind, version):
        raise ValueError(
            f"{path} must be a {kind} of version {version}, "
            f"got {found[0][:60]!r} of version {found[1]}"
        )
    return content


def _check_archive(file: BinaryIO, size: int) -> None:
    """ValueError unless each array is as long as it says, all of them in ``size``."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > size:
            raise ValueError(f"it has {size} bytes, and says that it holds more")
        if (broken := archive.testzip()) is not None:
            raise ValueError(f"its {broken!r} is not what was written")
        for member in members:
            with archive.open(member) as array:
                if np.lib.format.read_magic(array) != (1, 0):
                    raise ValueError(f"its {member.filename!r} is of another version")
                shape, _, dtype = np.lib.format.read_array_header_1_0(array)
                if math.prod(shape) * dtype.itemsize != member.file_size - array.tell():
                    raise ValueError(f"its {member.filename!r} is not of shape {shape}")
