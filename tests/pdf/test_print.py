"""The printed book: all of the site's text, on pages that hold it; links inside it."""

from __future__ import annotations

import ctypes
import json
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import build_pdf
import pdf_offer
import pikepdf
import pypdfium2.raw as pdfium
import pytest
import yaml
from bs4 import BeautifulSoup, Tag
from pdf_kit import FOOT, HEAD, Print, bare
from serve import SITE

MM = 72 / 25.4
LEFT, RIGHT = 20 * MM, 190 * MM  # where the text begins and ends
TOC = yaml.safe_load((build_pdf.ROOT / "_toc.yml").read_text(encoding="utf-8"))
PARTS = {
    part["caption"]: [chapter["file"] for chapter in part["chapters"]]
    for part in TOC["parts"]
}
PARTS[next(iter(PARTS))].insert(0, TOC["root"])
PAGES = [name for names in PARTS.values() for name in names]
CHAPTERS = [name for name in PAGES if name.startswith("notebooks/")]


@cache
def article(name: str) -> Tag:
    """The text of a page of the site."""
    soup = BeautifulSoup((SITE / f"{name}.html").read_text("utf-8"), "html.parser")
    found = soup.find("article")
    assert isinstance(found, Tag)
    for useless in found.select(
        ".headerlink, .sd-run, .sd-pdf, .sd-ct-hint, .sd-ct-skip"
    ):
        useless.decompose()
    return found


TEXTS: dict[tuple[int, int], str] = {}


def title(name: str) -> str:
    heading = article(name).find("h1")
    assert heading is not None
    return " ".join(heading.get_text().split())


def outline(book: Print) -> list[tuple[int, str, int, float]]:
    """Depth, title, page (from 0) and height of each bookmark."""
    found = []
    for bookmark in book.pdf.get_toc(max_depth=9):
        place = bookmark.get_dest()
        _, view = place.get_view()
        found.append((bookmark.level, bookmark.get_title(), place.get_index(), view[1]))
    return found


@pytest.fixture(scope="module")
def raw(book: Print) -> Iterator[pikepdf.Pdf]:
    with pikepdf.open(pdf_offer.FOLDER / pdf_offer.NAME) as pdf:
        yield pdf


@pytest.fixture(scope="module")
def bookmarks(book: Print) -> list[tuple[int, str, int, float]]:
    return outline(book)


@pytest.fixture(scope="module")
def first_pages(bookmarks: list[tuple[int, str, int, float]]) -> dict[str, int]:
    """On which page (from 0) each page of the site begins."""
    found = {text: page for depth, text, page, _ in bookmarks if depth == 1}
    return {name: found[title(name)] for name in PAGES}


@pytest.fixture(scope="module")
def whole(book: Print) -> str:
    """The text of all pages, without spaces, heads and feet."""
    return "".join(page.body for page in book.pages)


def text_of(book: Print, first_pages: dict[str, int], name: str) -> str:
    """The same of one page of the site."""
    begins = [*sorted(first_pages.values()), len(book.pages)]
    start = first_pages[name]
    end = begins[begins.index(start) + 1]
    if (start, end) not in TEXTS:
        TEXTS[start, end] = "".join(page.body for page in book.pages[start:end])
    return TEXTS[start, end]


# -- the file --------------------------------------------------------------------------


def test_it_says_what_it_is(book: Print, raw: pikepdf.Pdf) -> None:
    about = {str(key): str(value) for key, value in raw.docinfo.items()}
    config = yaml.safe_load((build_pdf.ROOT / "_config.yml").read_text("utf-8"))
    assert about["/Title"] == config["title"]
    assert about["/Author"] == config["author"]
    assert re.fullmatch(r"Version \d+\.\d+\.\d+.*", about["/Subject"])
    assert about["/CreationDate"] == about["/ModDate"]
    assert str(raw.Root.Lang) == "en-GB"
    assert raw.Root.MarkInfo.Marked
    assert raw.Root.PageMode == "/UseOutlines"
    first = book.pages[0].text
    for words in (config["title"], config["author"], "CC BY 4.0", "MIT"):
        assert bare(words) in bare(first)


def test_its_size_is_sensible(book: Print, raw: pikepdf.Pdf) -> None:
    assert book.facts["pages"] == len(raw.pages)
    assert book.facts["bytes"] == len(book.bytes) < 25_000_000
    assert 15 * len(CHAPTERS) < len(raw.pages) < 900
    assert book.facts["digest"] == pdf_offer.digest(SITE)
    for page in raw.pages:
        sizes = [float(side) / MM for side in page.mediabox]
        assert sizes == pytest.approx([0, 0, 210, 297], abs=0.2)


