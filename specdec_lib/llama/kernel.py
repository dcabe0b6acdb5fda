"""The compiled way to multiply: weights of few bits, used as they are in the file.

A row of weights is turned into floats in a small buffer that stays in the processor's
nearest cache, and is multiplied by all tokens there. So memory has to deliver five or
nine bits for a weight in place of thirty-two, once for all tokens, and no floats are
ever written to it. Two rows go together, as each number of a token that is loaded is
then used twice.

Loops are written so that the compiler turns them into vector instructions: over long
stretches, with lengths that it does not know (a loop of known short length is
unrolled, and then stays as it is).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from .config import Floats
from .quantised import Bytes, Singles, half

BLOCK = 32  # weights that share a scale
LOW = np.uint8(15)
SHIFT = np.uint8(4)

_compiled = numba.njit(nogil=True, fastmath=True, error_model="numpy", cache=True)


@dataclass(frozen=True, eq=False)
class FourBits:
    """A matrix of w = d q + m, with q from 0 to 15 and a d and m for 32 weights.

    Byte j of a row holds the weights j (its low half) and j + K / 2.
    """

    codes: Bytes  # (n, K / 2)
    scales: Singles  # (n, K / 32)
    offsets: Singles  # (n, K / 32)

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], 2 * self.codes.shape[1]

    def multiply(self, x: Floats, first: int, last: int, out: Floats) -> None:
        """Fill ``out[:, first:last]`` with ``x @ self.T`` there."""
        x = np.ascontiguousarray(x)
        _four_bits(self.codes, self.scales, self.offsets, BLOCK, x, first, last, out)

    def rows_of(self, indices: Any) -> Singles:
        """(T,) -> (T, K), as floats."""
        codes = self.codes[indices]
        whole = np.concatenate((codes & LOW, codes >> SHIFT), axis=1)
        blocks = whole.reshape(len(codes), -1, BLOCK)
        rows: Singles = blocks * self.scales[indices][..., None]
        rows += self.offsets[indices][..., None]
        return rows.reshape(len(codes), -1)


@dataclass(frozen=True, eq=False)
class EightBits:
    """A matrix of w = d q, with q from -128 to 127 and a d for 32 weights."""

    codes: NDArray[np.int8]  # (n, K)
    scales: Singles  # (n, K / 32)

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    def multiply(self, x: Floats, first: int, last: int, out: Floats) -> None:
        """Fill ``out[:, first:last]`` with ``x @ self.T`` there."""
        x = np.ascontiguousarray(x)
        _eight_bits(self.codes, self.scales, BLOCK, x, first, last, out)

    def rows_of(self, indices: Any) -> Singles:
        """(T,) -> (T, K), as floats."""
        codes = self.codes[indices]
        blocks = codes.reshape(len(codes), -1, BLOCK)
        rows: Singles = blocks * self.scales[indices][..., None]
        return rows.reshape(len(codes), -1)


def pack(kind: str, data: Bytes) -> FourBits | EightBits | None:
    """Rows of a tensor, as the file holds them, ready for the kernel.

    The same bits in another order; None for a kind that the kernel does not take.
    """
    rows = len(data)
    if kind == "Q8_0":
        blocks = data.reshape(-1, 34)
        codes = blocks[:, 2:].view(np.int8).reshape(rows, -1)
        return EightBits(np.ascontiguousarray(codes), half(blocks, 0).reshape(rows, -1))
    if kind == "Q4_1":
        blocks = data.reshape(-1, 20)
        scales, offsets = half(blocks, 0), half(blocks, 2)
    elif kind == "Q4_0":
        blocks = data.reshape(-1, 18)
        scales = half(blocks, 0)
        offsets = -8 * scales
    else:
        return None
    packed = blocks[:, -16:]
    whole = np.concatenate((packed & LOW, packed >> SHIFT), axis=1).reshape(rows, -1)
    low, high = np.split(whole, 2, axis=1)
    return FourBits(
        low | high << SHIFT, scales.reshape(rows, -1), offsets.reshape(rows, -1)
    )


def join(parts: Sequence[FourBits | EightBits | None]) -> FourBits | EightBits | None:
    """Matrices one below the other; None where they are not of one kind."""
    if all(isinstance(each, FourBits) for each in parts):
        names = ("codes", "scales", "offsets")
        return FourBits(*(_stack(parts, name) for name in names))
    if all(isinstance(each, EightBits) for each in parts):
        return EightBits(*(_stack(parts, name) for name in ("codes", "scales")))
    return None


def _stack(parts: Sequence[Any], name: str) -> NDArray[Any]:
    return np.concatenate([getattr(each, name) for each in parts])


@_compiled
def _four_bits(
    codes: Any,
    scales: Any,
    offsets: Any,
    block: int,
    x: Any,
    first: int,
    last: int,
    out: Any,
) -> None:
    K = x.shape[1]
    rows = np.empty((2, K), np.float32)
    unpacked = np.empty(K, np.uint8)
    for n in range(first, last, 2):
        for i in range(2):
            m = min(n + i, last - 1)
            _unpack_four(codes, scales, offsets, m, block, K, unpacked, rows, i)
        _products(rows, x, out, n, min(n + 1, last - 1))


@_compiled
def _unpack_four(
    codes: Any,
    scales: Any,
    offsets: Any,
    n: int,
    block: int,
    K: int,
    unpacked: Any,
    rows: Any,
    i: int,
) -> None:
    """Row n as floats, in ``rows[i]``."""
    packed, row, middle = codes[n], rows[i], K // 2
    for j in range(middle):
        unpacked[j] = packed[j] & LOW
        unpacked[middle + j] = packed[j] >> SHIFT
    for b in range(scales.shape[1]):
        scale, offset = scales[n, b], offsets[n, b]
        q, w = unpacked[b * block : (b + 1) * block], row[b * block : (b + 1) * block]
        for j in range(block):
            w[j] = scale * np.float32(q[j]) + offset


@_compiled
def _eight_bits(
    codes: Any, scales: Any, block: int, x: Any, first: int, last: int, out: Any
) -> None:
    rows = np.empty((2, x.shape[1]), np.float32)
    for n in range(first, last, 2):
        for i in range(2):
            _unpack_eight(codes, scales, min(n + i, last - 1), block, rows, i)
        _products(rows, x, out, n, min(n + 1, last - 1))


@_compiled
def _unpack_eight(
    codes: Any, scales: Any, n: int, block: int, rows: Any, i: int
) -> None:
    """Row n as floats, in ``rows[i]``."""
    code, row = codes[n], rows[i]
    for b in range(scales.shape[1]):
        scale = scales[n, b]
        q, w = code[b * block : (b + 1) * block], row[b * block : (b + 1) * block]
        for j in range(block):
            w[j] = scale * np.float32(q[j])


@_compiled
def _products(rows: Any, x: Any, out: Any, n: int, m: int) -> None:
    """Two rows of weights by all tokens: five, four, two or one of them at a time."""
    T, t = len(x), 0
    while t < T:
        left = T - t
        if left == 5 or left > 8:
            _five(rows, x, out, n, m, t)
            t += 5
        elif left >= 4:
            _four(rows, x, out, n, m, t)
            t += 4
        elif left >= 2:
            _two(rows, x, out, n, m, t)
            t += 2
        else:
            _one(rows, x, out, n, m, t)
            t += 1


@_compiled
def _one(rows: Any, x: Any, out: Any, n: int, m: int, t: int) -> None:
    v, w, a = rows[0], rows[1], x[t]
    va = wa = np.float32(0)
    for j in range(x.shape[1]):
        va += v[j] * a[j]
        wa += w[j] * a[j]
    out[t, n], out[t, m] = va, wa


@_compiled
def _two(rows: Any, x: Any, out: Any, n: int, m: int, t: int) -> None:
    v, w, a, b = rows[0], rows[1], x[t], x[t + 1]
    va = vb = wa = wb = np.float32(0)
    for j in range(x.shape[1]):
        va += v[j] * a[j]
        wa += w[j] * a[j]
        vb += v[j] * b[j]
        wb += w[j] * b[j]
    out[t, n], out[t, m] = va, wa
    out[t + 1, n], out[t + 1, m] = vb, wb


@_compiled
def _four(rows: Any, x: Any, out: Any, n: int, m: int, t: int) -> None:
    v, w, a, b, c, d = rows[0], rows[1], x[t], x[t + 1], x[t + 2], x[t + 3]
    va = vb = vc = vd = wa = wb = wc = wd = np.float32(0)
    for j in range(x.shape[1]):
        va += v[j] * a[j]
        wa += w[j] * a[j]
        vb += v[j] * b[j]
        wb += w[j] * b[j]
        vc += v[j] * c[j]
        wc += w[j] * c[j]
        vd += v[j] * d[j]
        wd += w[j] * d[j]
    out[t, n], out[t, m] = va, wa
    out[t + 1, n], out[t + 1, m] = vb, wb
    out[t + 2, n], out[t + 2, m] = vc, wc
    out[t + 3, n], out[t + 3, m] = vd, wd


@_compiled
def _five(rows: Any, x: Any, out: Any, n: int, m: int, t: int) -> None:
    v, w, a, b, c = rows[0], rows[1], x[t], x[t + 1], x[t + 2]
    d, e = x[t + 3], x[t + 4]
    va = vb = vc = vd = ve = wa = wb = wc = wd = we = np.float32(0)
    for j in range(x.shape[1]):
        va += v[j] * a[j]
        wa += w[j] * a[j]
        vb += v[j] * b[j]
        wb += w[j] * b[j]
        vc += v[j] * c[j]
        wc += w[j] * c[j]
        vd += v[j] * d[j]
        wd += w[j] * d[j]
        ve += v[j] * e[j]
        we += w[j] * e[j]
    out[t, n], out[t, m] = va, wa
    out[t + 1, n], out[t + 1, m] = vb, wb
    out[t + 2, n], out[t + 2, m] = vc, wc
    out[t + 3, n], out[t + 3, m] = vd, wd
    out[t + 4, n], out[t + 4, m] = ve, we
