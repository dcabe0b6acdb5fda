"""Every page in a real browser, with all other servers out of reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from site_kit import NARROW, WIDE, Visit

pytestmark = pytest.mark.browser


def test_page_asks_no_other_server(visit: Visit) -> None:
    assert visit.foreign == [], "not self-contained; try `make vendor`, `make html`"


def test_page_misses_no_file(visit: Visit) -> None:
    assert visit.missing == []


def test_page_reports_no_error(visit: Visit) -> None:
    assert visit.errors == []


def test_page_has_one_title_and_a_language(visit: Visit) -> None:
    found = visit.page.evaluate(
        """() => [document.querySelectorAll('article h1').length,
                  document.documentElement.lang, document.title]"""
    )
    assert found[:2] == [1, "en"]
    assert "Speculative Decoding, Built from Scratch" in found[2]


def test_formulas_are_drawn(visit: Visit) -> None:
    broken = visit.page.evaluate(
        """() => [
            ...[...document.querySelectorAll('mjx-merror')].map(
                (e) => e.getAttribute('data-mjx-error') || e.textContent),
            ...[...document.querySelectorAll('article .math')].filter(
                (e) => !e.querySelector('mjx-container')).map((e) => e.textContent),
        ]"""
    )
    assert broken == []


def test_no_markup_is_left_in_the_text(visit: Visit) -> None:
    """A role, a directive or a formula that was not understood shows as text."""
    text = visit.page.evaluate(
        """() => {
            const article = document.querySelector('article').cloneNode(true);
            for (const code of article.querySelectorAll(
                'pre, code, mjx-container, script, style, .jupyter-widgets'))
                code.remove();
            return article.textContent;
        }"""
    )
    for mark in ("{cite", "{numref", "{prf:", "{eq}", "{ref}", ":::", "```", "$$"):
        assert mark not in text


def test_pictures_have_alt_text(visit: Visit) -> None:
    bare = visit.page.evaluate(
        """() => [...document.querySelectorAll('article img')]
            .filter((i) => !(i.alt || '').trim() || /[0-9a-f]{20}/.test(i.alt))
            .map((i) => i.src)"""
    )
    assert bare == []
    bare = visit.page.evaluate(
        """() => [...document.querySelectorAll('article [role="img"]')]
            .filter((i) => !(i.getAttribute('aria-label') || '').trim()).length"""
    )
    assert bare == 0


def test_controls_have_names(visit: Visit) -> None:
    """A slider or a menu says what it changes to those who cannot see it."""
    unnamed = visit.page.evaluate(
        """() => [...document.querySelectorAll(
                'article input:not([type=hidden]), article select, ' +
                'article [role=slider]')]
            .filter((e) => !e.closest('.widget-readout'))
            .filter((e) => !(e.getAttribute('aria-label') || e.title ||
                (e.labels && e.labels.length && e.labels[0].textContent.trim()) ||
                e.getAttribute('aria-labelledby')))
            .map((e) => e.outerHTML.slice(0, 120))"""
    )
    assert unnamed == []


def test_page_fits_a_narrow_screen(visit: Visit) -> None:
    page = visit.page
    page.set_viewport_size(NARROW)
    try:
        page.wait_for_timeout(100)
        wide = page.evaluate(
            """() => {
                const limit = document.documentElement.clientWidth;
                if (document.documentElement.scrollWidth <= limit) return [];
                return [...document.querySelectorAll('article *')]
                    .filter((e) => e.getBoundingClientRect().right > limit + 1)
                    .slice(0, 3).map((e) => e.outerHTML.slice(0, 120));
            }"""
        )
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= NARROW["width"], wide
    finally:
        page.set_viewport_size(WIDE)


def test_page_turns_dark(visit: Visit) -> None:
    page = visit.page
    page.emulate_media(color_scheme="dark")
    try:
        page.wait_for_timeout(400)
        theme, text, ground = page.evaluate(
            """() => {
                const body = getComputedStyle(document.body);
                return [document.documentElement.dataset.theme, body.color,
                        body.backgroundColor];
            }"""
        )
        assert theme == "dark"
        assert brightness(text) > 160
        assert brightness(ground) < 60
    finally:
        page.emulate_media(color_scheme="light")


def brightness(colour: str) -> float:
    """Mean of red, green and blue of a CSS `rgb(…)`."""
    channels = colour[colour.index("(") + 1 : -1].split(",")[:3]
    return sum(float(channel) for channel in channels) / 3


def test_sliders_move_by_keyboard(visit: Visit) -> None:
    page = visit.page
    handles = page.locator("article .noUi-handle[role=slider]")
    for index in range(handles.count()):
        handle = handles.nth(index)
        if not handle.is_visible():
            continue
        before = handle.get_attribute("aria-valuenow")
        last = handle.get_attribute("aria-valuemax") == before
        handle.focus()
        page.keyboard.press("ArrowLeft" if last else "ArrowRight")
        assert handle.get_attribute("aria-valuenow") != before
    ranges = page.locator("article input[type=range]")
    for index in range(ranges.count()):
        control = ranges.nth(index)
        if not control.is_visible() or control.is_disabled():
            continue
        before = control.input_value()
        last = before == control.get_attribute("max")
        control.focus()
        page.keyboard.press("ArrowLeft" if last else "ArrowRight")
        assert control.input_value() != before
    assert visit.errors == []


def test_hidden_solutions_open(visit: Visit) -> None:
    page = visit.page
    buttons = page.locator("article .solution .toggle-button, article details.toggle")
    for index in range(min(buttons.count(), 3)):
        buttons.nth(index).locator("summary, button").or_(
            buttons.nth(index)
        ).first.click()
    assert visit.errors == []


def test_search_finds_a_chapter(open_page: Callable[..., Visit]) -> None:
    visit = open_page("search.html?q=counting")
    visit.page.wait_for_selector("#search-results li", timeout=10_000)
    hits: list[Any] = visit.page.locator("#search-results li").all_text_contents()
    assert any("Counting words" in hit for hit in hits)
    assert visit.foreign == []
