"""Files that are written whole or not at all, and archives that say what they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

AnyPath = str | os.PathLike[str]


def write_atomically(path: AnyPath, write: Callable[[BinaryIO], object]) -> None:
    """Replace ``path`` by what ``write(file)`` writes, once all of it is on the disk.

    On any error the old file stays as it was, and nothing is left beside it.
    """
    final = Path(path)
    unfinished = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        with open(unfinished, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, final)
    finally:
        unfinished.unlink(missing_ok=True)


def write_archive(path: AnyPath, kind: str, version: int, **arrays: Any) -> None:
    """Write arrays as an ``.npz`` that names its kind and version; see above."""
    head: dict[str, Any] = {"format": np.array(kind), "version": np.array(version)}
    write_atomically(path, lambda file: np.savez(file, **head | arrays))


def read_archive(path: AnyPath, kind: str, version: int) -> dict[str, Any]:
    """The arrays of an archive; nothing in it is ever unpickled.

    Raises ValueError naming the file if it is broken, or of another kind or version.
    """
    try:
        with open(path, "rb") as file:
            if file.read(2) != b"PK":  # NumPy would take it for a pickle, and say so
                raise ValueError("it is no archive of arrays")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                content = {name: archive[name] for name in archive.files}
        found = str(content.pop("format")), int(content.pop("version"))
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:  # many kinds, by where the file breaks
        name = kind.removeprefix("specdec ")
        raise ValueError(f"{path} is not a saved {name}: {error}") from error
    if found != (kind, version):
        raise ValueError(
            f"{path} must be a {kind} of version {version}, "
            f"got {found[0]!r} of version {found[1]}"
        )
    return content
