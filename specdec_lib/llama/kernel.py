"""The compiled way to multiply: weights of few bits, used as the file has them.

Memory has to deliver ten bits for a weight in place of thirty-two, once for all tokens,
and no weight is ever written down as a float. A processor does sixteen (or eight, or
four) sums at a time; they are given sixteen rows, so that no sum ever has to be put
together from parts. For that the rows are kept in tiles of ROWS, in which column
follows column. A block's scale d and offset m are used once for its 32 weights:

    sum (d q + m) x  =  d (sum q x) + m (sum x)

The tiles are shared out over the threads of OpenMP, which wait awake for the next
product: to wake a sleeping one takes as long as a product. Where numba has no OpenMP,
or in a forked process, which cannot use its parent's, threads are woken as in linear.

Loops are written so that the compiler turns them into vector instructions: the one over
the rows of a tile becomes vectors, and a short one over columns within it is unrolled.
What is written to is a small array made on the spot, and so are the tokens read with
it: the compiler gives up where it cannot tell that they lie apart.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numpy.typing import NDArray

from . import linear
from .config import Floats
from .quantised import Bytes, Singles, half, nibbles

BLOCK = 32  # weights that share a scale
ROWS = 64  # of a tile: a column of it is what memory delivers at once, 64 bytes
# Columns at a time for several tokens, so many that what is kept for them fits into the
# registers: AVX-512 has 32 of them, AVX2 has 16.
_forced = getattr(numba.config, "CPU_FEATURES", None)  # by NUMBA_CPU_FEATURES
_features = _forced or get_host_cpu_features().flatten()
PIECE = 4 if "+avx512f" in _features else 2
_layer = getattr(numba.config, "THREADING_LAYER", "")  # by NUMBA_THREADING_LAYER
_most_threads = getattr(numba.config, "NUMBA_NUM_THREADS", 1)

_compiled = numba.njit(nogil=True, fastmath=True, error_model="numpy", cache=True)
_parallel = numba.njit(
    nogil=True, fastmath=True, error_model="numpy", cache=True, parallel=True
)


@dataclass(frozen=True, eq=False)
class Blocks:
    """A matrix of w = d q + m, with whole numbers q and a d and m for 32 weights.

    These are the file's own numbers, but for one thing: a q of four bits takes a byte,
    as two in a byte cost more to take apart than they save on the way from memory. The
    last tile is filled up with zeros, beyond ``rows``.
    """

    codes: NDArray[np.int8]  # (tiles, K / 32, 32, ROWS)
    scales: Singles  # (tiles, K / 32, ROWS)
    offsets: Singles  # (tiles, K / 32, ROWS)
    rows: int

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns K) of the matrix."""
        return self.rows, self.codes.shape[1] * BLOCK

    def multiply(self, x: Floats, out: Floats) -> None:
        """(T, K), (T, n): fill ``out`` with ``x @ self.T``."""
        x = np.ascontiguousarray(x)
        matrix = self.codes, self.scales, self.offsets
        threads = linear.thread_count()
        if threads > 1 and has_openmp():
            before = numba.get_num_threads()
            numba.set_num_threads(min(threads, _most_threads))
            _multiply_together(*matrix, x, out, threads)
            numba.set_num_threads(before)
            return
        if not linear.pays_threads(len(x), *self.shape):
            threads = 1
        linear.in_parallel(
            lambda first, last: _multiply(*matrix, x, first, last, out),
            linear.shares(self.rows, threads),
        )

    def rows_of(self, indices: Any) -> Singles:
        """(T,) -> (T, K), as floats."""
        tile, row = np.divmod(indices, ROWS)
        rows: Singles = self.codes[tile, :, :, row] * self.scales[tile, :, row, None]
        rows += self.offsets[tile, :, row, None]
        return rows.reshape(len(tile), -1)


