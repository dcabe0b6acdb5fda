"""Print the whole book into _build/pdf, from the built site, by a headless Chromium.

    python tools/build_pdf.py

Build the site first (`make html`). Every page is opened, waited for, and what it then
shows is taken: formulas are drawn and widgets stand as they stand before anybody moves
them. All of it becomes one document, printed once to learn on which page everything
comes to lie, and again with these numbers in it. So bookmarks, links and page numbers
are the browser's own. What it prints is given an author, a date that does not depend on
the day, and bookmarks that begin folded.

The result is put into the site too, whose first pages then offer it (pdf_offer.py).
"""

from __future__ import annotations

import html
import json
import mimetypes
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pdf_offer
import pikepdf
import yaml
from browser import NoBrowser, launch
from edition import edition

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
PAPER = ROOT / "tools" / "paper"
BASE = "http://book.invalid/"  # no server: see Desk
BOOK = "the-book-on-paper.html"  # no file
PRINTING_MS = 900_000


@dataclass(frozen=True)
class Leaf:
    """A page of the site: its name in _toc.yml, and what begins its ids in the book."""

    name: str
    own: str

    @property
    def address(self) -> str:
        return f"{self.name}.html"


@dataclass
class Part:
    """A part of the book and its pages."""

    caption: str
    leaves: list[Leaf]

    @property
    def own(self) -> str:
        return "part-" + re.sub(r"[^a-z0-9]+", "-", self.caption.lower()).strip("-")


def parts(root: Path = ROOT) -> list[Part]:
    """The parts of the book as _toc.yml has them; the first page opens the first."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    found = []
    for number, part in enumerate(toc["parts"]):
        names = [chapter["file"] for chapter in part["chapters"]]
        if number == 0:
            names.insert(0, toc["root"])
        leaves = [
            Leaf(name, name.replace("/", "-").replace("_", "-")) for name in names
        ]
        found.append(Part(part["caption"], leaves))
    return found


@dataclass
class Imprint:
    """What the title page says."""

    title: str
    author: str
    version: str
    commit: str  # empty where this is no git repository
    date: datetime
    year: str


def imprint() -> Imprint:
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    found = edition()
    day = found.date or str(cited["date-released"])
    return Imprint(
        title=config["title"],
        author=config["author"],
        version=found.version,
        commit=found.short + (", with changes" if found.changed else ""),
        date=datetime.fromisoformat(day).replace(tzinfo=UTC),
        year=str(config["copyright"]),
    )


class Desk:
    """Gives a page of the browser the files that it asks for, from the disk.

    No server is needed, and whatever is asked of another is refused and remembered.
    """

    def __init__(self, page: Any) -> None:
        self.document = ""  # what lies at BOOK
        self.lost: list[str] = []
        page.route("**/*", self._answer)

    def _answer(self, route: Any) -> None:
        url = route.request.url
        path = unquote(urlsplit(url).path).lstrip("/")
        file = SITE / path
        if path.startswith("paper/"):
            file = PAPER / path.removeprefix("paper/")
        if not url.startswith(BASE):
            self.lost.append(url)
            route.abort()
        elif path == BOOK:
            route.fulfill(body=self.document, content_type="text/html; charset=utf-8")
        elif file.is_file():
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            route.fulfill(body=file.read_bytes(), content_type=kind)
        else:
            self.lost.append(path)
            route.fulfill(status=404)

    def check(self) -> None:
        """ValueError where a file was missing."""
        if self.lost:
            raise ValueError(f"what the book needs is missing: {self.lost[:5]}")


@dataclass
class Taken:
    """What was taken from the pages."""

    articles: dict[str, str] = field(default_factory=dict)  # by Leaf.own
    rules: dict[str, None] = field(default_factory=dict)  # a set in order
    sheets: dict[str, None] = field(default_factory=dict)


def take_pages(browser: Any, book: list[Part]) -> Taken:
    """Open every page and take what it shows."""
    extract = (PAPER / "extract.js").read_text(encoding="utf-8").rstrip().rstrip(";")
    leaves = [leaf for part in book for leaf in part.leaves]
    pages = {leaf.address: leaf.own for leaf in leaves}
    taken = Taken()
    page = browser.new_context(
        viewport={"width": 1366, "height": 900}, color_scheme="light"
    ).new_page()
    desk = Desk(page)
    for leaf in leaves:
        page.goto(BASE + quote(leaf.address))
        page.wait_for_function(
            """() => [...document.querySelectorAll(
                    'script[type="application/vnd.jupyter.widget-view+json"]')]
                .every((view) =>
                    view.parentElement.querySelector('.jupyter-widgets'))"""
        )
        got = page.evaluate(
            f"({extract})", {"own": leaf.own, "pages": pages, "base": BASE}
        )
        taken.articles[leaf.own] = got["html"]
        taken.rules |= dict.fromkeys(got["rules"])
        taken.sheets |= dict.fromkeys(
            page.evaluate(
                "[...document.querySelectorAll('link[rel=stylesheet]')]"
                ".map((sheet) => sheet.href)"
            )
        )
    desk.check()
    page.context.close()
    return taken


# -- the document ----------------------------------------------------------------------

HEADING = re.compile(
    r"<(?P<tag>h[23]) [^>]*?class=\"[^\"]*\bsd-h(?P<level>[12])\b[^\"]*\"[^>]*>"
    r"(?P<text>.*?)</(?P=tag)>",
    re.DOTALL,
)
SECTION = re.compile(
    r"<section id=\"([^\"]+)\"[^>]*>\s*(?:<span id=[^>]*></span>\s*)*$"
)


def words(markup: str) -> str:
    """The words of a piece of HTML."""
    return " ".join(html.unescape(re.sub("<[^>]*>", "", markup)).split())


@dataclass(frozen=True)
class Entry:
    """A line of the contents."""

    level: int  # 0 a part, 1 a page, 2 a section
    place: str  # an id
    text: str


def headings(article: str) -> Iterator[tuple[int, str, str]]:
    """Level, id of its section, and HTML of the headings of a page, in order."""
    for found in HEADING.finditer(article):
        section = SECTION.search(article, 0, found.start())
        if section:
            yield int(found["level"]), section[1], found["text"]


def entries(book: list[Part], taken: Taken) -> list[Entry]:
    """The lines of the contents: the library's pages without their sections."""
    found = []
    for part in book:
        found.append(Entry(0, part.own, part.caption))
        for leaf in part.leaves:
            whole = "notebooks/" in leaf.name
            for level, place, text in headings(taken.articles[leaf.own]):
                if level == 1:
                    found.append(Entry(1, leaf.own, words(text)))
                elif whole:
                    found.append(Entry(2, place, words(text)))
    return found


