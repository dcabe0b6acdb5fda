"""On every built page the first mention of each term leads to its entry, once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import glossary
import pytest
from bs4 import BeautifulSoup, NavigableString, Tag
from site_kit import Visit, built_pages

NO_PROSE = (
    "table, figcaption, h1, h2, h3, h4, pre, code, script, style, .math, .cell_output, "
    ".sd-run, .citation, .proof-title, .admonition-title, .headerlink, dt, svg, "
    ".toctree-wrapper, .visually-hidden, dl.citation, .specdec-widget"
)
GLOSSARY = "book/glossary.html"
APART = {GLOSSARY, "book/subject_index.html", "search.html"}
PAGES = [page for page in built_pages() if page not in APART]
Mark = tuple[str, str]  # a piece of text, and the address that it leads to


@cache
def addresses(site: Path) -> dict[str, str]:
    """The anchor of each entry of the glossary, by its term."""
    page = BeautifulSoup((site / GLOSSARY).read_text(encoding="utf-8"), "html.parser")
    return {
        term.find(string=True).strip().replace("’", "'"): term["id"]
        for term in page.select("dl.glossary dt")
    }


def paragraphs(page: Path) -> Iterator[list[Mark]]:
    """The prose of a page: pieces of text, and where those that are links lead."""
    article = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").article
    for useless in article.select(NO_PROSE):
        useless.replace_with(NavigableString("\0"))
    for block in article.find_all(["p", "li", "dd"]):
        pieces: list[Mark] = []

        def walk(node: Any, pieces: list[Mark] = pieces, block: Any = block) -> None:
            for child in node.children:
                if isinstance(child, NavigableString):
                    pieces.append((str(child), ""))
                elif child.name == "a":
                    leads = child["href"] if "sd-term" in child.get("class", ()) else ""
                    pieces.append((child.get_text() if leads else "\0", leads))
                elif child.name not in ("p", "li", "dd", "ul", "ol", "dl", "div"):
                    walk(child)

        walk(block)
        yield pieces


def mentions(pieces: list[Mark]) -> Iterator[tuple[str, str]]:
    """The terms that a paragraph mentions, and where their letters lead."""
    text = "".join(piece for piece, _ in pieces)
    leads = [address for piece, address in pieces for _ in piece]
    plain = re.sub(r"\s", " ", text).replace("’", "'")
    forms = glossary.terms().term_of
    most = max(len(form.split()) for form in forms)
    # Words, with all that hangs on them by hyphens; what is between them counts, too.
    words = [(w.start(), w.end()) for w in re.finditer(r"[\w-]+", plain)]
    at = 0
    while at < len(words):
        start = words[at][0]
        opens = re.search(r"(?:^|[.?!:][')\"”]*\s+|[“\"(]\s*)$", plain[:start][-8:])
        for last in range(min(at + most + 1, len(words)) - 1, at - 1, -1):
            form = " ".join(plain[start : words[last][1]].split())
            if form not in forms and opens:
                form = form[0].lower() + form[1:]
            if form in forms:
                if forms[form]:
                    yield forms[form], leads[start]
                at = last
                break
        at += 1


@pytest.mark.parametrize("page", PAGES)
def test_the_first_mention_of_a_term_leads_to_its_entry(site: Path, page: str) -> None:
    known = glossary.terms()
    seen: dict[str, list[str]] = {}
    for pieces in paragraphs(site / page):
        for term, address in mentions(pieces):
            if known.is_meant(term, page.removesuffix(".html")):
                seen.setdefault(term, []).append(address)
    anchors = addresses(site)
    wrong = {}
    for term, links in seen.items():
        ends = [urlsplit(link).fragment for link in links]
        if ends != [anchors[term], *[""] * (len(ends) - 1)]:
            wrong[term] = ends
    assert wrong == {}


def test_every_page_of_a_chapter_has_such_links(site: Path) -> None:
    for page in PAGES:
        if page.startswith("notebooks/"):
            text = (site / page).read_text(encoding="utf-8")
            assert text.count("sd-term") > 5, page


def test_a_link_says_what_the_term_is(site: Path) -> None:
    text = (site / "notebooks/04_guess_then_check.html").read_text(encoding="utf-8")
    page = BeautifulSoup(text, "html.parser")
    (link,) = [
        a for a in page.select("a.sd-term") if a["href"].endswith("#term-rewind")
    ]
    assert isinstance(link, Tag)
    assert str(link["title"]).startswith("To make a model forget the last tokens")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ("light", "dark"))
def test_the_links_are_quiet(open_page: Any, scheme: str) -> None:
    """The colour is that of the words around; what tells them is a line below."""
    visit: Visit = open_page("notebooks/04_guess_then_check.html")
    visit.look(scheme=scheme)
    style = visit.page.evaluate(
        """() => {
            const link = document.querySelector("article p > a.sd-term");
            const own = getComputedStyle(link);
            return [own.color, getComputedStyle(link.parentElement).color,
                    own.textDecorationLine, own.textDecorationStyle];
        }"""
    )
    assert style[0] == style[1]
    assert style[2:] == ["underline", "dotted"]
    visit.look(scheme=scheme, media="print")
    on_paper = visit.page.evaluate(
        """() => getComputedStyle(document.querySelector("article p > a.sd-term"))
            .textDecorationLine"""
    )
    assert on_paper == "none"
    visit.page.close()