def test_fonts_are_inside(raw: pikepdf.Pdf) -> None:
    outside, count = [], 0
    for one in raw.objects:
        if not isinstance(one, pikepdf.Dictionary) or one.get("/Type") != "/Font":
            continue
        count += 1
        if one.Subtype == "/Type3":
            inside = len(one.CharProcs) > 0
        elif one.Subtype == "/Type0":
            continue  # its descendant is another of these
        else:
            inside = any(key.startswith("/FontFile") for key in one.FontDescriptor)
        if not inside:
            outside.append(str(one.get("/BaseFont")))
    assert outside == []
    assert count > 5


# -- bookmarks, contents, links --------------------------------------------------------


def test_every_page_of_the_site_has_a_bookmark_in_order(
    bookmarks: list[tuple[int, str, int, float]],
) -> None:
    expected = ["Contents"]
    for caption, names in PARTS.items():
        expected += [caption, *("  " + title(name) for name in names)]
    found = ["  " * depth + text for depth, text, _, _ in bookmarks if depth < 2]
    assert found == expected


def test_bookmarks_lead_to_their_headings(
    book: Print, bookmarks: list[tuple[int, str, int, float]]
) -> None:
    # How the letters of a formula are read is another matter.
    formulas = {
        bare(re.sub(r"\\[()]", "", heading.get_text()))
        for name in PAGES
        for heading in article(name).find_all(re.compile("h[1-6]"))
        if heading.select_one(".math")
    }
    wrong = []
    for _, text, page, height in bookmarks:
        glyphs = book.pages[page]
        here = bare(glyphs.between(height + 3, max(height - 80, FOOT)))
        if bare(text) not in formulas and bare(text)[:40] not in here[:46]:
            wrong.append((text, page + 1, here[:60]))
    assert wrong == []


def test_sections_have_bookmarks(bookmarks: list[tuple[int, str, int, float]]) -> None:
    found = Counter(text for depth, text, _, _ in bookmarks if depth == 2)
    for name in CHAPTERS:
        for heading in article(name).find_all("h2"):
            if heading.select_one(".math"):
                continue
            assert found[" ".join(heading.get_text().split())] > 0
    assert found["Solutions"] == sum(
        bool(article(name).select_one("div.solution")) for name in CHAPTERS
    )


def test_bookmarks_begin_folded(raw: pikepdf.Pdf) -> None:
    counts = [
        int(one["/Count"])
        for one in build_pdf.bookmarks(raw.Root.Outlines)
        if "/Count" in one
    ]
    assert len(counts) > len(PAGES) - 10
    assert max(counts) < 0


def test_no_heading_stands_alone_at_the_foot(
    book: Print, bookmarks: list[tuple[int, str, int, float]]
) -> None:
    alone = []
    for _, text, page, height in bookmarks:
        below = bare(book.pages[page].between(height + 3, FOOT))
        least = 30 if len(text) > 1 else 10  # a letter may have a single short entry
        if len(below) < len(bare(text)) + least:
            alone.append((text, page + 1))
    assert alone == []


def links(raw: pikepdf.Pdf) -> Iterator[tuple[int, Any]]:
    for index, page in enumerate(raw.pages):
        for annotation in page.get("/Annots", []):
            if annotation.Subtype == "/Link":
                yield index, annotation


def target(raw: pikepdf.Pdf, annotation: Any) -> Any:
    """Where an inner link leads; None where it leads to a server."""
    if "/A" in annotation and annotation.A.S == "/URI":
        return None
    place = annotation.get("/Dest")
    if place is None:
        place = annotation.A.D
    if not isinstance(place, pikepdf.Array):
        place = raw.Root.Dests[str(place)]
    return place


def test_links_lead_into_the_book_or_to_the_web(raw: pikepdf.Pdf) -> None:
    pages = {page.objgen for page in raw.pages}
    inner, outer, wrong = 0, 0, []
    for index, annotation in links(raw):
        place = target(raw, annotation)
        if place is None:
            outer += 1
            address = str(annotation.A.URI)
            if not re.match(r"https://[\w.-]+\.[a-z]+(/|$)", address):
                wrong.append((index + 1, address))
        else:
            inner += 1
            assert place[0].objgen in pages
    assert wrong == []
    sources = sum(
        len(article(name).select("a.reference.internal[href]")) for name in PAGES
    )
    assert inner > 0.9 * sources
    assert outer >= 10
    everything = b"".join(
        one.read_bytes()
        for one in raw.objects
        if isinstance(one, pikepdf.Stream)
        and one.get("/Subtype") not in ("/Image",)
        and one.get("/Type") == "/Page"
    )
    assert b"localhost" not in everything


