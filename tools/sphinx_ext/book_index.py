"""The index of the book, on a page of its own: what it speaks of, and where.

    ```{book-index} subjects
    ```

Subjects are the terms of the glossary, with the chapters that introduce them in bold or
name them in a heading, or else with the first that uses them; definitions and theorems,
by their titles; the sources, with the chapters that cite them; the names that sources
gave to what they propose; and commands.
`names` is a list of all names of the library, `flags` one of the flags of its commands.

The index that Sphinx makes would have them all in one, and most of it flags.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from glossary_links import entries, prose
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from glossary import Terms, named, terms

log = logging.getLogger(__name__)

COMMANDS = "book/reference/commands"
CHAPTER = re.compile(r"notebooks/(\d+|[a-z])_")
# What a proof, an exercise or a solution says: on a page all have the same anchor.
BODIES = {"proof-content", "exercise-content", "solution-content"}
Place = tuple[str, str]  # page, anchor
Entries = dict[str, list[Place]]


class BookIndex(nodes.General, nodes.Element):
    """Stands for one of the lists."""


class BookIndexDirective(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        return [BookIndex(part=self.arguments[0])]


# What a page says, noted when it is read: (kind, name, anchor).

Note = tuple[str, str, str]


def anchor_of(node: nodes.Node) -> str:
    """The anchor of the section, or the theorem, that a node stands in."""
    while node.parent is not None:
        node = node.parent
        ids = node["ids"] if isinstance(node, nodes.section) or is_titled(node) else []
        if ids and ids[0] not in BODIES:
            return str(ids[0])
    return ""


def is_titled(node: nodes.Node) -> bool:
    """Whether this is a definition or a theorem with a title of its own."""
    return (
        isinstance(node, nodes.Element)
        and bool(node.get("realtype"))
        and bool(str(node.get("title", "")).strip())
    )


def term_named(text: str, known: Terms, page: str) -> str:
    """The term that a text is, but for its form; "" where it is more or none."""
    for start, end, term in known.mentions(text):
        if (start, end) == (0, len(text)) and known.is_meant(term, page):
            return term
    return ""


def notes(doctree: nodes.document, page: str) -> Iterator[Note]:
    """What the index says of a page."""
    known = terms()
    if CHAPTER.match(page):
        for text, before in prose(doctree):
            for _, _, term in known.mentions(text.astext(), before):
                if known.is_meant(term, page):
                    yield "used", term, anchor_of(text)
    for node in doctree.findall():
        if isinstance(node, addnodes.pending_xref) and node["refdomain"] == "cite":
            for key in node["reftarget"].split(","):
                yield "source", key.strip(), anchor_of(node)
        elif isinstance(node, addnodes.pending_xref) and node["reftype"] == "term":
            yield "term", node["reftarget"], anchor_of(node)
        elif is_titled(node):
            title = str(node["title"]).strip().strip("()")
            yield "titled", f"{title} ({node['realtype']})", str(node["ids"][0])
        elif page == COMMANDS and isinstance(node, nodes.title):
            if node.astext().startswith("specdec"):
                yield "command", node.astext(), anchor_of(node)
        elif CHAPTER.match(page) and isinstance(node, nodes.title):
            for _, _, term in known.mentions(node.astext()):
                if known.is_meant(term, page):
                    yield "term", term, anchor_of(node)
        elif (
            CHAPTER.match(page)
            and isinstance(node, nodes.strong)
            and (term := term_named(node.astext().rstrip("."), known, page))
        ):
            yield "term", term, anchor_of(node)


def take_notes(app: Sphinx, doctree: nodes.document) -> None:
    page = app.env.docname
    _all_notes(app.env)[page] = list(dict.fromkeys(notes(doctree, page)))


def _all_notes(env: BuildEnvironment) -> dict[str, list[Note]]:
    if not hasattr(env, "book_index_notes"):
        env.book_index_notes = {}
    return env.book_index_notes  # type: ignore[no-any-return]


def forget(app: Sphinx, env: BuildEnvironment, page: str) -> None:
    _all_notes(env).pop(page, None)


def merge(
    app: Sphinx, env: BuildEnvironment, pages: Iterable[str], other: BuildEnvironment
) -> None:
    _all_notes(env).update(_all_notes(other))


# The lists


def noted(env: BuildEnvironment, kind: str) -> Entries:
    """Places by name, one for each page, in the order of the book."""
    found: Entries = {}
    order = {page: n for n, page in enumerate(pages(env))}
    for page in sorted(_all_notes(env), key=lambda page: order.get(page, len(order))):
        seen = set()
        for one, name, anchor in _all_notes(env)[page]:
            if one == kind and name not in seen:
                seen.add(name)
                found.setdefault(name, []).append((page, anchor))
    return found


def pages(env: BuildEnvironment, root: str = "") -> Iterator[str]:
    """All pages in the order of the contents."""
    root = root or env.config.root_doc
    yield root
    for below in env.toctree_includes.get(root, ()):
        yield from pages(env, below)


def sources(env: BuildEnvironment) -> dict[str, tuple[str, list[Place]]]:
    """Of each source that is cited: how it is named, and where it is cited."""
    cited = noted(env, "source")
    bibliography = {}
    cite = env.get_domain("cite")
    for citation in cite.citations:  # type: ignore[attr-defined]
        persons = citation.entry.persons.get("author", [])
        people = [" ".join(person.last_names).strip("{}") for person in persons]
        if "others" in people or len(people) > 3:
            people = [people[0], "others"]
        who = ", ".join(people[:-1]) + " and " + people[-1] if people[1:] else people[0]
        entry = (citation.bibliography_key.docname, citation.citation_id)
        name = f"{who} {citation.entry.fields['year']}"
        bibliography[citation.key] = (name, [*cited.get(citation.key, []), entry])
    return bibliography


def subjects(env: BuildEnvironment) -> Entries:
    """Terms, definitions and theorems, sources, methods and commands."""
    found: Entries = {}
    introduced, used = noted(env, "term"), noted(env, "used")
    for term, (page, anchor, _) in entries(env).items():
        chapters = introduced.get(term) or used.get(term, [])[:1]
        found[term] = [(page, anchor), *chapters]
    for kind in ("titled", "command"):
        for name, places in noted(env, kind).items():
            found.setdefault(name, []).extend(places)
    cited = sources(env)
    for name, places in cited.values():
        found.setdefault(name, []).extend(places)
    for name, key in named().items():
        if key in cited:
            whose, places = cited[key]
            found.setdefault(f"{name} ({whose})", []).extend(places)
        else:
            log.warning("book/terms.toml: %s: no page cites %s", name, key)
    return found


def names(env: BuildEnvironment) -> Entries:
    """The library's names, each with its module."""
    domain = env.get_domain("py")
    modules = set(domain.data["modules"])
    found: Entries = {}
    for full, entry in domain.data["objects"].items():
        if entry.aliased:
            continue
        module = full
        while module not in modules:
            module = module.rpartition(".")[0]
        short = full.removeprefix(module).strip(".")
        name = f"{short} ({module})" if short else module
        found.setdefault(name, []).append((entry.docname, entry.node_id))
    return found


