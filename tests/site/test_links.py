"""The built site holds together: all pages are there, and every link has an end."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup
from serve import SITE

ROOT = SITE.parents[1]


@cache
def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(path: Path) -> frozenset[str]:
    found = {tag["id"] for tag in soup(path).find_all(id=True)}
    return frozenset(
        found | {tag["name"] for tag in soup(path).find_all("a", attrs={"name": True})}
    )


def broken_links(page: Path, root: Path) -> list[str]:
    """Links and sources of a page that lead nowhere in the site under `root`."""
    found = []
    for tag in soup(page).find_all(["a", "img", "script", "link", "source"]):
        link = tag.get("href") or tag.get("src")
        if not link:
            continue
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if target.is_dir():
            target /= "index.html"
        inside = target.is_relative_to(root) and target.exists()
        page_part = target.suffix == ".html" and unquote(parts.fragment)
        if not inside or (page_part and page_part not in anchors(target) | {"top"}):
            found.append(link)
    return found


def test_every_link_has_an_end(site: Path) -> None:
    found = {
        page.relative_to(site).as_posix(): links
        for page in sorted(site.rglob("*.html"))
        if "_static" not in page.parts and (links := broken_links(page, site))
    }
    assert found == {}


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text(
        '<a href="#here">x</a><a id="here" href="b.html#gone">x</a>'
        '<a href="c.html">x</a><img src="d%20e.png"><a href="http://a.b/">x</a>'
        '<a href="../out.html">x</a>'
    )
    (tmp_path / "b.html").write_text("<p id='there'>")
    (tmp_path / "d e.png").write_bytes(b"")
    (tmp_path.parent / "out.html").write_text("outside")
    assert broken_links(page, tmp_path) == ["b.html#gone", "c.html", "../out.html"]


def test_every_page_of_the_contents_is_built(site: Path) -> None:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    names = [toc["root"]] + [
        chapter["file"] for part in toc["parts"] for chapter in part["chapters"]
    ]
    for name in names:
        assert (site / f"{name}.html").exists(), name


def test_the_build_was_strict_and_quiet(site: Path) -> None:
    log = (site.parent / "build.log").read_text(encoding="utf-8")
    assert not re.search(r"WARNING:|ERROR:", log)


@pytest.mark.parametrize("word", ["tests", ".venv", "specdec_lib", "README"])
def test_nothing_but_the_book_is_built(site: Path, word: str) -> None:
    pages = [p.relative_to(site).as_posix() for p in site.rglob("*.html")]
    assert not [page for page in pages if page.startswith(word)]
