"""The reference of the library, from its source; and links between it and chapters.

In a page (inside ``eval-rst``, since docstrings are reStructuredText):

    .. library-overview::                      all modules, in a table
    .. library-module:: specdec_lib.decoding   every public name of one module
    .. library-arguments::                     arguments that mean the same everywhere
    .. library-command:: generate              the flags of one command

Nothing but the core of the library is imported, and that only for its flags: pages are
the same whatever is installed. Every entry links to the section of the chapter that
builds it, and every chapter, at its end, to the entries that it builds and uses.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import library_names as names
import library_text as text
from library_names import LIBRARY, Entry

log = logging.getLogger(__name__)
SIGNATURE = re.compile(r'<dt class="sig .*?</dt>', re.S)
COMMANDS = "book/reference/commands"


class ChapterLinks(nodes.General, nodes.Inline, nodes.Element):
    """Stands for the links from an entry, or a module, to chapters."""


class _Directive(SphinxDirective):
    """Writes reStructuredText, which is then read as if it stood in the page."""

    def lines(self) -> Iterator[str]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        source = f"<{self.name} {' '.join(self.arguments)}>"
        content = StringList(list(self.lines()), source)
        node = nodes.Element()
        node.document = self.state.document
        self.state.nested_parse(content, 0, node)
        return node.children


class LibraryModule(_Directive):
    """All public names of one module."""

    required_arguments = 1

    def lines(self) -> Iterator[str]:
        module = names.modules().get(self.arguments[0])
        if module is None:
            raise self.error(f"{self.arguments[0]} is not a public module")
        self.env.note_dependency(str(names.sources()[module.name].path))
        yield from text.module_lines(module)


class LibraryOverview(_Directive):
    """One row for each module."""

    def lines(self) -> Iterator[str]:
        yield from text.overview_lines()


class LibraryArguments(_Directive):
    """The arguments that mean the same in all functions."""

    def lines(self) -> Iterator[str]:
        yield from text.arguments_lines()


class LibraryCommand(_Directive):
    """The flags of one command of the command line."""

    required_arguments = 1
    final_argument_whitespace = True

    def lines(self) -> Iterator[str]:
        yield from text.command_lines(self.arguments[0])


class LibraryChapters(SphinxDirective):
    """Where the entry or the module of this name is built and used."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        return [
            nodes.paragraph(
                "", "", ChapterLinks(name=self.arguments[0]), classes=["sd-chapters"]
            )
        ]


