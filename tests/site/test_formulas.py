"""Every formula of the book, read strictly by KaTeX.

MathJax, which draws them, passes over much that is wrong. The formulas are those that
it found on each page: in the text, in captions, in numbered displays and in widgets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from site_kit import Visit, served

pytestmark = pytest.mark.browser

SCRIPT = Path(__file__).parents[1] / "vendor" / "katex" / "katex.min.js"
PAGE = "book/notation.html"
# Also what is marked as a formula, but was not found to be one.
FORMULAS = """() => [
    ...[...(window.MathJax?.startup?.document?.math ?? [])]
        .map(({ math, display }) => [math, Boolean(display)]),
    ...[...document.querySelectorAll("article .math")]
        .filter((e) => !e.querySelector("mjx-container"))
        .map((e) => [e.textContent, false]),
]"""
REFUSED = """formulas => formulas.flatMap(([math, display]) => {
    try {
        katex.renderToString(math, {
            displayMode: display, throwOnError: true, strict: "error", trust: false,
        });
        return [];
    } catch (error) {
        return [`${math}  --  ${error.message}`];
    }
})"""


@cache
def katex() -> str:
    if not SCRIPT.exists():
        pytest.fail("KaTeX is missing: python tools/vendor.py --checks", pytrace=False)
    return SCRIPT.read_text(encoding="utf-8")


def formulas(page: Any) -> list[list[Any]]:
    """The formulas of a page as they are typed, and whether each is a display."""
    return list(page.evaluate(FORMULAS))


def refused(page: Any, typed: list[list[Any]]) -> list[str]:
    """Those that KaTeX does not take, and why."""
    if not page.evaluate("Boolean(window.katex)"):
        page.evaluate(katex())
    return list(page.evaluate(REFUSED, typed))


def test_every_formula_is_right(visit: Visit, tell: Callable[[str], None]) -> None:
    typed = formulas(visit.page)
    places = visit.page.locator("article .math").count()
    assert len(typed) >= places
    tell(f"formulas read strictly: {len(typed):4} on {visit.name}")
    assert refused(visit.page, typed) == []


@pytest.mark.parametrize(
    "broken",
    (
        r"\frac{1}{2",  # a brace is missing
        r"\nosuchcommand{x}",
        r"\left( x",  # no \right
        r"x^2^3",
        r"\begin{aligned} a &= b",
        "Ж + 1",  # a letter that is not TeX
        "x_",
        "100 % of it",
    ),
)
def test_a_broken_formula_is_noticed(
    open_page: Callable[..., Visit], site: Path, tmp_path: Path, broken: str
) -> None:
    """Planted into a page: it is found there, and refused, and it alone."""
    html = (site / PAGE).read_text(encoding="utf-8")
    planted = html.replace(r"\(V\)", rf"\({broken}\)", 1)
    assert planted != html
    for part in site.iterdir():
        if part.name != "book":
            (tmp_path / part.name).symlink_to(part)
    (tmp_path / "book").mkdir()
    (tmp_path / PAGE).write_text(planted, encoding="utf-8")
    server = served(tmp_path)
    visit = open_page(PAGE, address=next(server))
    found = refused(visit.page, formulas(visit.page))
    assert len(found) == 1
    assert broken in found[0]
    visit.page.close()
    next(server, None)
