"""What is in a GGUF file: named fields, and tensors that stay where they are.

The file starts with the letters GGUF, a version, and the numbers of tensors and of
fields. Then come the fields (name, kind, value), then for each tensor its name, sizes,
kind and place, then the tensors themselves. All numbers are little-endian.

The ``gguf`` package reads such files too; it takes seconds and some 100 MB for the
98,000 strings of a vocabulary with its merges. It is used here for kinds of weights
that this library does not decode itself.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import AnyPath, open_file
from .quantised import block_size

MAGIC = b"GGUF"
VERSIONS = (2, 3)
FORMATS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
ARCHITECTURE = "llama"
LARGEST = 1 << 31  # a length above this means that the file is broken
LONGEST = 1 << 24  # entries of a list; a vocabulary has some 2^18
DEEPEST = 8  # lists in lists
ALIGNED = 8  # the tensors begin at a multiple of a multiple of this


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor as the file holds it.

    ``shape`` as NumPy counts it, the last number running fastest; ``data`` is
    (rows, bytes of a row), a view of the file, and ``kind`` says what the bytes mean.
    """

    shape: tuple[int, ...]
    kind: str
    data: NDArray[np.uint8]


class GGUFFile:
    """A GGUF file of a Llama, mapped into memory.

    Raises FileNotFoundError, or ValueError naming the file if it is broken or holds
    another architecture.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = Path(path)
        with open_file(self.path) as file:
            try:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self.fields, self.tensors = _parse(content)
            except (ValueError, IndexError, struct.error, OverflowError) as error:
                raise ValueError(f"{path} is not a whole GGUF file: {error}") from error
        found = self.fields.get("general.architecture")
        if found != ARCHITECTURE:
            raise ValueError(
                f"{path} must hold a model of architecture {ARCHITECTURE!r}, "
                f"got {found!r:.80}"
            )

    def field(self, name: str, *default: Any) -> Any:
        """A field's value; without a default, ValueError where it is missing."""
        if name in self.fields:
            return self.fields[name]
        if default:
            return default[0]
        raise ValueError(f"{self.path} has no field {name!r}")

    def tensor(self, name: str, shape: Sequence[int]) -> Tensor:
        """A tensor of the file; ValueError unless it is there with this shape."""
        if name not in self.tensors:
            raise ValueError(f"{self.path} has no tensor {name!r}")
        found = self.tensors[name].shape
        if found != tuple(shape):
            raise ValueError(
                f"{self.path}: tensor {name!r} must have shape {tuple(shape)}, "
                f"got {found}"
            )
        return self.tensors[name]


class _Cursor:
    """A place in the file, and what is read from there on."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content = content
        self.place = 0

    def number(self, form: str) -> Any:
        """One number of a kind that ``struct`` names."""
        (value,) = struct.unpack("<" + form, self.bytes(struct.calcsize("<" + form)))
        return value

    def bytes(self, n: int) -> bytes:
        if n > LARGEST or self.place + n > len(self.content):
            raise ValueError(f"it ends at byte {len(self.content)}, in its head")
        self.place += n
        return self.content[self.place - n : self.place]

    def string(self) -> str:
        return self.bytes(self.number("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        """A field's value: a number, a string, or a list of them."""
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            kind, n = self.number("I"), self.number("Q")
            if n > LONGEST:
                raise ValueError(f"it has a list of {n} entries")
            if kind in FORMATS:
                size = struct.calcsize("<" + FORMATS[kind])
                return list(struct.unpack(f"<{n}{FORMATS[kind]}", self.bytes(n * size)))
            if depth == DEEPEST:
                raise ValueError(f"it has lists in lists, {DEEPEST} deep and more")
            return [self.value(kind, depth + 1) for _ in range(n)]
        if kind not in FORMATS:
            raise ValueError(f"it has a field of unknown kind {kind}")
        return self.number(FORMATS[kind])


def _parse(content: mmap.mmap) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fields and the tensors of a file."""
    cursor = _Cursor(content)
    if cursor.bytes(4) != MAGIC:
        raise ValueError(f"it starts with {content[:4]!r}, not {MAGIC!r}")
    version = cursor.number("I")
    if version not in VERSIONS:
        raise ValueError(f"it is of version {version}; versions 2 and 3 are read")
    tensor_count, field_count = cursor.number("Q"), cursor.number("Q")
    fields: dict[str, Any] = {}
    for _ in range(field_count):
        name = cursor.string()
        if name in fields:
            raise ValueError(f"it has the field {name!r:.80} twice")
        fields[name] = cursor.value(cursor.number("I"))
    heads = [_tensor_head(cursor) for _ in range(tensor_count)]
    step = fields.get("general.alignment", 32)
    if type(step) is not int or step < 1 or step % ALIGNED:
        raise ValueError(f"its general.alignment is {step!r:.80}")
    start = -(-cursor.place // step) * step  # the tensors begin at a multiple
    tensors: dict[str, Tensor] = {}
    end = start  # of the tensor before, in the order of their places
    for name, shape, kind, place in sorted(heads, key=lambda head: head[3]):
        if name in tensors:
            raise ValueError(f"it has the tensor {name!r:.80} twice")
        if place % step:
            raise ValueError(
                f"its tensor {name!r:.80} begins at {place}, no multiple of {step}"
            )
        tensors[name] = tensor = _tensor(content, name, shape, kind, start + place)
        if tensor.data.size and start + place < end:
            raise ValueError(f"its tensor {name!r:.80} lies on top of another")
        end = max(end, start + place + tensor.data.size)
    return fields, tensors


def _tensor_head(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, kind and place of a tensor."""
    name, axes = cursor.string(), cursor.number("I")
    if not 1 <= axes <= 4:
        raise ValueError(f"its tensor {name!r:.80} has {axes} axes")
    sizes = [cursor.number("Q") for _ in range(axes)]
    return name, tuple(reversed(sizes)), cursor.number("I"), cursor.number("Q")


def _tensor(
    content: mmap.mmap, name: str, shape: tuple[int, ...], kind: int, place: int
) -> Tensor:
    try:
        called, weights, size = block_size(kind)
    except ValueError as error:
        raise ValueError(f"its tensor {name!r:.80}: {error}") from None
    if shape[-1] % weights or shape[-1] == 0:
        raise ValueError(f"its tensor {name!r:.80} has rows of {shape[-1]} weights")
    row = shape[-1] // weights * size
    n = row * math.prod(shape[:-1])
    if place + n > len(content):
        raise ValueError(f"it ends at byte {len(content)}, in its tensor {name!r:.80}")
    data = np.frombuffer(content, np.uint8, n, place).reshape(-1, row)
    return Tensor(shape, called, data)