def contents(lines: list[Entry]) -> str:
    rows = "\n".join(
        f'<li class="sd-toc-{line.level}"><a href="#{line.place}">'
        f'<span class="sd-toc-text">{html.escape(line.text)}</span>'
        f'<span class="sd-toc-page" data-page-of="{line.place}"></span></a></li>'
        for line in lines
    )
    return (
        '<section class="sd-contents" id="contents"><h1>Contents</h1>'
        f'<ul role="list">\n{rows}\n</ul></section>'
    )


def title_page(about: Imprint) -> str:
    commit = f"<br>of commit {html.escape(about.commit)}" if about.commit else ""
    date = f"{about.date.day} {about.date:%B %Y}"
    return f"""\
<section class="sd-title-page" id="title-page">
<p class="sd-book-title">{html.escape(about.title)}</p>
<p class="sd-book-author">{html.escape(about.author)}</p>
<p class="sd-book-edition">Version {about.version}{commit}<br>{date}</p>
<div class="sd-imprint">
<p>© {about.year} {html.escape(about.author)}. Prose, figures and corpus may be shared
and adapted under <a href="https://creativecommons.org/licenses/by/4.0/">CC BY 4.0</a>;
code is under the MIT licence.</p>
<p>Printed from the pages of the book as they stand before anything on them is moved:
figures with sliders show their first position. Solutions of the exercises stand at the
end of each chapter.</p>
</div>
</section>"""


def css_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def running_titles(book: list[Part], lines: list[Entry]) -> str:
    """A named page for each page of the site: its part and title stand at the top."""
    title = {line.place: line.text for line in lines if line.level == 1}
    rules = []
    for part in book:
        for leaf in part.leaves:
            rules.append(
                f"@page {leaf.own} {{ "
                f"@top-left {{ content: {css_string(part.caption)} }} "
                f"@top-right {{ content: {css_string(title[leaf.own])} }} }}\n"
                f'[id="{leaf.own}"] {{ page: {leaf.own} }}'
            )
    return "\n".join(rules)