def pack(kind: str, data: Bytes) -> Blocks | None:
    """Rows of a tensor, ``data`` as the file holds them, ready for the kernel.

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
        _tiles(codes.reshape(rows, -1, BLOCK)),
        _tiles(scales.reshape(rows, -1)),
        _tiles(offsets.reshape(rows, -1)),
        rows,
    )


def join(parts: Sequence[Blocks | None]) -> Blocks | None:
    """The ``parts`` one below the other; None where the kernel does not take one."""
    taken = [each for each in parts if each is not None]
    if len(taken) < len(parts):
        return None

    def joined(name: str) -> Any:
        return _tiles(np.concatenate([_untiled(each, name) for each in taken]))

    rows = sum(each.rows for each in taken)
    return Blocks(joined("codes"), joined("scales"), joined("offsets"), rows)


def _tiles(rows: NDArray[Any]) -> NDArray[Any]:
    """(n, ...) -> (tiles, ..., ROWS)."""
    n = len(rows)
    full = np.zeros((-(-n // ROWS) * ROWS, *rows.shape[1:]), rows.dtype)
    full[:n] = rows
    tiles = full.reshape(-1, ROWS, *rows.shape[1:])
    return np.ascontiguousarray(np.moveaxis(tiles, 1, -1))


def _untiled(matrix: Blocks, name: str) -> NDArray[Any]:
    """(tiles, ..., ROWS) -> (n, ...)."""
    rows = np.moveaxis(getattr(matrix, name), -1, 1)
    joined: NDArray[Any] = rows.reshape(-1, *rows.shape[2:])
    return joined[: matrix.rows]


@functools.cache
def has_openmp() -> bool:
    """Whether numba's parallel loops are OpenMP's, which several threads may use."""
    if _forked:
        return False
    try:
        importlib.import_module("numba.np.ufunc.omppool")
    except ImportError:
        return False
    return _layer in ("default", "threadsafe", "omp")


_forked: list[bool] = []  # not empty in a forked process


def _after_fork() -> None:
    _forked.append(True)
    has_openmp.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@_parallel
def _multiply_together(
    codes: Any, scales: Any, offsets: Any, x: Any, out: Any, threads: int
) -> None:
    n, tiles = out.shape[1], len(codes)
    for i in numba.prange(threads):
        first, last = tiles * i // threads * ROWS, tiles * (i + 1) // threads * ROWS
        _multiply(codes, scales, offsets, x, first, min(last, n), out)


@_compiled
def _multiply(
    codes: Any, scales: Any, offsets: Any, x: Any, first: int, last: int, out: Any
) -> None:
    T = len(x)
    sums = np.empty((T, x.shape[1] // BLOCK), np.float32)  # of x, block by block
    for t in range(T):
        for b in range(sums.shape[1]):
            sums[t, b] = x[t, b * BLOCK : (b + 1) * BLOCK].sum()
    y = np.empty((5, ROWS), np.float32)
    for tile in range(first // ROWS, -(-last // ROWS)):
        q, d, m = codes[tile], scales[tile], offsets[tile]
        low, high = max(first, tile * ROWS), min(last, (tile + 1) * ROWS)
        t = 0
        while t < T:
            left = T - t
            n = 5 if left == 5 or left > 8 else 4 if left >= 4 else min(left, 2)
            a, s = x[t : t + n], sums[t : t + n]
            if n == 5:
                _five(q, d, m, a, s, y)
            elif n == 4:
                _four(q, d, m, a, s, y)
            elif n == 2:
                _two(q, d, m, a, s, y)
            else:
                _one(q, d, m, a[0], s[0], y[0])
            for i in range(n):
                for row in range(low, high):
                    out[t + i, row] = y[i, row - tile * ROWS]
            t += n


@_compiled
def _one(codes: Any, scales: Any, offsets: Any, x: Any, sums: Any, y: Any) -> None:
    """A tile of rows by one token."""
    y[:] = np.float32(0)
    for b in range(len(codes)):
        q, d, m, s = codes[b], scales[b], offsets[b], sums[b]
        a = x[b * BLOCK : (b + 1) * BLOCK]
        for i in range(len(y)):
            v = np.float32(0)
            for j in range(BLOCK):
                v += a[j] * np.float32(q[j, i])
            y[i] += d[i] * v + m[i] * s


@_compiled
def _two(codes: Any, scales: Any, offsets: Any, x: Any, sums: Any, y: Any) -> None:
    """The same by two tokens; each weight is made a float once for all."""
    total = _offsets(offsets, sums, np.empty((2, ROWS), np.float32))
    a = np.empty((2, PIECE), np.float32)
    for b in range(len(codes)):
        d = scales[b]
        for first in range(0, BLOCK, PIECE):
            q = codes[b, first : first + PIECE]
            for t in range(len(a)):
                for j in range(PIECE):
                    a[t, j] = x[t, b * BLOCK + first + j]
            for i in range(ROWS):
                va = vb = np.float32(0)
                for j in range(PIECE):
                    w = np.float32(q[j, i])
                    va += a[0, j] * w
                    vb += a[1, j] * w
                total[0, i] += d[i] * va
                total[1, i] += d[i] * vb
    y[:2] = total


@_compiled
def _four(codes: Any, scales: Any, offsets: Any, x: Any, sums: Any, y: Any) -> None:
    """The same by four tokens; each weight is made a float once for all."""
    total = _offsets(offsets, sums, np.empty((4, ROWS), np.float32))
    a = np.empty((4, PIECE), np.float32)
    for b in range(len(codes)):
        d = scales[b]
        for first in range(0, BLOCK, PIECE):
            q = codes[b, first : first + PIECE]
            for t in range(len(a)):
                for j in range(PIECE):
                    a[t, j] = x[t, b * BLOCK + first + j]
            for i in range(ROWS):
                va = vb = vc = vd = np.float32(0)
                for j in range(PIECE):
                    w = np.float32(q[j, i])
                    va += a[0, j] * w
                    vb += a[1, j] * w
                    vc += a[2, j] * w
                    vd += a[3, j] * w
                total[0, i] += d[i] * va
                total[1, i] += d[i] * vb
                total[2, i] += d[i] * vc
                total[3, i] += d[i] * vd
    y[:4] = total


@_compiled
def _five(codes: Any, scales: Any, offsets: Any, x: Any, sums: Any, y: Any) -> None:
    """The same by five tokens; each weight is made a float once for all."""
    total = _offsets(offsets, sums, np.empty((5, ROWS), np.float32))
    a = np.empty((5, PIECE), np.float32)
    for b in range(len(codes)):
        d = scales[b]
        for first in range(0, BLOCK, PIECE):
            q = codes[b, first : first + PIECE]
            for t in range(len(a)):
                for j in range(PIECE):
                    a[t, j] = x[t, b * BLOCK + first + j]
            for i in range(ROWS):
                va = vb = vc = vd = ve = np.float32(0)
                for j in range(PIECE):
                    w = np.float32(q[j, i])
                    va += a[0, j] * w
                    vb += a[1, j] * w
                    vc += a[2, j] * w
                    vd += a[3, j] * w
                    ve += a[4, j] * w
                total[0, i] += d[i] * va
                total[1, i] += d[i] * vb
                total[2, i] += d[i] * vc
                total[3, i] += d[i] * vd
                total[4, i] += d[i] * ve
    y[:5] = total


@_compiled
def _offsets(offsets: Any, sums: Any, total: Any) -> Any:
    """What the offsets m contribute, in ``total``."""
    total[:] = np.float32(0)
    for b in range(len(offsets)):
        m = offsets[b]
        for t in range(len(total)):
            s = sums[t, b]
            for i in range(ROWS):
                total[t, i] += m[i] * s
    return total
