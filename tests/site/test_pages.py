"""Every page in a real browser, with all other servers out of reach."""

from __future__ import annotations

import pytest
from site_kit import NARROW, Visit

pytestmark = pytest.mark.browser


def test_page_asks_no_other_server(visit: Visit) -> None:
    assert visit.foreign == [], "not self-contained; try `make vendor`, `make html`"


def test_page_misses_no_file(visit: Visit) -> None:
    assert visit.missing == []


def test_page_reports_no_error(visit: Visit) -> None:
    assert visit.errors == []


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
            const article = document.querySelector('article, #main-content')
                .cloneNode(true);
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
    visit.look(NARROW)
    wide = visit.page.evaluate(
        """() => {
            const limit = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= limit) return [];
            return [document.documentElement.scrollWidth,
                ...[...document.querySelectorAll('article *')]
                .filter((e) => e.getBoundingClientRect().right > limit + 1)
                .slice(0, 3).map((e) => e.outerHTML.slice(0, 120))];
        }"""
    )
    assert wide == []


def test_page_turns_dark(visit: Visit) -> None:
    visit.look(scheme="dark")
    text, ground = visit.page.evaluate(COLOURS)
    assert brightness(text) > 160
    assert brightness(ground) < 60


# Of the text and the ground behind it.
COLOURS = """() => {
    const body = getComputedStyle(document.body);
    return [body.color, body.backgroundColor];
}"""


def brightness(colour: str) -> float:
    """Mean of red, green and blue of a CSS `rgb(…)`."""
    channels = colour[colour.index("(") + 1 : -1].split(",")[:3]
    return sum(float(channel) for channel in channels) / 3


def test_page_can_be_printed(visit: Visit) -> None:
    """Dark letters, the text alone, all of it, and no control that nobody can move."""
    visit.look(scheme="dark", media="print")
    page = visit.page
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    try:
        assert brightness(page.evaluate(COLOURS)[0]) < 60
        shown, cut = page.evaluate(
            """() => {
                const seen = (e) => e.checkVisibility() && e.getClientRects().length;
                return [
                    [...document.querySelectorAll(
                        'input, button, .bd-sidebar, .bd-header-article, '
                        + '.prev-next-footer, .headerlink, .specdec-note')]
                        .filter(seen).map((e) => e.outerHTML.slice(0, 80)),
                    [...document.querySelectorAll('article pre, article .output')]
                        .filter((e) => seen(e) && (e.scrollWidth > e.clientWidth + 1
                            || e.scrollHeight > e.clientHeight + 1)
                            && getComputedStyle(e).overflowX !== 'visible')
                        .map((e) => e.textContent.slice(0, 80)),
                ];
            }"""
        )
        assert (shown, cut) == ([], [])
    finally:
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_sliders_move_by_keyboard(visit: Visit) -> None:
    page = visit.page
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
    solutions = visit.page.locator("article .solution.dropdown")
    for solution in solutions.all():
        parts = solution.locator(":scope > :not(.admonition-title)").all()
        assert parts
        assert not any(part.is_visible() for part in parts)
        solution.locator("button.toggle-button").click()
        assert all(part.is_visible() for part in parts)
    assert visit.errors == []
