"""The page about what was checked shows the counts, and opens its lists."""

from __future__ import annotations

import re

import proof
import proof_page
import pytest
from site_kit import Visit, check_no_scroll

pytestmark = pytest.mark.browser

PAGE = "book/proof.html"


def test_the_counts_are_on_the_page(chapter: Visit) -> None:
    values = proof_page.values()
    page = chapter.page
    text = page.locator("article").inner_text()
    assert "proof_" not in text
    for mark in ("settings", "planted", "mutants", "examples", "hostile", "met"):
        assert values[f"proof_{mark}"] in text
    rows = page.locator("article table").first.locator("tbody tr").all_inner_texts()
    settings = re.search(r"[\d,]+$", rows[0])
    assert settings is not None
    assert settings[0] == values["proof_settings"]


def test_every_file_that_counts_is_named(chapter: Visit) -> None:
    codes = set(chapter.page.locator("article td code").all_text_contents())
    assert set(proof.read()["tests"]) <= {code.strip() for code in codes}


@pytest.mark.parametrize("screen", ("fresh", "telephone"))
def test_lists_open_and_the_page_does_not_scroll_sideways(request, screen) -> None:
    page = request.getfixturevalue(screen).page
    lists = page.locator("article details")
    assert lists.count() >= 15
    for each in lists.all():
        table = each.locator("table")
        assert not table.is_visible()
        each.locator("summary").click()
        assert table.is_visible()
        assert table.evaluate(
            "t => t.scrollWidth > t.clientWidth || t.clientWidth <= innerWidth"
        )
    check_no_scroll(page)


def test_a_list_opens_by_keyboard(fresh: Visit) -> None:
    first = fresh.page.locator("article details").first
    first.locator("summary").focus()
    fresh.page.keyboard.press("Enter")
    assert first.locator("table").is_visible()
