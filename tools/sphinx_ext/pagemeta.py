"""What a page says of itself to search engines, to previews of links and in a tab.

The description is a page's `description:` (front matter of a page, metadata of a
notebook), or else its first sentences.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

from docutils import nodes
from sphinx.application import Sphinx

SHORTEST, LONGEST = 50, 160  # characters of a description
PICTURE = "_images/rounds.svg"
MADE = {  # pages that have no text of their own
    "search": "Search the chapters, the glossary and the reference of the book for a "
    "word.",
}
TITLES = {"search": "Search"}
SENTENCE = re.compile(r"(?<=[.?!:])\s+(?=[A-Z*“])")


def plain(paragraph: nodes.Node) -> str:
    """The words of a paragraph; a formula as it is typed, without its marks."""
    parts = []
    for node in paragraph.findall(nodes.Text):
        text = node.astext()
        if isinstance(node.parent, nodes.math):
            text = re.sub(r"\\([a-z]+) ?", r"\1", text).translate(
                str.maketrans("", "", "{}\\")
            )
        parts.append(text)
    return " ".join("".join(parts).split())


def paragraphs(doctree: nodes.document) -> Iterator[str]:
    """What stands between the title and the end, in order, outside of tables."""
    for node in doctree.findall(nodes.paragraph):
        if isinstance(node.parent, nodes.section | nodes.definition):
            yield plain(node)


def description(doctree: nodes.document | None) -> str:
    """As many of the first sentences as there is room for, and never too few."""
    text = ""
    for paragraph in paragraphs(doctree) if doctree is not None else ():
        for sentence in SENTENCE.split(paragraph):
            longer = f"{text} {sentence}".strip()
            if len(longer) > LONGEST:
                if len(text) >= SHORTEST:
                    return text
                return longer[: LONGEST - 1].rsplit(" ", 1)[0].rstrip(",;:") + " …"
            text = longer
    return text


def describe(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    book = str(app.config.html_title or app.config.project)
    title = TITLES.get(page) or html.unescape(
        re.sub("<[^>]*>", "", str(context.get("title") or ""))
    )
    given = (context.get("meta") or {}).get("description")
    text = given or MADE.get(page) or description(doctree)
    context["page_title"] = book if title in ("", book) else f"{title} — {book}"
    tags = {("name", "description"): text}
    if address := app.config.html_baseurl:
        own = context.get("pageurl") or urljoin(address, f"{page}.html")
        tags |= {
            ("property", "og:type"): "book"
            if page == app.config.root_doc
            else "article",
            ("property", "og:site_name"): book,
            ("property", "og:title"): title or book,
            ("property", "og:description"): text,
            ("property", "og:url"): own,
            ("property", "og:image"): urljoin(address, PICTURE),
        }
    context["metatags"] = context.get("metatags", "") + "".join(
        f'\n    <meta {kind}="{name}" content="{html.escape(value)}" />'
        for (kind, name), value in tags.items()
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", describe)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
