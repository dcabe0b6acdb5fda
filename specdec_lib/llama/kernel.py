"""The compiled way to multiply: weights of few bits, used as the file has them.

A row of weights is turned into floats in a small buffer that stays in the processor's
nearest cache, and is multiplied by all tokens there. So memory has to deliver ten bits
for a weight in place of thirty-two, once for all tokens, and no floats are ever written
to it. Two rows go together, as each number of a token that is loaded is then used
twice.

Loops are written so that the compiler turns them into vector instructions: over
lengths that it does not know (a loop of known short length is unrolled, and then stays
as it is).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from .config import Floats
from .quantised import Bytes, Singles, half, nibbles

BLOCK = 32  # weights that share a scale

_compiled = numba.njit(nogil=True, fastmath=True, error_model="numpy", cache=True)


@dataclass(frozen=True, eq=False)
class Blocks:
    """A matrix of w = d q + m, with whole numbers q and a d and m for 32 weights.

    These are the file's own numbers, but for one thing: a q of four bits takes a byte,
    as two in a byte cost more to take apart than they save on the way from memory.
    """

    codes: NDArray[np.int8]  # (n, K)
    scales: Singles  # (n, K / 32)
    offsets: Singles  # (n, K / 32)

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    def multiply(self, x: Floats, first: int, last: int, out: Floats) -> None:
        """Fill ``out[:, first:last]`` with ``x @ self.T`` there."""
        x = np.ascontiguousarray(x)
        _multiply(self.codes, self.scales, self.offsets, BLOCK, x, first, last, out)

    def rows_of(self, indices: Any) -> Singles:
        """(T,) -> (T, K), as floats."""
        codes = self.codes[indices]
        blocks = codes.reshape(len(codes), -1, BLOCK)
        rows: Singles = blocks * self.scales[indices][..., None]
        rows += self.offsets[indices][..., None]
        return rows.reshape(len(codes), -1)


def pack(kind: str, data: Bytes) -> Blocks | None:
    """Rows of a tensor, as the file holds them, ready for the kernel.

    None for a kind that the kernel does not take.
    """
    if kind == "Q4_0":
        blocks = data.reshape(-1, 18)
        codes, scales = nibbles(blocks, 2).view(np.int8) - np.int8(8), half(blocks, 0)
        offsets = np.zeros_like(scales)
    elif kind == "Q4_1":
        blocks = data.reshape(-1, 20)
        codes, scales = nibbles(blocks, 4).view(np.int8), half(blocks, 0)
        offsets = half(blocks, 2)
    elif kind == "Q8_0":
        blocks = data.reshape(-1, 34)
        codes, scales = blocks[:, 2:].view(np.int8), half(blocks, 0)
        offsets = np.zeros_like(scales)
    else:
        return None
    rows = len(data)
    return Blocks(
        np.ascontiguousarray(codes).reshape(rows, -1),
        scales.reshape(rows, -1),
        offsets.reshape(rows, -1),
    )


def join(parts: Sequence[Blocks | None]) -> Blocks | None:
    """Matrices one below the other; None where the kernel does not take one of them."""
    taken = [each for each in parts if each is not None]
    if len(taken) < len(parts):
        return None
    return Blocks(
        np.concatenate([each.codes for each in taken]),
        np.concatenate([each.scales for each in taken]),
        np.concatenate([each.offsets for each in taken]),
    )


@_compiled
def _multiply(
    codes: Any,
    scales: Any,
    offsets: Any,
    block: int,
    x: Any,
    first: int,
    last: int,
    out: Any,
) -> None:
    rows = np.empty((2, x.shape[1]), np.float32)
    for n in range(first, last, 2):
        m = min(n + 1, last - 1)
        _unpack(codes, scales, offsets, n, block, rows, 0)
        _unpack(codes, scales, offsets, m, block, rows, 1)
        _products(rows, x, out, n, m)


@_compiled
def _unpack(
    codes: Any, scales: Any, offsets: Any, n: int, block: int, rows: Any, i: int
) -> None:
    """Row n as floats, in ``rows[i]``."""
    code, row = codes[n], rows[i]
    for b in range(scales.shape[1]):
        scale, offset = scales[n, b], offsets[n, b]
        q, w = code[b * block : (b + 1) * block], row[b * block : (b + 1) * block]
        for j in range(block):
            w[j] = scale * np.float32(q[j]) + offset


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
