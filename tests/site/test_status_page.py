"""The page of the build's status shows the records; every page names its edition."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import build_status
import edition
import pytest
import status_page
from bs4 import BeautifulSoup
from site_kit import Visit, check_no_scroll

PAGE = "book/status.html"


def records(kind: str) -> Any:
    return build_status.load(build_status.KEPT).get(kind, {})


@pytest.mark.browser
def test_the_records_are_on_the_page(chapter: Visit) -> None:
    values = status_page.values()
    page = chapter.page
    text = page.locator("article").inner_text()
    assert "status_" not in text
    for mark in ("chapters", "cells", "compared", "together", "one", "all"):
        assert values[f"status_{mark}"] in text
    chapters, steps = page.locator("article table").all()
    assert chapters.locator("tbody tr").count() == int(values["status_chapters"])
    for name, record in records("steps").items():
        row = steps.locator("tbody tr").filter(has=page.get_by_text(name, exact=True))
        assert record["when"] in row.first.inner_text()


@pytest.mark.browser
def test_each_chapter_is_linked(chapter: Visit) -> None:
    table = chapter.page.locator("article table").first
    links = table.locator("tbody tr td:first-child a[href*='notebooks/']")
    assert links.count() == table.locator("tbody tr").count()


@pytest.mark.browser
@pytest.mark.parametrize("screen", ("fresh", "telephone"))
def test_the_page_does_not_scroll_sideways(request: Any, screen: str) -> None:
    check_no_scroll(request.getfixturevalue(screen).page)


def test_every_page_names_its_edition(site: Path) -> None:
    """In its footer, once; of the files as they were when the book was built."""
    said = set()
    for path in sorted(site.rglob("*.html")):
        inside = path.relative_to(site)
        if inside.parts[0] in ("_static", "lite", "index.html"):
            continue
        page = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        lines = page.select("footer .extra_footer p")
        assert len(lines) == 2, path
        said.add(" ".join(lines[0].get_text().split()))
    (line,) = said
    assert line.startswith(f"Version {edition.version()}")
    known = edition.edition()
    if known.commit:
        form = r"Version \S+, commit [0-9a-f]{10} of \d{4}-\d\d-\d\d(, with changes)?"
        assert re.fullmatch(form, line)


def test_no_page_tells_the_day_of_its_build(site: Path) -> None:
    """The same commit makes the same pages, whenever they are built."""
    for path in (site / "book").rglob("*.html"):
        assert "docbuild:last-update" not in path.read_text(encoding="utf-8")
