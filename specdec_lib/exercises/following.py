"""Random answers, judged by the exact law of what they return.

An answer may draw with the library's ``bernoulli`` and ``categorical``, or as with a
NumPy ``Generator``: all are branches of :func:`specdec_lib.exact_distribution`. A
uniform number is followed on the midpoints of a grid. Where every threshold that it may
meet is a multiple of the grid's step, the average over the cells is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..randomness import RandomSource, SeededRandom, exact_distribution
from .marking import Wrong

Law = Mapping[Hashable, float]
Run = Callable[[RandomSource, "Source"], Hashable]

MOST_DRAWS = 64  # in one run of an answer
MOST_PATHS = 250_000
SAMPLES = 4_000


class Source:
    """What an answer is given as ``rng``: the library's two acts, and NumPy's names.

    acts
        makes the choices: a path that is followed, or a seeded source.
    uniform
        gives a number from [0, 1).
    """

    def __init__(self, acts: RandomSource, uniform: Callable[[], float]) -> None:
        self._acts, self._uniform = acts, uniform
        self._draws = 0

    def _act(self, draw: Callable[[], Any]) -> Any:
        self._draws += 1
        if self._draws > MOST_DRAWS:
            raise Wrong(
                f"it draws more than {MOST_DRAWS} random numbers in one call: does a "
                "loop never end? (To try until something fits cannot be followed; draw "
                "from what is left, once.)"
            )
        try:
            return draw()
        except RuntimeError as error:  # of the path that is followed
            raise _not_followed(error) from None

    def bernoulli(self, p: float) -> bool:
        return bool(self._act(lambda: self._acts.bernoulli(p)))

    def categorical(self, distribution: Any) -> int:
        return int(self._act(lambda: self._acts.categorical(distribution)))

    def random(self, size: Any = None, *_: Any, **__: Any) -> Any:
        return self._many(lambda: self._act(self._uniform), size)

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Any = None) -> Any:
        return low + (high - low) * self.random(size)

    def integers(
        self, low: int, high: int | None = None, size: Any = None, **options: Any
    ) -> Any:
        if high is None:
            low, high = 0, low
        values = np.arange(low, high + bool(options.get("endpoint")))
        return self.choice(values, size)

    def choice(
        self, a: Any, size: Any = None, replace: bool = True, p: Any = None
    ) -> Any:
        values = np.arange(a) if np.ndim(a) == 0 else np.asarray(a)
        weights = np.full(len(values), 1 / len(values)) if p is None else p
        if size is not None and not replace:
            raise Wrong("draws without replacement cannot be followed here")
        return self._many(lambda: values[self.categorical(weights)], size)

    def _many(self, draw: Callable[[], Any], size: Any) -> Any:
        if size is None:
            return draw()
        shape = (size,) if np.ndim(size) == 0 else tuple(size)
        return np.array([draw() for _ in range(int(np.prod(shape)))]).reshape(shape)

    def __getattr__(self, name: str) -> Any:
        raise Wrong(
            f"`rng` has no {name} that can be followed; take `rng.bernoulli` and "
            "`rng.categorical`, or random, choice and integers"
        )


class _Lowest:
    """Acts that always take the first choice that has a probability at all."""

    def bernoulli(self, p: float) -> bool:
        return p > 0

    def categorical(self, distribution: Any) -> int:
        return int(np.flatnonzero(np.asarray(distribution))[0])


def lowest() -> Source:
    """Every uniform number is 0, the smallest that there is."""
    return Source(_Lowest(), lambda: 0.0)


@dataclass(frozen=True)
class Followed:
    """The exact law of ``run``, on the grid; ``asked`` tells whether it drew uniform
    numbers at all, for which a grid was needed."""

    run: Run
    law: dict[Hashable, float]
    asked: bool

    def after(self, watch: Callable[[Any], Hashable]) -> Followed:
        """The same for ``watch`` of each outcome."""
        found: dict[Hashable, float] = {}
        for outcome, weight in self.law.items():
            seen = watch(outcome)
            found[seen] = found.get(seen, 0.0) + weight
        run = self.run
        return Followed(lambda acts, rng: watch(run(acts, rng)), found, self.asked)

    def agrees_off_the_grid(self, truth: Law) -> bool:
        """Whether samples agree with the truth, and not with what the grid showed.

        An answer may be right and use a uniform number in a way that no grid shows: one
        number for two decisions, say, scaled in between.
        """
        if not self.asked:
            return False
        acts, uniform = SeededRandom(1), np.random.default_rng(2).random
        counts: dict[Hashable, int] = {}
        for n in (SAMPLES // 8, SAMPLES):  # most wrong ones show at once
            while sum(counts.values()) < n:
                outcome = self.run(acts, Source(acts, uniform))
                counts[outcome] = counts.get(outcome, 0) + 1
            shares = {x: count / n for x, count in counts.items()}
            noise = 2 * (len({*truth, *shares}) / (6 * n)) ** 0.5
            if distance(shares, truth) > noise:
                return False
        return bool(distance(shares, self.law) > noise)


def follow(run: Run, cells: int) -> Followed:
    """The exact law of ``run(acts, rng)``; ``cells`` is the number of the grid's cells.

    Wrong where it cannot be found.
    """
    flat, asked = np.full(cells, 1 / cells), False

    def followed(path: RandomSource) -> Hashable:
        def uniform() -> float:
            nonlocal asked
            asked = True
            return (path.categorical(flat) + 0.5) / cells

        return run(path, Source(path, uniform))

    try:
        found = exact_distribution(followed, max_paths=MOST_PATHS)
    except RuntimeError as error:
        raise _not_followed(error) from None
    return Followed(run, found, asked)


def _not_followed(error: RuntimeError) -> Wrong:
    if "max_paths" in str(error):
        return Wrong(
            "it draws so many random numbers that its paths are too many to follow"
        )
    return Wrong(
        "with the same random numbers it does not do the same twice: draw from rng "
        "alone, and keep nothing between calls"
    )


def distance(one: Law, other: Law) -> float:
    """Total variation of two laws."""
    return sum(abs(one.get(x, 0) - other.get(x, 0)) for x in {*one, *other}) / 2


def same(one: Law, other: Law) -> bool:
    """Equal but for rounding."""
    return distance(one, other) < 1e-9
