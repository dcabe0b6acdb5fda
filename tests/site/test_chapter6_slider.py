"""The threshold slider of chapter 6, on the built page, where no Python runs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from site_kit import NARROW, Visit

pytestmark = pytest.mark.browser

PAGE = "notebooks/06_rules_that_look_right.html"
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


def shown(visit: Visit, threshold: str) -> list[float]:
    """The numbers of the one visible caption, once it is that of ``threshold``."""
    visit.page.wait_for_function(
        """wanted => [...document.querySelectorAll('.specdec-figure figcaption')]
            .some(c => c.offsetParent && c.innerText.startsWith(wanted))""",
        arg=f"Threshold {threshold}. ",
        timeout=5000,
    )
    figure = visit.page.locator(".specdec-figure:visible")
    assert figure.count() == 1
    text = figure.locator("figcaption").inner_text()
    assert figure.locator("svg").get_attribute("aria-label") == text
    return [float(number) for number in re.findall(r"\d\.\d{3}", text)]


def test_arrow_keys_walk_through_all_thresholds(
    open_page: Callable[..., Visit],
) -> None:
    visit = open_page(PAGE)
    handle = visit.page.get_by_role("slider", name="Threshold τ")
    handle.wait_for()
    assert shown(visit, START) == pytest.approx(expected(START), abs=5.1e-4)
    handle.focus()
    visit.page.keyboard.press("Home")
    for index, threshold in enumerate(LAWS):
        if index:
            visit.page.keyboard.press("ArrowRight")
        wanted = pytest.approx(expected(threshold), abs=5.1e-4)
        assert shown(visit, threshold) == wanted
    visit.page.close()


def test_it_fits_a_telephone(open_page: Callable[..., Visit]) -> None:
    visit = open_page(PAGE, NARROW)
    visit.page.get_by_role("slider", name="Threshold τ").wait_for()
    box = visit.page.locator(".specdec-figure svg:visible").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= NARROW["width"]
    visit.page.close()