def chapters_role(
    role: str,
    raw: str,
    content: str,
    line: int,
    inliner: Any,
    options: Any = None,
    settings: Any = None,
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """The same inside a line: the numbers of the chapters that explain a module."""
    return [ChapterLinks(name=content, short=True)], []


# Links


def section_address(env: BuildEnvironment, section: names.Section) -> str:
    """The anchor of a heading of a chapter, "" for its title."""
    if section.number == 0:
        return ""
    doc = f"notebooks/{section.chapter}"
    wanted = _plain(section.title)
    for link in env.tocs[doc].findall(nodes.reference):
        if _plain(link.astext()) == wanted:
            return str(link["anchorname"])
    log.warning("%s has no heading %r", doc, section.title)
    return ""


def _plain(title: str) -> str:
    """The letters of a heading, without marks and formulas' signs."""
    return re.sub(r"[\W_]|\\text\w*", "", title).casefold()


def link_to_section(
    app: Sphinx, page: str, section: names.Section, label: str
) -> nodes.reference:
    address = app.builder.get_relative_uri(page, f"notebooks/{section.chapter}")
    anchor = section_address(app.env, section)
    return nodes.reference("", label, internal=True, refuri=address + anchor)


def link_to(app: Sphinx, page: str, what: Entry | str) -> nodes.reference | None:
    """A link to an entry, or to a module by its full name; None without a place."""
    full_name = what if isinstance(what, str) else what.full_name
    short = full_name.removeprefix(f"{LIBRARY}.") if what == full_name else what.name
    objects = app.env.get_domain("py").data["objects"]
    if full_name not in objects:
        return None
    place = objects[full_name]
    code = nodes.literal("", short, classes=["xref", "py"])
    return make_refnode(
        app.builder, page, place.docname, place.node_id, code, full_name
    )


def fill_links(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Put the links to chapters in their places, and those of a chapter at its end."""
    for node in list(doctree.findall(ChapterLinks)):
        node.replace_self(_links(app, page, node["name"], node.get("short", False)))
    folder, _, stem = page.rpartition("/")
    if folder == "notebooks" and stem in names.chapters():
        _link_what_was_built(app, doctree, page, names.chapters()[stem])
        _end_of_chapter(app, doctree, page, stem)


def _links(app: Sphinx, page: str, name: str, short: bool) -> list[nodes.Node]:
    def number(chapter: names.Chapter) -> nodes.reference:
        return link_to_section(app, page, chapter.sections[0], chapter.number)

    if short:
        return _joined([number(each) for each in names.explaining(name)])
    entry = names.entries()[name]
    section = names.builder(entry)
    found: list[nodes.Node] = []
    if names.shortest(entry) != entry.home:
        found += [nodes.literal("", f"sd.{entry.name}"), nodes.Text(". ")]
    if section:
        chapter = names.chapters()[section.chapter]
        found.append(nodes.Text(_capital(chapter)))
        title = _readable(section.title)
        found.append(link_to_section(app, page, section, title))
    others = [
        each
        for each in names.users(entry)
        if section is None or each.stem != section.chapter
    ]
    if others:
        found.append(nodes.Text(". Also used in " if section else "Used in "))
        found.extend(_joined([number(each) for each in others]))
    if section or others:
        found.append(nodes.Text("."))
    return found


def _capital(chapter: names.Chapter) -> str:
    return "Chapter " * chapter.number.isdigit() + f"{chapter.number}, ".capitalize()


def _readable(title: str) -> str:
    """A heading without the marks of formulas and code."""
    return re.sub(r"[`$]", "", title)


def _joined(links: list[Any]) -> list[nodes.Node]:
    found: list[nodes.Node] = []
    for link in links:
        found += [nodes.Text(", "), link] if found else [link]
    return found


def _link_what_was_built(
    app: Sphinx, doctree: nodes.document, page: str, chapter: names.Chapter
) -> None:
    """Names and files under "What we built" lead to their entries."""
    for section in doctree.findall(nodes.section):
        if section[0].astext() != names.BUILT:
            continue
        for code in list(section.findall(nodes.literal)):
            word, inside = code.astext(), code.parent
            what: Entry | str | None = names.entry_of_code(
                word, chapter.names, alone=False
            )
            if module := names.module_of_path(word):
                what = names.shown_under(module)
            link = link_to(app, page, what) if what else None
            if link is not None and not isinstance(inside, nodes.reference):
                code["classes"] += ["xref", "py"]
                inside.replace(code, link)
                link.children = []
                link += code


def _end_of_chapter(app: Sphinx, doctree: nodes.document, page: str, stem: str) -> None:
    """Lines of links: what the chapter builds, what else it uses, and the modules."""
    box = nodes.container(classes=["sd-in-the-library"])
    listed = {
        "In the library: ": names.built_in(stem),
        "Also used: ": names.used_in(stem),
        "Modules: ": names.modules_of(stem),
    }
    for head, found in listed.items():
        links = [link_to(app, page, each) for each in found]
        if None in links:
            log.warning("%s: entries without a place in the reference", page)
        if links:
            line = nodes.paragraph(
                "", "", nodes.strong("", head.rstrip()), nodes.Text(" ")
            )
            line += _joined([link for link in links if link])
            line += nodes.Text(".")
            box += line
    if box.children:
        doctree[0].append(box)


def name_in_full(app: Sphinx, doctree: nodes.document) -> None:
    """Names in signatures and docstrings mean what they do in their own module.

    Sphinx would take any entry of that name.
    """
    for node in doctree.findall(addnodes.pending_xref):
        if node.get("refdomain") != "py":
            continue
        if node.hasattr("refspecific"):  # or it looks for the same end of any name
            del node["refspecific"]
        of_its_class = node["reftype"] == "meth" and "." not in node["reftarget"]
        module = node.get("py:module") or LIBRARY
        full_name = text.meaning(node["reftarget"], module)
        if full_name and not of_its_class:
            node["reftarget"] = full_name
            node["py:module"] = node["py:class"] = None


def resolve(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, inside: nodes.Node
) -> nodes.Node | None:
    """The end of a reference in a signature or a docstring.

    A name is what it is in the module in which it stands. Names from elsewhere, and
    those of the library without an entry, stay text; any other is a warning of Sphinx.
    """
    if node.get("refdomain") != "py":
        return None
    target = text.meaning(node["reftarget"], node.get("py:module") or LIBRARY)
    return None if target is None else inside


# Signatures over several lines


def lists_of_spans(app: Sphinx, problem: Exception | None) -> None:
    """Arguments in lines of their own are no definition list without a term.

    That is what Sphinx makes of them, and screen readers would announce it.
    """
    for page in (Path(app.outdir) / "book" / "reference").glob("*.html"):
        html = page.read_text(encoding="utf-8")
        page.write_text(SIGNATURE.sub(_as_spans, html), encoding="utf-8")


def _as_spans(signature: re.Match[str]) -> str:
    html = signature[0]
    for tag in ("dl", "dd"):
        html = html.replace(f"<{tag}>", f'<span class="sd-sig-{tag}">')
        html = html.replace(f"</{tag}>", "</span>")
    return html


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(ChapterLinks)
    app.add_directive("library-module", LibraryModule)
    app.add_directive("library-overview", LibraryOverview)
    app.add_directive("library-arguments", LibraryArguments)
    app.add_directive("library-command", LibraryCommand)
    app.add_directive("library-chapters", LibraryChapters)
    app.add_role("library-chapters", chapters_role)
    app.connect("doctree-read", name_in_full)
    app.connect("missing-reference", resolve)
    app.connect("doctree-resolved", fill_links)
    app.connect("build-finished", lists_of_spans)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
