"""Every page can be used by everybody: axe-core's rules, and a few of our own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from axe_kit import findings
from site_kit import NARROW, WIDE, Visit, built_pages, served

pytestmark = pytest.mark.browser

PREFIX = "Speculative Decoding, Built from Scratch"
# Colours of code are the same on any screen: they are looked at on the wide one.
# Formulas are drawn by styles, where axe sees no text; they have the text's colour.
SAME_ON_ALL = ("pre", "mjx-container")


@pytest.mark.parametrize(
    ("viewport", "scheme", "narrowed"),
    (
        pytest.param(WIDE, "light", {}, id="wide-light"),
        pytest.param(WIDE, "dark", {"colours_only": True}, id="wide-dark"),
        pytest.param(
            NARROW,
            "dark",
            {"colours_only": True, "apart": SAME_ON_ALL},
            id="narrow-dark",
        ),
        pytest.param(NARROW, "light", {}, id="narrow-light"),
    ),
)
def test_axe_finds_nothing(
    visit: Visit,
    viewport: dict[str, int],
    scheme: str,
    narrowed: dict[str, Any],
    tell: Callable[[str], None],
) -> None:
    """Also nothing minor. Solutions are open, so that they are looked at too."""
    hidden = visit.page.locator("button.toggle-button-hidden").element_handles()
    click = "buttons => buttons.forEach((button) => button.click())"
    visit.page.evaluate(click, hidden)
    visit.look(viewport, scheme)
    try:
        found = findings(visit.page, **narrowed)
    finally:
        visit.page.evaluate(click, hidden)  # other tests look at the page after this
    tell(
        f"axe, {scheme}, {viewport['width']} px: {len(found)} findings on {visit.name}"
    )
    assert found == []


def test_axe_notices_what_is_wrong(
    open_page: Callable[..., Visit], site: Path, tmp_path: Path
) -> None:
    """Proof of the test above: the same page, with one fault for each kind of rule."""
    page = (site / "book" / "corpus.html").read_text(encoding="utf-8")
    faults = (
        '<p style="color: #999; background: #aaa">pale</p><img src="x.png">'
        '<input type="range"><h5>too deep</h5><button style="width: 9px; height: 9px;'
        ' padding: 0">b</button><button style="width: 9px; height: 9px; padding: 0">c'
        "</button>"
    )
    for part in site.iterdir():
        if part.name != "book":
            (tmp_path / part.name).symlink_to(part)
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "corpus.html").write_text(
        page.replace("</article>", faults + "</article>", 1), encoding="utf-8"
    )
    server = served(tmp_path)
    visit = open_page("book/corpus.html", address=next(server))
    rules = {line.split(":")[0] for line in findings(visit.page)}
    assert rules >= {
        "serious color-contrast", "critical image-alt", "critical label",
        "moderate heading-order", "serious target-size",
    }  # fmt: skip
    assert {line.split(":")[0] for line in findings(visit.page, colours_only=True)} == {
        "serious color-contrast"
    }
    next(server, None)


def test_page_says_what_it_is(visit: Visit) -> None:
    found = visit.page.evaluate(
        """() => ({
            lang: document.documentElement.lang,
            title: document.title,
            description: [...document.querySelectorAll('meta[name=description]')]
                .map((meta) => meta.content),
            icon: document.querySelectorAll('link[rel=icon]').length,
            viewport: document.querySelector('meta[name=viewport]').content,
        })"""
    )
    assert found["lang"] == "en"
    assert found["title"] == PREFIX or found["title"].endswith(f" — {PREFIX}")
    (description,) = found["description"]
    assert 50 <= len(description) <= 160
    assert not set("\\{}<>$") & set(description)
    assert found["icon"] == 1
    assert "width=device-width" in found["viewport"]


def test_titles_and_descriptions_are_unique(site: Path) -> None:
    heads = [
        (site / page).read_text(encoding="utf-8").split("</head>")[0]
        for page in built_pages()
    ]
    for start, end in (("<title>", "</title>"), ('name="description" content="', '"')):
        said = [head.split(start)[1].split(end)[0] for head in heads]
        assert len(set(said)) == len(said)


def test_headings_are_in_order(visit: Visit) -> None:
    levels = visit.page.evaluate(
        """() => [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')]
            .filter((h) => h.checkVisibility()).map((h) => Number(h.tagName[1]))"""
    )
    assert levels.count(1) == 1
    assert levels[0] == 1
    jumps = [(a, b) for a, b in pairwise(levels) if b > a + 1]
    assert jumps == []


# All that can be clicked or moved: it takes the focus, and is seen to have it.
FOCUS = """() => {
    const style = (e) => {
        const s = getComputedStyle(e);
        return [s.outlineStyle === "none" ? "" : s.outline, s.boxShadow, s.borderColor,
                s.backgroundColor, s.textDecorationLine,
                s.textDecorationThickness].join();
    };
    const wrong = [];
    for (const e of document.querySelectorAll(
        "a[href], button, input, select, textarea, summary, [tabindex='0']")) {
        if (!e.checkVisibility({ visibilityProperty: true }) || e.disabled
            || e.type === "hidden" || e.getClientRects().length === 0) continue;
        document.activeElement?.blur();
        const before = style(e);
        e.focus({ focusVisible: true, preventScroll: true });
        if (document.activeElement !== e) wrong.push("not reached: " + e.outerHTML);
        else if (e.tabIndex < 0 && !e.closest("dialog") && e.id !== "main-content")
            wrong.push("not in the order: " + e.outerHTML);
        else if (style(e) === before) wrong.push("not seen: " + e.outerHTML);
    }
    document.activeElement?.blur();
    return [...new Set(wrong.map((w) => w.replace(/\\s+/g, " ").slice(0, 160)))];
}"""


def test_keyboard_reaches_every_control_and_shows_where_it_is(visit: Visit) -> None:
    assert visit.page.evaluate(FOCUS) == []


@pytest.mark.parametrize(
    "name", ("book/welcome.html", "notebooks/05_exact_sampling.html")
)
def test_tab_walks_through_the_page(open_page: Callable[..., Visit], name: str) -> None:
    """By the key itself, from the link that skips the contents to the last one."""
    visit = open_page(name)
    page = visit.page
    page.keyboard.press("Tab")
    skip = page.locator("#pst-skip-link a")
    assert skip.evaluate("link => link === document.activeElement")
    assert skip.is_visible()
    page.wait_for_function(  # it glides into the picture
        "document.querySelector('#pst-skip-link a').getBoundingClientRect().top >= 0",
        timeout=5000,
    )
    expected = page.evaluate(
        """() => {
            const all = [...document.querySelectorAll(
                    "a[href], button, input, [tabindex]")]
                .filter((e) => e.tabIndex >= 0 && !e.disabled
                    && e.checkVisibility({ visibilityProperty: true })
                    && e.getClientRects().length > 0);
            all.forEach((e, i) => { e.dataset.place = i; });
            return all.length;
        }"""
    )
    reached = set()
    for _ in range(expected + 20):
        place, left = page.evaluate(
            "() => [document.activeElement?.dataset.place, "
            "document.activeElement === document.body]"
        )  # a browser stops at boxes that scroll, too: those have no place here
        if left and reached:
            break
        reached.add(place)
        page.keyboard.press("Tab")
    missed = page.evaluate(
        """reached => [...document.querySelectorAll("[data-place]")]
            .filter((e) => !reached.includes(e.dataset.place))
            .map((e) => e.outerHTML.slice(0, 120))""",
        sorted(reached - {None}),
    )
    assert missed == []
    skip.focus()
    page.keyboard.press("Enter")
    assert page.url.endswith("#main-content")
    page.close()
