"""From logits to the distribution that is sampled: processors, temperature, filters.

The target and the draft each have a :class:`Sampler`. What speculative decoding
reproduces exactly is the distribution *after* the target's sampler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Processor = Callable[[Floats, Sequence[int]], Floats]


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is one real number, Python's or NumPy's, and not a bool."""
    kinds = (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, bool)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether ``value`` is an integer, Python's or NumPy's, and not a bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def as_numbers(values: ArrayLike, name: str) -> NDArray[Any]:
    """``values`` as an array of real numbers, of any type.

    TypeError for what are none (complex ones would lose half of themselves), and for
    rows that are not of one length; the message calls them ``name``.
    """
    try:
        given = np.asarray(values)
        if given.dtype.kind == "O":
            given = given.astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"{name} must be rows of real numbers, got {type(values).__name__}"
        ) from None
    if given.dtype.kind in "cSUVmM":
        raise TypeError(f"{name} must be real numbers, got {given.dtype}")
    return given


@dataclass(frozen=True)
class Sampler:
    """Turns logits into probabilities.

    In this order: ``processors``, ``temperature``, ``top_k``, ``top_p``, renormalise.

    temperature
        Logits are divided by it, >= 0. At 0 all probability goes to the largest logit,
        to the lowest token id among equals.
    top_k
        Keep exactly this many most probable tokens (the lowest ids among equals), >= 1.
    top_p
        Keep the smallest set of most probable tokens whose probabilities sum to at
        least this much, 0 < top_p <= 1; the token that crosses it is kept
        (Holtzman et al. 2020, section 3.1).
    processors
        Functions ``processor(logits, prefix) -> logits`` on one (V,) row, applied in
        turn; ``prefix`` is everything before the token that the row is for.

    >>> Sampler(top_p=0.8)(np.log([0.6, 0.3, 0.1])).round(3).tolist()
    [0.667, 0.333, 0.0]
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    processors: tuple[Processor, ...] = ()

    def __post_init__(self) -> None:
        if not (is_number(self.temperature) and 0 <= self.temperature < np.inf):
            raise ValueError(
                f"temperature must be a finite number >= 0, got {self.temperature!r}"
            )
        if self.top_k is not None and not (is_integer(self.top_k) and self.top_k >= 1):
            raise ValueError(
                f"top_k must be an integer >= 1 or None, got {self.top_k!r}"
            )
        if self.top_p is not None and not (
            is_number(self.top_p) and 0 < self.top_p <= 1
        ):
            raise ValueError(f"top_p must be in (0, 1] or None, got {self.top_p!r}")
        if not isinstance(self.processors, (tuple, list)):
            raise TypeError(
                f"processors must be a tuple of processors, got {self.processors!r}"
            )
        object.__setattr__(self, "processors", tuple(self.processors))
        for processor in self.processors:
            if not callable(processor):
                raise TypeError(f"processors must be callable, got {processor!r}")

    def __call__(
        self,
        logits: ArrayLike,
        prefix: Sequence[int] = (),
        drafted: Sequence[int] = (),
    ) -> Floats:
        """Probabilities for ``logits``, of the same shape (V,) or (n, V), in float64.

        Row i of an (n, V) array is for the token after ``prefix + drafted[:i]``; only
        processors look at these. A logit may be -inf (impossible), not NaN or +inf,
        and not -inf for all tokens: ValueError. TypeError for what are no real numbers.
        """
        given = as_numbers(logits, "logits")
        if given.ndim not in (1, 2) or given.shape[-1] == 0:
            raise ValueError(
                f"logits must have shape (V,) or (n, V) with V >= 1, got {given.shape}"
            )
        rows = given if given.ndim == 2 else given[None]
        # In one order in memory: sums are rounded by it.
        rows = np.asarray(rows, dtype=np.float64, order="C")
        if self.processors:
            rows = self._processed(rows, prefix, drafted)
        peak = rows.max(axis=1, keepdims=True) if len(rows) else rows[:, :1]
        # max propagates NaN; on a few rows Python is faster than NumPy.
        peaks = peak[:, 0].tolist()
        if not all(map(math.isfinite, peaks)):
            raise ValueError(
                "logits must be finite or -inf, and not -inf for every token; "
                "got NaN, +inf or a row of -inf"
            )
        if self.temperature == 0:
            probabilities = np.zeros_like(rows)
            probabilities[np.arange(len(rows)), rows.argmax(axis=1)] = 1.0
        else:
            probabilities = self._softmax(rows, peak, max(peaks, default=0.0))
            for row in probabilities if self.top_k or self.top_p else ():
                self._filter(row)
        return probabilities if given.ndim == 2 else probabilities[0]

    def _processed(
        self, rows: Floats, prefix: Sequence[int], drafted: Sequence[int]
    ) -> Floats:
        if len(drafted) < len(rows) - 1:
            raise ValueError(
                f"drafted must have at least {len(rows) - 1} tokens for "
                f"{len(rows)} rows of logits, got {len(drafted)}"
            )
        sequence = [*prefix, *drafted]
        start = len(sequence) - len(drafted)
        processed = rows.copy()
        for i, row in enumerate(processed):
            for processor in self.processors:
                result = np.asarray(processor(row.copy(), sequence[: start + i]))
                if result.shape != row.shape:
                    raise ValueError(
                        f"processors must keep the shape {row.shape}, {processor!r} "
                        f"returned {result.shape}"
                    )
                row[:] = result
        return processed

    def _softmax(self, rows: Floats, peak: Floats, highest: float) -> Floats:
        # Differences are <= 0, so no temperature can overflow exp. Too far below the
        # peak, or too cold, they become -inf and the weight 0, which is right.
        if self.temperature == 1 and highest < 1e290:
            weights = rows - peak
        else:
            with np.errstate(over="ignore"):
                weights = (rows - peak) / self.temperature
        np.exp(weights, out=weights)
        weights *= 1.0 / np.add.reduce(weights, axis=1, keepdims=True)
        return weights

    def _filter(self, probabilities: Floats) -> None:
        """Apply top-k, then top-p, to one row in place."""
        if self.top_k is not None and self.top_k < len(probabilities):
            threshold = np.partition(probabilities, -self.top_k)[-self.top_k]
            above = probabilities > threshold
            ties = np.flatnonzero(probabilities == threshold)
            above[ties[: self.top_k - np.count_nonzero(above)]] = True
            probabilities[~above] = 0.0
            probabilities /= probabilities.sum()
        if self.top_p is not None and self.top_p < 1:
            order = np.argsort(-probabilities, kind="stable")
            # Drop a token when those before it already reach top_p. The small slack
            # forgives the rounding of a sum such as .6 + .3 against top_p = .9.
            before = np.cumsum(probabilities[order])[:-1]
            enough = before >= self.top_p - 1e-12
            probabilities[order[1:][enough]] = 0.0
            probabilities /= probabilities.sum()


DEFAULT_SAMPLER = Sampler()


@dataclass(frozen=True)
class RepetitionPenalty:
    """Processor that makes tokens of the prefix less likely (Keskar et al. 2019).

    The logit of a seen token is divided by ``penalty`` where it is positive, and
    multiplied by it where it is negative. ``penalty`` > 0; above 1 it discourages.
    """

    penalty: float

    def __post_init__(self) -> None:
        if not (is_number(self.penalty) and 0 < self.penalty < np.inf):
            raise ValueError(
                f"penalty must be a finite number > 0, got {self.penalty!r}"
            )

    def __call__(self, logits: Floats, prefix: Sequence[int]) -> Floats:
        seen = np.unique(np.asarray(prefix, dtype=np.int64))
        if len(seen) and not (seen[0] >= 0 and seen[-1] < len(logits)):
            raise ValueError(
                f"prefix must be inside 0 .. {len(logits) - 1}, "
                f"got {seen[0] if seen[0] < 0 else seen[-1]}"
            )
        chosen = logits[seen]
        result = logits.copy()
        result[seen] = np.where(
            chosen > 0, chosen / self.penalty, chosen * self.penalty
        )
        return result


@dataclass(frozen=True, init=False)
class LogitBias:
    """Processor that adds a constant to the logits of chosen tokens.

    ``biases`` map tokens to what is added: -inf (never emit) or a number, not NaN.
    """

    biases: tuple[tuple[int, float], ...]

    def __init__(self, biases: Mapping[int, float]) -> None:
        if not isinstance(biases, Mapping):
            raise TypeError(f"biases must map token ids to numbers, got {biases!r}")
        for token, bias in biases.items():
            if not (is_integer(token) and token >= 0):
                raise ValueError(f"biases must map token ids >= 0, got {token!r}")
            if not (is_number(bias) and bias < np.inf):
                raise ValueError(f"bias of token {token} must be < inf, got {bias!r}")
        object.__setattr__(self, "biases", tuple(sorted(biases.items())))

    def __call__(self, logits: Floats, prefix: Sequence[int]) -> Floats:
        result = logits.copy()
        for token, bias in self.biases:
            if token >= len(result):
                raise ValueError(
                    f"biases has token {token}, outside a vocabulary of {len(result)}"
                )
            result[token] += bias
        return result