def words_in(book: Print, page: int, annotation: Any) -> str:
    left, bottom, right, top = (float(x) for x in annotation.Rect)
    glyphs = book.pages[page]
    return "".join(
        sign
        for sign, box in zip(glyphs.text, glyphs.boxes, strict=True)
        if box[0] >= left - 1
        and box[2] <= right + 1
        and (box[1] + box[3]) / 2 >= bottom
        and (box[1] + box[3]) / 2 <= top
    )


def test_printed_page_numbers_are_those_of_the_pages(
    book: Print, raw: pikepdf.Pdf, bookmarks: list[tuple[int, str, int, float]]
) -> None:
    """In the contents, and from each exercise to its solution."""
    first, behind = (page for _, _, page, _ in bookmarks[:2])
    assert [text for _, text, _, _ in bookmarks[:2]] == ["Contents", "Before you start"]
    number = {page.objgen: index for index, page in enumerate(raw.pages, start=1)}
    contents, solutions = 0, 0
    for page, annotation in links(raw):
        place = target(raw, annotation)
        if place is None:
            continue
        words = words_in(book, page, annotation)
        if words.isdigit() and "-solution-" in str(annotation.get("/Dest")):
            solutions += 1
        elif first <= page < behind and re.search(r"\d$", words):
            contents += 1
        else:
            continue
        printed = re.search(r"\d+$", words)
        assert printed is not None
        assert int(printed[0]) == number[place[0].objgen], (page + 1, words)
    chapters = sum(len(article(name).find_all(["h1", "h2"])) for name in CHAPTERS)
    assert contents >= chapters
    exercises = sum(len(article(name).select("div.solution")) for name in CHAPTERS)
    assert solutions == exercises


def test_pages_carry_their_number_and_title(
    book: Print, first_pages: dict[str, int]
) -> None:
    for index, page in enumerate(book.pages[1:], start=2):
        assert bare(page.between(FOOT, 0)) == str(index)
    for name, first in first_pages.items():
        assert bare(title(name)) in bare(book.pages[first].between(900, HEAD))


# -- what stands on the pages ----------------------------------------------------------


def test_no_page_is_empty(book: Print) -> None:
    assert [i for i, page in enumerate(book.pages, 1) if len(page.body) < 8] == []


def test_no_letter_is_outside_of_the_text(book: Print) -> None:
    """Else it were cut off, or near the edge of the paper."""
    outside = []
    for number, page in enumerate(book.pages, start=1):
        for sign, (left, bottom, right, top) in zip(page.text, page.boxes, strict=True):
            # A tall brace is drawn by pieces that are cut to its height.
            if (
                right > left
                and not "\ue000" <= sign <= "\uf8ff"
                and (
                    left < LEFT - 6
                    or right > RIGHT + 2
                    or bottom < 20
                    or top > 842 - 20
                )
            ):
                outside.append((number, sign, round(left), round(right)))
    assert outside == []


def test_letters_have_their_size(book: Print) -> None:
    """A browser makes everything smaller where one thing is too wide for the paper."""
    sizes: Counter[float] = Counter()
    for page in list(book.pdf)[9::40]:
        text = page.get_textpage()
        matrix = pdfium.FS_MATRIX()
        for index in range(text.count_chars()):
            pdfium.FPDFText_GetMatrix(text.raw, index, ctypes.byref(matrix))
            size = pdfium.FPDFText_GetFontSize(text.raw, index)
            sizes[round(abs(matrix.d) * size, 1)] += 1
    assert 10.5 in dict(sizes.most_common(4))


@pytest.mark.parametrize("name", PAGES)
def test_all_code_is_there(book: Print, first_pages: dict[str, int], name: str) -> None:
    """Every line of code and of what it printed, from its first sign to its last."""
    printed = text_of(book, first_pages, name)
    lines = {
        bare(line)
        for block in article(name).select("pre")
        for line in block.get_text().splitlines()
    }
    assert sorted(line for line in lines if line not in printed) == []


def is_printed(text: str, printed: str) -> bool:
    """Whether it stands there in one piece, or in two: a foot and the next page."""
    if text in printed:
        return True
    cut = bisect(range(len(text)), False, key=lambda end: text[:end] not in printed)
    return 4 < cut < len(text) - 3 and text[cut - 1 :] in printed


