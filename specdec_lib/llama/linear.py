"""``linear(x, weight)``: all the time of a language model is spent here.

It is ``x @ weight.T`` and nothing else. What has to be minded is that the weights
come from memory, which takes far longer than the arithmetic: for a few tokens at once
they should be read once, and in the order in which they lie. What was measured:

- for one token, dot products row by row stream the weights about twice as fast as
  OpenBLAS's product of a matrix and a vector, which reads several rows at a time;
- for a few tokens BLAS copies the weights in order before it multiplies, which costs
  more than the product. OpenBLAS on a processor with AVX-512 does without where rows x
  tokens <= 1200 and rows x tokens x columns <= 1e6. So the rows are cut into blocks:
  the first token's dot products bring a block from memory, and the product with the
  others finds it in the core's cache;
- elsewhere dot products are the best for up to six tokens, and BLAS's way for more.

The rows of a large product are shared out over a few threads, and BLAS is held to one
thread each. To wake a thread that sleeps takes up to 100 microseconds, in which one
thread does a small product alone. And Python runs one thread at a time: a loop over
blocks in two threads would hand the right to run to and fro, at the price of a wake-up
each time. So only the first thread goes from block to block; the others do all their
blocks in one call of NumPy, which takes longer for each, and get the smaller shares.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import numpy as np

from .config import Floats

FEW = 32  # tokens up to which blocks pay
FEW_DOTS = 6  # tokens up to which dot products pay, where blocks do not
CACHED = 1 << 19  # bytes that stay in a core's cache
LEAST = 24_000_000  # weights x (tokens + 3) below which a second thread does not pay
MAIN_SHARE = 1.5  # rows of the thread that goes by blocks, for one of each other's
MOST_THREADS = 4  # a few already take all that memory delivers
AVX512 = {"SkylakeX", "Cooperlake", "SapphireRapids"}  # as OpenBLAS names its kernels


def linear(x: Floats, weight: Any) -> Floats:
    """(T, K), (n, K) -> (T, n): ``x @ weight.T``, by the fastest way known here.

    ``weight`` is an array, or anything with ``shape`` and ``multiply(x, out)`` that
    fills ``out``, on threads of its own if it likes.
    """
    n, columns = weight.shape
    out = np.empty((len(x), n), x.dtype)
    if not len(x):
        return out
    if hasattr(weight, "multiply"):
        weight.multiply(x, out)
        return out

    def part(first: int, last: int) -> None:
        _multiply(x, weight[first:last], out[:, first:last], alone=not first)

    several = pays_threads(len(x), n, columns) and not between_blocks(len(x))
    threads = thread_count() if several else 1
    ahead = MAIN_SHARE if by_blocks(len(x)) else 1.0
    in_parallel(part, shares(n, threads, ahead))
    return out


def pays_threads(T: int, n: int, columns: int) -> bool:
    """Whether a product is worth waking a thread: its bytes, and its arithmetic.

    ``T`` tokens by a matrix of ``n`` rows and ``columns``.

    To bring a weight from memory takes about as long as its products with three tokens.
    A sleeping thread takes 40 to 100 microseconds to begin, as long as one that is
    awake needs for half a million weights.
    """
    return n * columns * (T + 3) >= LEAST


def between_blocks(T: int) -> bool:
    """Whether another thread's call would come in the way of a loop over blocks.

    Both take the GIL in turn for that loop's many short calls, and the one that waits
    falls asleep; only the work of ``T`` = 5 tokens outweighs that.
    """
    return by_blocks(T) and T < 5


def shares(n: int, threads: int, ahead: float = 1.0) -> list[int]:
    """0, ..., n: bounds of the threads' rows, the first's ``ahead`` times another's.

    Whole runs of 64 rows each, as blocks and tiles are cut.
    """
    unit = n / (ahead + threads - 1)
    inner = [round((ahead + i) * unit / 64) * 64 for i in range(threads - 1)]
    return [0, *(min(each, n) for each in inner), n]


def rows_of(weight: Any, indices: Any, dtype: Any) -> Floats:
    """(n, K), (T,) -> (T, K): some rows of a matrix, as floats."""
    if hasattr(weight, "rows_of"):
        weight = weight.rows_of(indices)
        return np.asarray(weight, dtype)
    return np.asarray(weight[indices], dtype)


def by_blocks(T: int) -> bool:
    """Whether T tokens are multiplied block by block."""
    return 1 < T <= FEW and small_products()


def _multiply(x: Floats, weight: Floats, out: Floats, alone: bool) -> None:
    """(T, K), (n, K), (T, n): fill ``out`` with ``x @ weight.T`` on one thread.

    ``alone`` is False on a thread that is to disturb another one as little as possible.
    """
    T = len(x)
    if by_blocks(T):
        (_multiply_in_blocks if alone else _multiply_at_once)(x, weight, out)
    elif T <= FEW_DOTS and (T == 1 or not small_products()):
        _dots(x, weight, out)
    else:
        np.matmul(x, weight.T, out=out)


def _dots(x: Floats, weight: Floats, out: Floats) -> None:
    """The same by dot products: every row by every token, and then the next row."""
    np.vecdot(weight[:, None], x, out=out.T)


def _multiply_in_blocks(x: Floats, weight: Floats, out: Floats) -> None:
    """The same for two or more tokens, by blocks of rows that stay in the cache."""
    rows = block_rows(len(x) - 1, x.shape[1], x.itemsize)
    for first in range(0, len(weight), rows):
        block = weight[first : first + rows]
        np.vecdot(block, x[0], out=out[0, first : first + rows])
        np.matmul(x[1:], block.T, out=out[1:, first : first + rows])


def _multiply_at_once(x: Floats, weight: Floats, out: Floats) -> None:
    """The same in one call: a stack of blocks, and then the rows that are left."""
    (T, K), n = x.shape, len(weight)
    rows = block_rows(T, K, x.itemsize)
    blocks = n // rows
    full = blocks * rows
    stack = weight[:full].reshape(blocks, rows, K).transpose(0, 2, 1)
    stacked_out = out[:, :full].reshape(T, blocks, rows).transpose(1, 0, 2)
    np.matmul(x, stack, out=stacked_out)
    np.matmul(x, weight[full:].T, out=out[:, full:])


def block_rows(T: int, K: int, itemsize: int) -> int:
    """Rows of a block, for T tokens and K columns of ``itemsize`` bytes each."""
    most = min(1200 // T, 1_000_000 // (T * K), CACHED // (K * itemsize))
    return max(most - most % 16, 1)


@functools.cache
def small_products() -> bool:
    """Whether BLAS multiplies small matrices without copying them first."""
    return any(each.get("architecture") in AVX512 for each in _blas().info())


@functools.cache
def thread_count() -> int:
    """Threads that share a product: the processors there are, at most a few."""
    try:
        available = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        available = os.cpu_count() or 1
    return min(available, MOST_THREADS)


def in_parallel(part: Callable[[int, int], None], bounds: list[int]) -> None:
    """Call ``part(first, last)`` for each two neighbours in ``bounds``, at once."""
    answers: SimpleQueue[BaseException | None] = SimpleQueue()
    (first, last), *others = pairwise(bounds)
    for worker, share in zip(_workers(len(others)), others, strict=True):
        worker.put((part, *share, answers))
    try:
        part(first, last)
    finally:
        errors = [answers.get() for _ in others]
    for error in errors:
        if error is not None:
            raise error


@functools.cache
def _workers(n: int) -> tuple[SimpleQueue[Any], ...]:
    """The queues of n threads that wait for work; they end with the program."""
    queues = tuple(SimpleQueue[Any]() for _ in range(n))
    for queue in queues:
        threading.Thread(target=_work, args=(queue,), daemon=True).start()
    return queues


def _work(queue: SimpleQueue[Any]) -> None:
    while True:
        part, first, last, answers = queue.get()
        try:
            part(first, last)
        except BaseException as error:
            answers.put(error)
        else:
            answers.put(None)
        del part, answers  # a waiting thread holds on to nothing


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(after_in_child=_workers.cache_clear)


@functools.cache
def _blas() -> Any:
    """What tells and sets how many threads BLAS uses."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


_held = threading.Lock()
_holders: list[Any] = []  # one limit, for all that hold it


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread, and set it back when the last holder has left."""
    with _held:
        _holders.append(_holders[0] if _holders else _blas().limit(limits=1))
    try:
        yield
    finally:
        with _held:
            limit = _holders.pop()
            if not _holders:
                limit.restore_original_limits()
