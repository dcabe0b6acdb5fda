"""The only two random acts of the library, and a source that follows all of them.

Every random decision, here and in readers' own drafts and rules, is one of two calls on
a source ``rng``:

    rng.bernoulli(p)              True with probability p
    rng.categorical(distribution) index i with probability distribution[i]

Because nothing else is random, code can be *proven* instead of sampled:
:func:`exact_distribution` runs it once for every possible sequence of outcomes and adds
up the probabilities. The code that is enumerated is the code that is shipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Outcome = TypeVar("Outcome", bound=Hashable)

_DOUBLE = np.dtype(np.float64)


class RandomSource(Protocol):
    """What the library asks of a source of randomness."""

    def bernoulli(self, p: float) -> bool:
        """True with probability ``p``, 0 <= p <= 1."""

    def categorical(self, distribution: NDArray[np.floating]) -> int:
        """Index i with probability ``distribution[i]``; ``distribution`` is (V,)."""


class SeededRandom:
    """Pseudo-random source: NumPy's PCG64, one uniform number per call.

    ``seed`` is a non-negative integer; the same seed gives the same decisions. None
    takes fresh entropy from the operating system.

    >>> rng = SeededRandom(0)
    >>> [rng.bernoulli(0.5) for _ in range(4)]
    [False, True, True, True]
    >>> rng.categorical([0.0, 0.0, 1.0])
    2
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None:
            if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
                raise TypeError(f"seed must be an integer or None, got {seed!r}")
            if seed < 0:
                raise ValueError(f"seed must be 0 or more, got {seed}")
        self._uniform = np.random.Generator(np.random.PCG64(seed)).random

    def bernoulli(self, p: float) -> bool:
        """True with probability ``p``; ValueError unless 0 <= p <= 1."""
        return self._uniform() < _checked_probability(p)

    def categorical(self, distribution: ArrayLike) -> int:
        """Index i with probability ``distribution[i]``, never one of probability 0.

        ``distribution`` is (V,), non-negative, and sums to 1: within 1e-6 in float64,
        within 1e-2 in coarser types, which are then renormalised in float64.
        ValueError otherwise.
        """
        cumulative = _checked_weights(distribution).cumsum()
        total = cumulative[-1]
        _check_total(total, distribution)
        u = self._uniform() * total
        # The first index whose cumulative sum exceeds u: a token of probability 0 adds
        # nothing to the sum and so is never the first. Rounding can lift u to the very
        # end, where the last token that added something is meant.
        index = int(cumulative.searchsorted(u, side="right"))
        if index == len(cumulative):
            index = int(cumulative.searchsorted(total, side="left"))
        return index


class _Path:
    """A source that replays choices, then takes the first choice each time."""

    def __init__(self, choices: list[int], before: _Path | None = None) -> None:
        self._replay = choices
        self._before = before.options if before is not None else []
        self.taken: list[int] = []
        self.options: list[list[tuple[int, float]]] = []  # (outcome, probability)
        self.probability = 1.0

    def bernoulli(self, p: float) -> bool:
        p = _checked_probability(p)
        return bool(self._choose([(1, p), (0, 1.0 - p)]))

    def categorical(self, distribution: ArrayLike) -> int:
        weights = _checked_weights(distribution)
        total = weights.sum()
        _check_total(total, distribution)
        if weights is not distribution:  # of a coarser type: renormalise in float64
            weights = weights / total
        return self._choose(list(enumerate(weights.tolist())))

    def _choose(self, options: list[tuple[int, float]]) -> int:
        possible = [option for option in options if option[1] > 0.0]
        depth = len(self.taken)
        choice = 0
        if depth < len(self._replay):
            choice = self._replay[depth]
            if possible != self._before[depth]:
                raise RuntimeError(
                    "run is not deterministic: with the same random outcomes it asked "
                    "for another random choice; keep no state between calls of run"
                )
        self.taken.append(choice)
        self.options.append(possible)
        outcome, probability = possible[choice]
        self.probability *= probability
        return outcome


def exact_distribution(
    run: Callable[[RandomSource], Outcome], *, max_paths: int = 5_000_000
) -> dict[Outcome, float]:
    """The exact distribution of what ``run(rng)`` returns, by following every path.

    ``run`` is called once for each sequence of random outcomes that has probability
    above 0. It must draw from ``rng`` alone, keep no state between calls, and return
    something hashable (a tuple of tokens, say).

    Returns a dict from outcome to probability; the probabilities sum to 1 up to
    rounding. Raises TypeError for an outcome that is not hashable, RuntimeError where
    more than ``max_paths`` paths would be needed or ``run`` is not deterministic.

    >>> exact_distribution(lambda rng: rng.bernoulli(0.25) + rng.bernoulli(0.5))
    {2: 0.125, 1: 0.5, 0: 0.375}
    """
    parts: dict[Outcome, list[float]] = {}
    choices: list[int] = []
    path: _Path | None = None
    for _ in range(max_paths):
        path = _Path(choices, path)
        outcome = run(path)
        if len(path.taken) < len(choices):
            raise RuntimeError(
                "run is not deterministic: with the same random outcomes it asked for "
                "fewer random choices; keep no state between calls of run"
            )
        try:
            parts.setdefault(outcome, []).append(path.probability)
        except TypeError:
            raise TypeError(
                "run must return something hashable, such as a tuple of tokens, "
                f"got {type(outcome).__name__}"
            ) from None
        if len(parts[outcome]) > 4096:  # keep memory flat, and the sum accurate
            parts[outcome] = [math.fsum(parts[outcome])]
        choices = _next_choices(path)
        if not choices:
            return {outcome: math.fsum(p) for outcome, p in parts.items()}
    raise RuntimeError(f"run has more than max_paths={max_paths} paths")


def _next_choices(path: _Path) -> list[int]:
    """The next path in depth-first order; empty when all have been followed."""
    choices = path.taken
    while choices and choices[-1] + 1 == len(path.options[len(choices) - 1]):
        choices = choices[:-1]
    return [*choices[:-1], choices[-1] + 1] if choices else []


def _checked_probability(p: float) -> float:
    if not 0.0 <= p <= 1.0:  # also refuses NaN
        raise ValueError(f"p must be a probability, 0 <= p <= 1, got {p}")
    return float(p)


def _checked_weights(distribution: ArrayLike) -> NDArray[np.float64]:
    weights = np.asarray(distribution, dtype=np.float64)
    if weights.ndim != 1 or weights.size == 0:
        raise ValueError(
            f"distribution must have shape (V,) with V >= 1, got shape {weights.shape}"
        )
    if not weights.min() >= 0.0:
        raise ValueError("distribution must have no negative and no NaN entry")
    return weights


def _check_total(total: float, distribution: ArrayLike) -> None:
    exact = getattr(distribution, "dtype", _DOUBLE) == _DOUBLE
    if not abs(total - 1.0) <= (1e-6 if exact else 1e-2):
        raise ValueError(f"distribution must sum to 1, got {total}")
