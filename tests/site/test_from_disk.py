"""The site opened from a disk, by file: addresses, without any server.

What works there: reading, formulas, sliders, search. What browsers forbid there, and
the page does without: excerpts of the pages that a search found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from site_kit import Visit, settle

pytestmark = pytest.mark.browser


def lost(asked: Any) -> list[str]:
    """The address, unless the page had led on before the file was read."""
    return [] if asked.failure == "net::ERR_ABORTED" else [asked.url]


@pytest.fixture
def open_file(browser: Any, site: Path) -> Iterator[Callable[..., Visit]]:
    """Open a page from the disk; what is asked of a network is noted and blocked."""
    context = browser.new_context()

    def open_(name: str, leads_to: str = "") -> Visit:
        page = context.new_page()
        visit = Visit(page, name)
        page.on("pageerror", lambda error: visit.errors.append(str(error)))
        page.on(
            "console",
            lambda said: (
                visit.errors.append(said.text) if said.type == "error" else None
            ),
        )
        page.on("requestfailed", lambda asked: visit.missing.extend(lost(asked)))
        page.goto(f"{site.as_uri()}/{name}")
        if leads_to:
            page.wait_for_url(f"**/{leads_to}")
        settle(page)
        return visit

    def route(route: Any) -> None:
        route.abort()

    context.route("http*://**/*", route)
    yield open_
    context.close()


def test_a_chapter_is_read_and_its_slider_moves(
    open_file: Callable[..., Visit],
) -> None:
    visit = open_file("notebooks/05_exact_sampling.html")
    page = visit.page
    assert page.locator("article .math").count() > 50
    assert page.evaluate(
        """() => [...document.querySelectorAll('article .math')]
            .every((e) => e.querySelector('mjx-container'))
            && document.querySelectorAll('mjx-merror').length === 0"""
    )
    fonts = page.evaluate(
        """() => [...document.fonts].filter((f) => f.status === 'loaded')
            .map((f) => f.family)"""
    )
    assert any("MJX" in font for font in fonts)
    for picture in page.locator("article img").all():
        assert picture.evaluate("image => image.naturalWidth") > 0
    slider = page.get_by_role("slider", name="Temperature T")
    widget = page.locator(".specdec-widget").filter(has=slider)
    caption = widget.locator("figcaption")
    before = caption.inner_text()
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert caption.inner_text() != before
    visit.check_quiet()


def test_the_front_leads_on(open_file: Callable[..., Visit]) -> None:
    visit = open_file("index.html", leads_to="book/welcome.html")
    assert visit.page.locator("article h1").count() == 1
    visit.check_quiet()


def test_search_finds_and_opens(open_file: Callable[..., Visit]) -> None:
    visit = open_file("search.html?q=residual")
    page = visit.page
    page.get_by_role("link", name="Exact sampling").first.click()
    page.wait_for_url("**/05_exact_sampling.html*")
    visit.check_quiet()