def flags(env: BuildEnvironment) -> Entries:
    """The flags of the commands."""
    found: Entries = {}
    for (program, flag), place in env.get_domain("std").data["progoptions"].items():
        if program:
            found.setdefault(f"{flag} ({program.replace('-', ' ')})", []).append(place)
    return found


LISTS = {"subjects": subjects, "names": names, "flags": flags}


# The page


def letter(name: str) -> str:
    first = name.lstrip("-_")[:1].upper()
    return first if first.isalpha() else "#"


def sort_key(name: str) -> tuple[str, str]:
    return (re.sub(r"[^\w ]", "", name.lstrip("-_")).casefold(), name)


def label(env: BuildEnvironment, page: str) -> str:
    """How a page is called in the index."""
    if chapter := CHAPTER.match(page):
        number = chapter[1]
        return (
            f"chapter {int(number)}"
            if number.isdigit()
            else f"appendix {number.upper()}"
        )
    return env.titles[page].astext().lower()


def item(
    app: Sphinx, page: str, part: str, name: str, places: list[Place]
) -> nodes.Node:
    """One line: the name, and links to where it stands."""
    words = nodes.paragraph()
    if part == "subjects":
        words += nodes.Text(f"{name}: ")
        for n, (there, anchor) in enumerate(places):
            if n:
                words += nodes.Text(", ")
            text = nodes.Text(label(app.env, there))
            words += make_refnode(app.builder, page, there, anchor, text)
    else:
        short, _, rest = name.partition(" (")
        code = nodes.literal("", short)
        there, anchor = places[0]
        words += make_refnode(app.builder, page, there, anchor, code)
        if rest:
            words += nodes.Text(f" in {rest.rstrip(')')}")
    return nodes.list_item("", words)


def build(app: Sphinx, page: str, part: str) -> Iterator[nodes.Node]:
    found = LISTS[part](app.env)
    letters: dict[str, list[str]] = {}
    for name in sorted(found, key=sort_key):
        letters.setdefault(letter(name), []).append(name)
    jump = nodes.paragraph(classes=["sd-letters"])
    for one in sorted(letters):
        jump += nodes.reference("", one, internal=True, refid=f"{part}-{one}")
        jump += nodes.Text(" ")
    yield jump
    for one in sorted(letters):
        section = nodes.section(ids=[f"{part}-{one}"])
        section += nodes.title("", one)
        lines = (item(app, page, part, name, found[name]) for name in letters[one])
        section += nodes.bullet_list("", *lines, classes=["sd-index", f"sd-{part}"])
        yield section


def fill(app: Sphinx, doctree: nodes.document, page: str) -> None:
    for node in list(doctree.findall(BookIndex)):
        node.replace_self(list(build(app, page, node["part"])))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(BookIndex)
    app.add_directive("book-index", BookIndexDirective)
    app.connect("doctree-read", take_notes)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("doctree-resolved", fill, priority=950)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