PAGE_OF = re.compile(r'(<span[^>]*\bdata-page-of="([^"]+)"[^>]*>)[^<]*(</span>)')


def with_page_numbers(document: str, page_of: Mapping[str, int]) -> str:
    """The document with the numbers of pages where it leaves room for them."""
    return PAGE_OF.sub(
        lambda found: f"{found[1]}{page_of.get(found[2], '000')}{found[3]}", document
    )


def assemble(about: Imprint, book: list[Part], taken: Taken) -> str:
    """The whole book as one page of HTML, without scripts."""
    lines = entries(book, taken)
    body = [title_page(about), contents(lines)]
    for part in book:
        for number, leaf in enumerate(part.leaves):
            opening = ""
            if number == 0:
                opening = f'<h1 class="sd-part" id="{part.own}">{part.caption}</h1>'
            body.append(
                f'<section class="sd-leaf" id="{leaf.own}">{opening}'
                f'<div class="bd-article">{taken.articles[leaf.own]}</div></section>'
            )
    sheets = "\n".join(
        f'<link rel="stylesheet" href="{html.escape(sheet)}">' for sheet in taken.sheets
    )
    rules = "\n".join(taken.rules)
    return f"""\
<!DOCTYPE html>
<html lang="en-GB" data-theme="light">
<head>
<meta charset="utf-8">
<title>{html.escape(about.title)}</title>
{sheets}
<style>{rules}</style>
<link rel="stylesheet" href="paper/paper.css">
<style>
{running_titles(book, lines)}
</style>
</head>
<body>
<main class="bd-content sd-paper">
{chr(10).join(body)}
</main>
</body>
</html>
"""


PLACE = re.compile(r'\sid="([^"]+)"')
INNER = re.compile(r'<a\b[^>]*\bhref="#([^"]+)"')


def check_links(document: str) -> None:
    """ValueError where a link leads to no place, or to two."""
    places = [html.unescape(place) for place in PLACE.findall(document)]
    wanted = {html.unescape(place) for place in INNER.findall(document)}
    twice = {place for place in wanted if places.count(place) > 1}
    lost = sorted(wanted - set(places))
    if lost or twice:
        raise ValueError(
            f"links of the book lead nowhere: {lost[:9]}; or to two places: "
            f"{sorted(twice)[:9]}"
        )


# -- printing --------------------------------------------------------------------------

OVERFLOWING = """() => {
    const width = document.querySelector(".sd-paper").getBoundingClientRect().right;
    const wide = [];
    for (const element of document.querySelectorAll(".sd-paper *")) {
        const drawing = element.closest("mjx-container, svg");
        if (drawing && drawing !== element) continue;
        const box = element.getBoundingClientRect();
        if (box.width && box.right > width + 0.5)
            wide.push(element.closest(".sd-leaf")?.id, element.outerHTML.slice(0, 160));
    }
    return wide;
}"""


class Press:
    """A page with the document open, to be printed."""

    def __init__(self, browser: Any) -> None:
        # As wide as the text on paper: 170 mm.
        size = {"width": 643, "height": 900}
        context = browser.new_context(viewport=size, color_scheme="light")
        self.page = context.new_page()
        self.desk = Desk(self.page)

    def open(self, document: str) -> None:
        self.desk.document = document
        self.page.emulate_media(media="print", color_scheme="light")
        self.page.goto(BASE + BOOK, timeout=PRINTING_MS)
        self.page.evaluate("document.fonts.ready.then(() => true)")
        self.desk.check()

    def wide(self) -> list[str]:
        """What is wider than the paper: the browser would make all of it smaller."""
        found: list[str] = self.page.evaluate(OVERFLOWING)
        return found

    def print(self, target: Path, *, draft: bool = False) -> None:
        """Print it; a draft lies on the same pages and has no tags and no bookmarks."""
        self.page.pdf(
            path=target,
            prefer_css_page_size=True,
            print_background=True,
            outline=not draft,
            tagged=not draft,
        )


