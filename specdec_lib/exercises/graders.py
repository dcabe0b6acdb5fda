"""Graders for any exercise: numbers, functions, and functions that draw.

A grader's ``grade(answer, name)`` raises :class:`Wrong` with what is not right.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from . import marking
from .following import Followed, Law, distance, follow, same
from .marking import Wrong, call, called, check_callable, show

Floats = NDArray[np.float64]
# The sentence that mends a wrong answer, and such an answer, or its value.
Faults = Mapping[str, Any]


# Numbers and sets, worked out by pencil


@dataclass(frozen=True)
class Numbers:
    """A number, or a few in order. Rounded ones pass if three decimals are right."""

    truth: float | tuple[float, ...]
    faults: Faults = field(default_factory=dict)

    def grade(self, answer: Any, name: str) -> None:
        truth = self.truth
        if isinstance(truth, tuple):
            given = tuple(marking.as_numbers(answer, name, len(truth)))
        else:
            given, truth = (marking.as_number(answer, name),), (truth,)
        if _near(given, truth):
            return
        for why, value in self.faults.items():
            if _near(given, value if isinstance(value, tuple) else (value,)):
                raise Wrong(why)
        off = [i for i in range(len(truth)) if not _near(given[i : i + 1], truth[i:])]
        which = (
            "" if len(truth) == 1 else f" in place {', '.join(map(str, off))} (from 0)"
        )
        raise Wrong(f"{show(given if len(truth) > 1 else given[0])} is off{which}.")


def _near(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(abs(a - b) <= 5.1e-4 for a, b in zip(one, other, strict=False))


@dataclass(frozen=True)
class Texts:
    """A set of strings, in any order and any collection."""

    truth: frozenset[str]
    faults: Faults

    def grade(self, answer: Any, name: str) -> None:
        if isinstance(answer, str):
            answer = answer.split()
        try:
            given = frozenset(map(str, answer))
        except TypeError:
            raise Wrong(f"{name} is {marking.brief(answer)}, not a list") from None
        for why, value in self.faults.items():
            if given == value:
                raise Wrong(why)
        for text in sorted(given - self.truth):
            raise Wrong(f"{show(text)} does not belong to them.")
        if missing := len(self.truth - given):
            raise Wrong(f"all that you have are right; {missing} of them are missing.")


# Functions without chance


@dataclass(frozen=True)
class Function:
    """A function of ``takes``, tried on ``cases`` and compared with ``truth``.

    read
        makes the answer's value comparable: ``read(value, what, truth)``.
    """

    takes: str
    cases: Sequence[Any]
    truth: Callable[..., Any]
    faults: Faults
    read: Callable[[Any, str, Any], Any]

    def grade(self, answer: Any, name: str) -> None:
        check_callable(answer, name, self.takes)
        values = []
        for case in self.cases:
            what, truth = call(name, case), self.truth(*case)
            values.append(self.read(called(answer, name, case), what, truth))
        for case, value in zip(self.cases, values, strict=True):
            truth = self.truth(*case)
            if not _equal(value, truth):
                raise Wrong(
                    f"{call(name, case)} gives {show(value)}, should be {show(truth)}"
                    f"{self._fault(values)}."
                )

    def _fault(self, values: list[Any]) -> str:
        for why, wrong in self.faults.items():
            with np.errstate(all="ignore"):
                theirs = [wrong(*map(_copy, case)) for case in self.cases]
            if all(map(_equal, values, theirs)):
                return f": {why}"
        return ""


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, (list, np.ndarray)) else value


def _equal(value: Any, truth: Any) -> bool:
    if isinstance(truth, (float, np.ndarray)):
        return np.shape(value) == np.shape(truth) and bool(
            np.allclose(value, truth, rtol=1e-9, atol=1e-12)
        )
    return bool(value == truth)


def number(value: Any, what: str, truth: Any) -> float:
    return marking.as_number(value, what)


def row(value: Any, what: str, truth: Any) -> Floats:
    return marking.as_numbers(value, what, len(truth))


def tokens(value: Any, what: str, truth: Any) -> list[int]:
    return list(marking.as_tokens(() if value is None else value, what))


def clipped(row: Floats) -> Floats:
    return np.maximum(row, 0)


def scaled(row: Floats) -> Floats:
    total = row.sum()
    return row / total if total > 0 else row


def residual(p: Floats, q: Floats) -> Floats:
    return scaled(clipped(p - q))


def rows(*rows: str) -> Floats:
    """Distributions from whole numbers: "1 2 3" is (1, 2, 3) / 6."""
    return np.array([scaled(np.array(row.split(), dtype=float)) for row in rows])


# The acceptance test of one token


class Accepts:
    """``accepts(u, p, q)``: whether a guess is kept that the target gives p, the draft
    q. Any set of u will do that has the measure min(1, p / q)."""

    takes = "u, p, q"
    cells = 20
    # q / p too has its thresholds on the grid, where it is below 1.
    cases = ((0.2, 0.5), (0.3, 0.5), (0.5, 0.2), (0.4, 0.4), (0.1, 0.4), (0.6, 0.3))
    faults: ClassVar[Faults] = {
        "every guess is kept, so the draft writes the text": lambda u, p, q: True,
        "no guess is ever kept": lambda u, p, q: False,
        "it looks as if p and q were swapped; p stands above": lambda u, p, q: (
            u < q / p
        ),
        "it looks as if kept and refused were swapped": lambda u, p, q: u >= p / q,
        "it looks as if u were not used: a guess with p < q is not always "
        "refused, but kept with probability p / q": lambda u, p, q: p >= q,
        "it looks as if q were not used: the draft offers this guess only with "
        "probability q, so it may be kept more often than p": lambda u, p, q: u < p,
    }

    def grade(self, answer: Any, name: str) -> None:
        check_callable(answer, name, self.takes)

        def kept(u: float, p: float, q: float) -> bool:
            what = call(name, (u, p, q))
            return marking.as_truth(called(answer, name, (u, p, q)), what)

        shares = [self._share(kept, *case) for case in self.cases]
        for (p, q), share in zip(self.cases, shares, strict=True):
            truth = min(1, p / q)
            if abs(share - truth) > 1e-9:
                raise Wrong(
                    f"at p = {show(p)}, q = {show(q)} a guess is kept with probability "
                    f"{show(share)}, should be {show(truth)}{self._fault(shares)}."
                )
        if kept(0.0, 0.0, 0.5):
            raise Wrong(
                f"{name}(0, 0, 0.5) keeps a token that the target never writes: u may "
                "be exactly 0, so ask for u < p / q, and not for <=."
            )

    def _share(self, kept: Callable[..., Any], p: float, q: float) -> float:
        us = (np.arange(self.cells) + 0.5) / self.cells
        return sum(bool(kept(float(u), p, q)) for u in us) / self.cells

    def _fault(self, shares: list[float]) -> str:
        for why, wrong in self.faults.items():
            if np.allclose([self._share(wrong, *case) for case in self.cases], shares):
                return f": {why}"
        return ""


def worst(truth: Law, found: Law) -> Any:
    """The outcome whose probabilities differ most."""
    return max(
        sorted({*truth, *found}, key=repr),
        key=lambda x: round(abs(truth.get(x, 0) - found.get(x, 0)), 9),
    )


# Other answers that draw


@dataclass(frozen=True)
class Draws:
    """A function that draws: the law of ``read`` of what it returns, case by case.

    cases
        arguments, without the ``rng`` that comes last, and the truth for them.
    amount
        what else must hold of the law of a case, or a Wrong.
    """

    takes: str
    cases: tuple[tuple[tuple[Any, ...], Law], ...]
    faults: Faults
    read: Callable[[Any, str], Hashable]
    cells: int
    watch: Callable[[Any], Hashable] = lambda outcome: outcome
    amount: Callable[[Law], None] = lambda both: None

    def grade(self, answer: Any, name: str) -> None:
        check_callable(answer, name, self.takes)
        found = [
            self._follow(partial(called, answer, name), case, call(name, case))
            for case, _ in self.cases
        ]
        seen = [each.after(self.watch) for each in found]
        for (case, truth), each in zip(self.cases, seen, strict=True):
            if same(each.law, truth):
                continue
            why = self._fault([each.law for each in seen])
            if why or not each.agrees_off_the_grid(truth):
                x = worst(truth, each.law)
                raise Wrong(
                    f"{_at(self.takes, case)}{show(x)} comes with "
                    f"{show(each.law.get(x, 0.0))}, should be "
                    f"{show(truth.get(x, 0.0))}{why}."
                )
        for each in found:
            self.amount(each.law)

    def _follow(
        self, answer: Callable[..., Any], case: tuple[Any, ...], what: str
    ) -> Followed:
        return follow(
            lambda acts, rng: self.read(answer([*case, rng]), what), self.cells
        )

    def _fault(self, laws: list[Law]) -> str:
        for why, wrong in self.faults.items():
            theirs = [
                self._follow(lambda given, w=wrong: w(*given), case, "")
                for case, _ in self.cases
            ]
            if all(
                same(a, b.after(self.watch).law)
                for a, b in zip(laws, theirs, strict=True)
            ):
                return f": {why}"
        return ""


def _at(takes: str, case: tuple[Any, ...]) -> str:
    names = takes.split(", ")
    given = ", ".join(f"{n} = {show(v)}" for n, v in zip(names, case, strict=False))
    return f"at {given} " if given else ""


def law_of(row: Floats) -> Law:
    return {x: float(w) for x, w in enumerate(row) if w > 0}


def token(value: Any, what: str) -> int:
    return marking.as_token(value, f"what {what} returns")


CLOCK = {
    "tick": {"tock": 0.75, "ding": 0.25},
    "tock": {"tick": 2 / 3, "ding": 1 / 3},
    "ding": {"tick": 1.0},
}


class TwoWords:
    """The law of two words, as a dict or as a function of ``rng`` that draws them."""

    truth: ClassVar[Law] = {
        ("tock", "tick"): 1 / 2,
        ("tock", "ding"): 1 / 4,
        ("ding", "tick"): 1 / 4,
    }
    faults: ClassVar[Faults] = {
        "the second word were drawn after `tick` again; it comes after the first": {
            (a, b): v * w for (a, v), (b, w) in product(CLOCK["tick"].items(), repeat=2)
        },
        "the first word were certain; multiply along the path": {
            (a, b): w for a in CLOCK["tick"] for b, w in CLOCK[a].items()
        },
    }

    def grade(self, answer: Any, name: str) -> None:
        if callable(answer):
            check_callable(answer, name, "rng")
            found: Law = follow(
                lambda acts, rng: self._words(called(answer, name, [rng])), 12
            ).law
        elif isinstance(answer, Mapping):
            found = {
                self._words(words): marking.as_number(p, show(words))
                for words, p in answer.items()
            }
        else:
            raise Wrong(
                f"this asks for a dict from two words to their probability, or for a "
                f"function of `rng` that draws them, not {marking.brief(answer)}"
            )
        if distance(found, self.truth) > 2e-3:
            x = worst(self.truth, found)
            why = [
                w for w, wrong in self.faults.items() if distance(found, wrong) < 2e-3
            ]
            raise Wrong(
                f"{show(' '.join(x))} has {show(found.get(x, 0.0))}, should be "
                f"{show(self.truth.get(x, 0.0))}"
                f"{': it looks as if ' + why[0] if why else ''}."
            )

    def _words(self, value: Any) -> tuple[str, ...]:
        words = tuple(value.split() if isinstance(value, str) else map(str, value))
        if len(words) != 2 or not set(words) <= set(CLOCK):
            raise Wrong(f"{marking.brief(value)} is not two words of the clock")
        return words
