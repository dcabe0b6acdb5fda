"""Workloads in turn, and a slowness that is put in on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from time import process_time
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..models import check_count
from ..randomness import RandomSource, SeededRandom

Clock = Callable[[], float]
Work = Callable[[], object]
T = TypeVar("T")

PER_PAIR = 5


def in_random_order(items: Sequence[T], rng: RandomSource) -> list[T]:
    """A permutation, every one as likely."""
    left, done = list(items), []
    while left:
        done.append(left.pop(rng.categorical(np.full(len(left), 1 / len(left)))))
    return done


def measure(
    workloads: Mapping[str, Work],
    blocks: int,
    *,
    seed: int = 0,
    clock: Clock = process_time,
) -> dict[str, NDArray[np.float64]]:
    """Seconds of each workload in each block.

    A block runs every workload once, in an order of its own; one more block before
    them, to warm up, is not counted.

    workloads
        name -> a function of nothing.
    blocks
        >= 1.
    clock
        seconds; by default those that the processor spent on this process.

    Returns name -> (blocks,).

    >>> times = measure({"a": lambda: 1, "b": lambda: 2}, blocks=3)
    >>> {name: len(seconds) for name, seconds in times.items()}
    {'a': 3, 'b': 3}
    """
    check_count("blocks", blocks, least=1)
    if not workloads:
        raise ValueError("workloads must be one or more")
    rng = SeededRandom(seed)
    times: dict[str, list[float]] = {name: [] for name in workloads}
    for _ in range(blocks + 1):
        for name in in_random_order(list(workloads), rng):
            started = clock()
            workloads[name]()
            times[name].append(clock() - started)
    return {name: np.array(seconds[1:]) for name, seconds in times.items()}


def measure_pairs(
    changed: Work,
    reference: Work,
    *,
    pairs: int,
    per_pair: int = PER_PAIR,
    seed: int = 0,
    clock: Clock = process_time,
) -> NDArray[np.float64]:
    """log(seconds of ``changed`` / seconds of ``reference``), ``pairs`` times.

    Each is the median of ``per_pair`` blocks that stand together, so that a few
    interruptions do no harm and neighbours are no longer alike. Both run once a block,
    which of them first is drawn. Returns (pairs,), for :func:`judge`.

    >>> len(measure_pairs(lambda: sum(range(99)), lambda: sum(range(99)), pairs=4))
    4
    """
    check_count("pairs", pairs, least=1)
    check_count("per_pair", per_pair, least=1)
    both = {"changed": changed, "reference": reference}
    times = measure(both, pairs * per_pair, seed=seed, clock=clock)
    logs = log_ratios(times["changed"], times["reference"])
    return np.asarray(np.median(logs.reshape(pairs, per_pair), axis=1))


def log_ratios(
    numerator: NDArray[np.float64], denominator: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Block by block; ValueError for a work that took no time at all."""
    if not (numerator.min() > 0 and denominator.min() > 0):
        raise ValueError("workloads must take time that the clock can see")
    return np.asarray(np.log(numerator) - np.log(denominator))


def planted(work: Any, fraction: float, *, clock: Clock = process_time) -> Any:
    """``work`` made slower by a share of its own time, truly: 0.05 for 5 %.

    work
        a function, or a draft; of a draft, what it spends on proposing and committing
        grows. ``verify`` of :func:`specdec_lib.generate` is a function too.
    fraction
        >= 0.

    What it returns stays the same. The time is spent in a loop, by the clock.

    >>> planted(max, 0.05)(3, 4)
    4
    """
    if not 0 <= fraction < math.inf:
        raise ValueError(f"fraction must be finite and >= 0, got {fraction}")
    if hasattr(work, "start"):
        return _SlowDraft(work, fraction, clock)
    if not callable(work):
        raise TypeError(f"work must be a function or a draft, got {work!r}")

    @wraps(work)
    def slower(*arguments: Any, **options: Any) -> Any:
        started = clock()
        result = work(*arguments, **options)
        now = clock()
        until = now + fraction * (now - started)
        while clock() < until:
            pass
        return result

    return slower


class _SlowDraft:
    def __init__(self, draft: Any, fraction: float, clock: Clock) -> None:
        self._parts = draft, fraction, clock

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_parts":  # a copy asks before it is made
            raise AttributeError(name)
        return getattr(self._parts[0], name)

    def start(self, prompt: Sequence[int]) -> Any:
        draft, fraction, clock = self._parts
        return _SlowSession(draft.start(prompt), fraction, clock)


class _SlowSession:
    def __init__(self, session: Any, fraction: float, clock: Clock) -> None:
        self.propose = planted(session.propose, fraction, clock=clock)
        self.commit = planted(session.commit, fraction, clock=clock)
