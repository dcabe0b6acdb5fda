"""What the site weighs, and what a page asks the network for."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from site_kit import SUBPATH, Visit

MB, KB = 1_000_000, 1_000
ALL = 25 * MB  # on disk, without the live kernel and the book on paper
FIRST, EVERY = 500 * KB, 1_000 * KB  # of a page and all that it loads, compressed
FIRST_PAGE = "book/welcome.html"
APART = ("lite", "pdf")  # the folders of the live kernel and of the book on paper


@cache
def compressed(path: Path) -> int:
    """Bytes as they travel: pictures and fonts gain nothing by it."""
    content = path.read_bytes()
    return min(len(content), len(gzip.compress(content)))


def weight(site: Path, addresses: Iterable[str]) -> int:
    inside = (address.split(f"/{SUBPATH}/", 1)[1] for address in addresses)
    return sum(compressed(site / unquote(name.split("#")[0])) for name in inside)


def test_the_whole_site_is_light(site: Path, tell: Callable[[str], None]) -> None:
    sizes: dict[str, int] = {}
    for path in site.rglob("*"):
        if path.is_file():
            part = path.relative_to(site).parts[0]
            sizes[part] = sizes.get(part, 0) + path.stat().st_size
    total = sum(size for part, size in sizes.items() if part not in APART)
    most = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
    parts = ", ".join(f"{part} {sizes[part] / MB:.1f}" for part in most)
    apart = " and ".join(APART)
    tell(f"weight of the site without {apart}: {total / MB:.1f} MB ({parts})")
    assert total < ALL


@pytest.mark.browser
def test_page_is_light(visit: Visit, site: Path, tell: Callable[[str], None]) -> None:
    size = weight(site, visit.files)
    tell(f"weight of a page, compressed: {size / KB:4.0f} kB {visit.name}")
    assert size < (FIRST if visit.name == FIRST_PAGE else EVERY)


def test_nothing_lies_there_that_no_page_loads(site: Path) -> None:
    useless = ("*.map", "fontawesome.js", "*.woff2", "*.ttf", "*.mo", "*thebe*")
    found = [path.name for kind in useless for path in (site / "_static").rglob(kind)]
    assert found == []


def test_fetched_files_bring_their_licences(site: Path) -> None:
    for folder in (site / "_static" / "vendor").iterdir():
        if (
            folder.name == "fontawesome"
        ):  # of the theme; its licence stands in the style
            style = site / "_static" / "styles" / "pydata-sphinx-theme.css"
            assert "fontawesome.com/license" in style.read_text(encoding="utf-8")
        elif folder.is_dir():
            assert "icense" in (folder / "LICENSE").read_text(encoding="utf-8")


def test_notebooks_are_given_without_outputs(site: Path) -> None:
    import nbformat

    found = list((site / "_sources" / "notebooks").glob("*.ipynb"))
    assert found
    for path in found:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert "widgets" not in notebook.metadata
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert code
        assert not any(cell.outputs or cell.execution_count for cell in code)


@pytest.mark.browser
def test_every_icon_is_drawn(visit: Visit) -> None:
    """The font holds the glyph of each: an unknown one would be as wide as a box."""
    bare = visit.page.evaluate(
        """async () => {
            await document.fonts.ready;
            const wrong = [];
            for (const icon of document.querySelectorAll('[class*="fa-"]')) {
                const style = getComputedStyle(icon, "::before");
                const sign = style.content.replaceAll('"', "");
                if (sign === "none") wrong.push(icon.className);
            }
            return wrong;
        }"""
    )
    assert bare == []
