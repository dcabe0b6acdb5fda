"""Weights of few bits: what the bytes of a GGUF file mean.

A row is cut into blocks of 32 weights that share a scale d and, in some kinds, an
offset m. ``blocks`` is (n, bytes of a block), the result (n, 32) in float32.

Source: the GGUF format's kinds, as the ``gguf`` package decodes them; the tests hold
each function here against that package.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Singles = NDArray[np.float32]

PIECE = 1 << 18  # weights decoded at once, so that what is between stays in cache


def half(blocks: Bytes, first: int) -> Singles:
    """(n, bytes) -> (n, 1): the 16-bit float at byte ``first`` of every block."""
    two = np.ascontiguousarray(blocks[:, first : first + 2])
    return two.view(np.float16).astype(np.float32)


def nibbles(blocks: Bytes, first: int) -> Bytes:
    """(n, bytes) -> (n, 32): the low halves of 16 bytes, then their high halves."""
    packed = blocks[:, first : first + 16]
    return np.concatenate((packed & 15, packed >> 4), axis=1)


def q4_0(blocks: Bytes) -> Singles:
    """w = d (q - 8), with q from 0 to 15: 18 bytes."""
    return half(blocks, 0) * (nibbles(blocks, 2).astype(np.float32) - 8)


def q4_1(blocks: Bytes) -> Singles:
    """w = d q + m, with q from 0 to 15: 20 bytes."""
    return half(blocks, 0) * nibbles(blocks, 4) + half(blocks, 2)


def q8_0(blocks: Bytes) -> Singles:
    """w = d q, with q from -128 to 127: 34 bytes."""
    return half(blocks, 0) * blocks[:, 2:].view(np.int8)


DECODERS: dict[str, Callable[[Bytes], Singles]] = {
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q8_0": q8_0,
}
KINDS = {  # the number in the file: name, weights of a block, its bytes
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    8: ("Q8_0", 32, 34),
}
FLOATS = {"F32": np.float32, "F16": np.float16}


@functools.cache
def block_size(kind: int) -> tuple[str, int, int]:
    """The name of a kind of weights, the weights of a block, and its bytes.

    ValueError for a number that means no kind, or none that can be decoded.
    """
    if kind in KINDS:
        return KINDS[kind]
    import gguf

    try:
        named = gguf.GGMLQuantizationType(kind)
        weights, size = gguf.GGML_QUANT_SIZES[named]
        gguf.dequantize(np.zeros((1, size), np.uint8), named)
    except (ValueError, KeyError, NotImplementedError):
        raise ValueError(f"{kind} is no kind of weights that is read") from None
    return named.name, weights, size


def decode(data: Bytes, kind: str) -> NDArray[Any]:
    """Rows of a tensor: ``data`` (rows, bytes of a row) -> (rows, columns) of floats.

    ``kind`` is "Q4_0", "F16" or another name of the format.
    """
    if kind in FLOATS:
        return data.view(FLOATS[kind])
    if kind in DECODERS:
        size = next(size for name, _, size in KINDS.values() if name == kind)
        return DECODERS[kind](data.reshape(-1, size)).reshape(len(data), -1)
    import gguf

    decoded: NDArray[Any] = gguf.dequantize(data, gguf.GGMLQuantizationType[kind])
    return decoded


def decode_into(out: NDArray[Any], data: Bytes, kind: str) -> None:
    """Fill ``out``, (rows, columns), by :func:`decode`, a few rows at a time."""
    step = max(1, PIECE // out.shape[1])
    for first in range(0, len(out), step):
        out[first : first + step] = decode(data[first : first + step], kind)
