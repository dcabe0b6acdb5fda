"""Tests of the book's formulas: each transcribed by hand, and seen to fail.

    @identity("…", tokens, wrong={"one guess less": fewer})
    def test_tokens(formula): ...

`formula` is what the book says, typed into the test, for `test_tokens` to compare with
something that does not come from it: all outcomes added up, another library, a clock.
`wrong` has formulas that say something else. Each is given to the same test and must
fail in it; so the test is known to notice such a slip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest

Row = tuple[Fraction, ...]


def identity(
    label: str, formula: Any, *, wrong: Mapping[str, Any]
) -> Callable[[Callable[[Any], None]], Callable[..., None]]:
    """Ties a test to ``label``; at least one wrong formula is required."""
    if not wrong:
        raise ValueError(f"{label}: without a wrong formula nobody sees the test fail")

    def tie(check: Callable[[Any], None]) -> Callable[..., None]:
        def test(candidate: Any, right: bool) -> None:
            if right:
                check(candidate)
                return
            with pytest.raises(AssertionError):
                check(candidate)

        test.__name__ = check.__name__
        test.__doc__ = check.__doc__
        test.__module__ = check.__module__
        cases = [pytest.param(formula, True, id="as it stands")]
        cases += [
            pytest.param(other, False, id=f"fails with {slip}")
            for slip, other in wrong.items()
        ]
        mark = pytest.mark.parametrize("candidate, right", cases)
        return pytest.mark.identity(label)(mark(test))

    return tie


def rows(size: int, parts: int) -> list[Row]:
    """All distributions over ``size`` tokens in steps of 1 / ``parts``, zeros too.

    >>> len(rows(3, 4))
    15
    """
    cuts = combinations_with_replacement(range(parts + 1), size - 1)
    return [
        tuple(
            Fraction(high - low, parts)
            for low, high in zip((0, *cut), (*cut, parts), strict=True)
        )
        for cut in cuts
    ]


def random_row(g: np.random.Generator, size: int, parts: int = 12) -> Row:
    """A distribution in steps of 1 / ``parts``, no entry of it zero."""
    cut = sorted(g.choice(np.arange(1, parts), size=size - 1, replace=False).tolist())
    return tuple(
        Fraction(high - low, parts)
        for low, high in zip((0, *cut), (*cut, parts), strict=True)
    )


def random_rows(seed: int, size: int, length: int, parts: int = 12) -> dict:
    """A row for every text of at most ``length`` tokens: a model of all contexts."""
    g = np.random.default_rng(seed)
    return {text: random_row(g, size, parts) for text in texts_upto(size, length)}


def texts(size: int, length: int) -> Iterator[tuple[int, ...]]:
    """All texts of ``length`` tokens."""
    return product(range(size), repeat=length)


def texts_upto(size: int, length: int) -> Iterator[tuple[int, ...]]:
    for n in range(length + 1):
        yield from texts(size, n)


def chance(rows_of: Mapping[tuple[int, ...], Row], text: tuple[int, ...]) -> Fraction:
    """The probability that a model writes ``text``, one token after the other."""
    whole = Fraction(1)
    for i, token in enumerate(text):
        whole *= rows_of[text[:i]][token]
    return whole


def close(a: Any, b: Any, within: float = 1e-12) -> bool:
    """Whether two numbers, or two arrays, differ by no more than ``within``."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    return a.shape == b.shape and bool((np.abs(a - b) <= within).all())
