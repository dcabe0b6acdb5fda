"""Link each term of the glossary where a page first uses it.

The terms, their forms and the pages on which they are meant are those of
`tools/glossary.py`. Looked at is the prose: paragraphs and items of lists, also inside
theorems, exercises and solutions. Left out are headings, captions, tables, code,
formulas, links and signatures, and the glossary itself. A term that the page links by a
`{term}` role is not linked again. Every link says the first sentence of the entry.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from pagemeta import SENTENCE, plain
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from glossary import Terms, terms

CLASS = "sd-term"
WITHOUT_TERMS = (
    nodes.title,
    nodes.caption,
    nodes.legend,
    nodes.table,
    nodes.literal,
    nodes.literal_block,
    nodes.math,
    nodes.math_block,
    nodes.reference,
    nodes.citation,
    nodes.raw,
    nodes.image,
    nodes.system_message,
    nodes.substitution_definition,
    addnodes.pending_xref,
    addnodes.desc_signature,
    addnodes.glossary,
    addnodes.toctree,
)


def is_prose(node: nodes.Node) -> bool:
    """Whether this stands in a paragraph, and in none of the parts left out."""
    inside = False
    while node.parent is not None:
        if isinstance(node, WITHOUT_TERMS):
            return False
        if isinstance(node, nodes.Element) and "cell_output" in node["classes"]:
            return False
        inside = inside or isinstance(node, nodes.paragraph)
        node = node.parent
    return inside


def join_texts(node: nodes.Element) -> None:
    """Make texts that stand side by side one: each end of a line begins another."""
    children: list[nodes.Node] = []
    for child in node.children:
        if isinstance(child, nodes.Text) and children and is_text(children[-1]):
            children[-1] = nodes.Text(children[-1].astext() + child.astext())
        else:
            children.append(child)
            if isinstance(child, nodes.Element):
                join_texts(child)
    node.children = children
    for child in children:
        child.parent = node


def is_text(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Text)


def prose(doctree: nodes.document) -> Iterator[tuple[nodes.Text, str]]:
    """The texts of all paragraphs, each with what stands before it in its own."""
    for paragraph in doctree.findall(nodes.paragraph):
        join_texts(paragraph)
        before = ""
        for text in list(paragraph.findall(nodes.Text)):
            if is_prose(text):
                yield text, before
            before += text.astext()


@cache
def entries(env: BuildEnvironment) -> dict[str, tuple[str, str, str]]:
    """Of each term: the page and the anchor of its entry, and the first sentence."""
    found = {}
    objects = env.get_domain("std").get_objects()
    for page in sorted({one[3] for one in objects if one[2] == "term"}):
        for item in env.get_doctree(page).findall(nodes.definition_list_item):
            definition = next(iter(item.findall(nodes.definition)), None)
            for term in item.findall(nodes.term):
                if definition is not None and term["ids"]:
                    says = SENTENCE.split(plain(definition))[0]
                    name = term.astext().replace("’", "'")
                    found[name] = (page, term["ids"][0], says)
    return found


def link(
    app: Sphinx, page: str, entry: tuple[str, str, str], children: list[nodes.Node]
) -> nodes.reference:
    """A link to an entry, around words of the page."""
    address = f"{app.builder.get_relative_uri(page, entry[0])}#{entry[1]}"
    made = nodes.reference(
        "", "", *children, internal=True, refuri=address, reftitle=entry[2]
    )
    made["classes"].append(CLASS)
    return made


def link_first_uses(
    doctree: nodes.document, page: str, known: Terms, linked: set[str], make: Any
) -> None:
    """Put a link, which `make(term, words)` makes, around the first use of each term.

    `linked` are the terms that the page links already.
    """
    for text, before in list(prose(doctree)):
        whole, parts, last = text.astext(), [], 0
        for start, end, term in known.mentions(whole, before):
            if term not in linked and known.is_meant(term, page):
                linked.add(term)
                parts += [nodes.Text(whole[last:start]), make(term, whole[start:end])]
                last = end
        if parts:
            parts.append(nodes.Text(whole[last:]))
            text.parent.replace(text, [part for part in parts if part.astext()])


def link_page(app: Sphinx, doctree: nodes.document, page: str) -> None:
    found = entries(app.env)
    if not found or page in {entry[0] for entry in found.values()}:
        return  # a book without the glossary has nothing to link to
    by_anchor = {entry[1]: term for term, entry in found.items()}
    linked = set()
    for reference in doctree.findall(nodes.reference):
        _, _, anchor = reference.get("refuri", "").partition("#")
        if anchor in by_anchor and list(reference.findall(nodes.inline)):
            linked.add(by_anchor[anchor])
            reference["classes"].append(CLASS)
            reference["reftitle"] = found[by_anchor[anchor]][2]

    def make(term: str, words: str) -> nodes.reference:
        return link(app, page, found[term], [nodes.Text(words)])

    link_first_uses(doctree, page, terms(), linked, make)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-resolved", link_page, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