@pytest.mark.parametrize("name", PAGES)
def test_all_prose_is_there(
    book: Print, first_pages: dict[str, int], name: str
) -> None:
    """Every paragraph without formulas, solutions too; captions, entries and tables."""
    printed = text_of(book, first_pages, name)
    lost, count = [], 0
    for paragraph in article(name).select("p, li > p, dd > p, figcaption"):
        if paragraph.select_one(".math, script, a.external") or paragraph.find_parent(
            ["summary", "button"]
        ):
            continue
        if paragraph.get_text().strip() == "Solution":
            continue  # has the number of its exercise instead
        count += 1
        if not is_printed(bare(paragraph.get_text()), printed):
            lost.append(paragraph.get_text()[:80])
    assert count
    assert lost == []


FORMULAS = {  # one of each chapter, in the order in which it is read
    "notebooks/05_exact_sampling": "min(1,p(x)/q(x))",
}


def test_formulas_are_letters(book: Print, first_pages: dict[str, int]) -> None:
    for name, formula in FORMULAS.items():
        assert bare(formula) in text_of(book, first_pages, name)
    for name in CHAPTERS:
        assert "\\(" not in text_of(book, first_pages, name)


def test_pictures_say_what_they_show(raw: pikepdf.Pdf) -> None:
    """Those who do not see them are told, in the words of the site."""
    told = {
        str(one["/Alt"])
        for one in raw.objects
        if isinstance(one, pikepdf.Dictionary)
        and one.get("/S") == "/Figure"
        and "/Alt" in one
    }
    assert len(told) > 80
    for name in PAGES:
        for picture in article(name).find_all("img"):
            assert picture["alt"] in told


def test_nothing_to_press(whole: str) -> None:
    for words in ("Download as a notebook", "Click to show", "Run in the browser</"):
        assert bare(words) not in whole.replace("Runinthebrowserbelow", "")


# -- how it is offered -----------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site of one page that offers a print, which is of it."""
    site, folder = tmp_path / "html", tmp_path / "pdf"
    (site / "book").mkdir(parents=True)
    folder.mkdir()
    page = f'<article class="bd-article"><p>a</p>{pdf_offer.MARK}<p>b</p></article>'
    (site / "book" / "a.html").write_text(page, encoding="utf-8")
    monkeypatch.setattr(pdf_offer, "FOLDER", folder)
    (folder / pdf_offer.NAME).write_bytes(b"%PDF-")
    facts = {"digest": pdf_offer.digest(site), "pages": 7, "bytes": 12e5, "seconds": 9}
    (folder / pdf_offer.STAMP).write_text(json.dumps(facts))
    return site


def test_offered_where_it_is_of_these_pages(small: Path) -> None:
    assert pdf_offer.put_in(small)
    page = (small / "book" / "a.html").read_text()
    soup = BeautifulSoup(page, "html.parser")
    (link,) = soup.find_all("a")
    assert (small / "book" / str(link["href"])).resolve().read_bytes() == b"%PDF-"
    assert "7 pages" in soup.get_text()
    assert "1 MB" in soup.get_text()
    assert pdf_offer.put_in(small)  # and again: the offer itself changes nothing
    assert (small / "book" / "a.html").read_text() == page


def test_not_offered_where_it_is_of_others(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pdf_offer.put_in(small)
    page = small / "book" / "a.html"
    page.write_text(page.read_text().replace("<p>b</p>", "<p>c</p>"))
    assert not pdf_offer.put_in(small)
    assert "make pdf" in capsys.readouterr().out
    assert not (small / pdf_offer.INSIDE).exists()
    assert not BeautifulSoup(page.read_text(), "html.parser").find_all("a")
    assert pdf_offer.MARK in page.read_text()


def test_not_offered_where_there_is_none(small: Path) -> None:
    (pdf_offer.FOLDER / pdf_offer.NAME).unlink()
    assert not pdf_offer.put_in(small)
    page = (small / "book" / "a.html").read_text()
    assert not BeautifulSoup(page, "html.parser").find_all("a")


# -- the document before it is printed -------------------------------------------------


def test_a_link_that_leads_nowhere_is_refused() -> None:
    build_pdf.check_links('<p id="a"></p><a href="#a">x</a>')
    with pytest.raises(ValueError, match="lead nowhere: \\['b'\\]"):
        build_pdf.check_links('<p id="a"></p><a href="#b">x</a>')
    with pytest.raises(ValueError, match="two places: \\['a'\\]"):
        build_pdf.check_links('<p id="a"></p><p id="a"></p><a href="#a">x</a>')
