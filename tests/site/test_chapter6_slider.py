"""The threshold slider of chapter 6, on the built page, where no Python runs."""

from __future__ import annotations

import pytest
from site_kit import Visit, Widget, three_decimals

pytestmark = pytest.mark.browser

PAGE = "notebooks/06_rules_that_look_right.html"
LABEL = "Threshold τ"
START = "0.5"

# Threshold: the law under "accept if p > tau, else the argmax", then the law under
# "accept if p/q > tau, else sample p", by hand for p = (.5, .3, .2), q = (.2, .5, .3).
DRAFT, BEST = [0.2, 0.5, 0.3], [1.0, 0.0, 0.0]
LAWS = {
    "0.05": (DRAFT, DRAFT),
    "0.1": (DRAFT, DRAFT),
    "0.25": ([0.5, 0.5, 0.0], DRAFT),
    "0.4": (BEST, DRAFT),
    "0.5": (BEST, DRAFT),
    "0.62": (BEST, [0.45, 0.15, 0.4]),
    "0.8": (BEST, [0.6, 0.24, 0.16]),
    "1": (BEST, [0.6, 0.24, 0.16]),
    "1.5": (BEST, [0.6, 0.24, 0.16]),
    "2.5": (BEST, [0.5, 0.3, 0.2]),
}
TARGET = [0.5, 0.3, 0.2]


def expected(threshold: str) -> list[float]:
    """Each law, followed by its total variation to the target."""
    numbers = []
    for law in LAWS[threshold]:
        away = sum(abs(a - b) for a, b in zip(law, TARGET, strict=True))
        numbers += [*law, away / 2]
    return numbers


@pytest.fixture
def slider(fresh: Visit) -> Widget:
    return Widget(fresh.page, {LABEL: tuple(LAWS)})


def check(caption: str, threshold: str) -> None:
    assert caption.startswith(f"Threshold {threshold}. ")
    wanted = pytest.approx(expected(threshold), abs=5.1e-4)
    assert three_decimals(caption) == wanted


def test_it_starts_where_it_was_told(slider: Widget) -> None:
    check(slider.caption(), START)


def test_arrow_keys_walk_through_all_thresholds(slider: Widget) -> None:
    for (threshold,), caption in slider.everywhere():
        check(caption, threshold)


def test_it_fits_a_telephone(telephone: Visit) -> None:
    Widget(telephone.page, {LABEL: tuple(LAWS)}).check_fits()