def page_numbers(file: Path) -> dict[str, int]:
    """On which page each place lies that a link leads to, from 1."""
    with pikepdf.open(file) as pdf:
        number = {page.objgen: index for index, page in enumerate(pdf.pages, start=1)}
        return {
            unquote(str(name).lstrip("/")): number[place[0].objgen]
            for name, place in pdf.Root.Dests.items()
        }


def bookmarks(outlines: Any) -> Iterator[Any]:
    """All bookmarks below one, in the order of the pages."""
    for one in siblings(outlines):
        yield one
        yield from bookmarks(one)


def siblings(outlines: Any) -> Iterator[Any]:
    """The bookmarks directly below one."""
    one = outlines.get("/First")
    while one is not None:
        yield one
        one = one.get("/Next")


ANY_HEADING = re.compile(r"<(h[1-6])\b[^>]*>(.*?)</\1>", re.DOTALL)
FORMULA = re.compile(
    r"<mjx-container\b.*?aria-label=\"([^\"]*)\".*?</mjx-container>", re.S
)


def finish(printed: Path, target: Path, about: Imprint, document: str) -> int:
    """Give the print its metadata and folded bookmarks; the number of its pages."""
    titles = [
        words(FORMULA.sub(r"\1", text)) for _, text in ANY_HEADING.findall(document)
    ]
    with pikepdf.open(printed) as pdf:
        found = list(bookmarks(pdf.Root.Outlines))
        if len(found) != len(titles):
            raise ValueError(f"{len(found)} bookmarks of {len(titles)} headings")
        for bookmark, title in zip(found, titles, strict=True):
            bookmark.Title = title
            if "/Count" in bookmark:
                bookmark.Count = -abs(bookmark.Count)
        pdf.Root.Outlines.Count = sum(1 for _ in siblings(pdf.Root.Outlines))
        pdf.Root.PageMode = pikepdf.Name.UseOutlines
        pdf.Root.Lang = "en-GB"
        pdf.Root.ViewerPreferences = pikepdf.Dictionary(DisplayDocTitle=True)
        commit = f", commit {about.commit}" if about.commit else ""
        date = about.date.strftime("D:%Y%m%d%H%M%SZ")
        for name, value in {
            "/Title": about.title,
            "/Author": about.author,
            "/Subject": f"Version {about.version}{commit}",
            "/Creator": "Chromium",
            "/CreationDate": date,
            "/ModDate": date,
        }.items():
            pdf.docinfo[name] = value
        pdf.save(
            target,
            object_stream_mode=pikepdf.ObjectStreamMode.generate,
            compress_streams=True,
            deterministic_id=True,
        )
        return len(pdf.pages)


def build() -> dict[str, Any]:
    """Print the book; what is to be said of the result."""
    from playwright.sync_api import sync_playwright

    started = time.perf_counter()

    def said(done: str) -> None:
        print(f"  {time.perf_counter() - started:4.0f} s  {done}", flush=True)

    about, book = imprint(), parts()
    target = pdf_offer.FOLDER / pdf_offer.NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = pdf_offer.digest(SITE)
    first = target.with_suffix(".first.pdf")
    with sync_playwright() as playwright:
        browser = launch(playwright)
        document = assemble(about, book, take_pages(browser, book))
        said("took the pages")
        check_links(document)
        press = Press(browser)
        press.open(with_page_numbers(document, {}))
        if wide := press.wide():
            raise ValueError("wider than the paper:\n" + "\n".join(wide[:20]))
        press.print(first, draft=True)
        said("printed a draft, which says on which page everything is")
        press.open(with_page_numbers(document, page_numbers(first)))
        press.print(first)
        browser.close()
    pages = finish(first, target, about, document)
    first.unlink()
    facts = {
        "digest": digest,
        "pages": pages,
        "bytes": target.stat().st_size,
        "seconds": round(time.perf_counter() - started),
    }
    (target.parent / pdf_offer.STAMP).write_text(json.dumps(facts, indent=1) + "\n")
    return facts


def main() -> int:
    if not (SITE / "index.html").exists():
        print("There is no built book yet: type `make html`.", file=sys.stderr)
        return 1
    try:
        facts = build()
    except (NoBrowser, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    pdf_offer.put_in(SITE)
    print(
        f"Printed: _build/pdf/{pdf_offer.NAME} ({facts['pages']} pages, "
        f"{facts['bytes'] / 1e6:.1f} MB, {facts['seconds']} s)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
