"""Terms of the glossary are found in a text and linked where it first uses them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from docutils import nodes
from docutils.core import publish_doctree

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools" / "sphinx_ext"))

import glossary  # noqa: E402
import glossary_links  # noqa: E402
from glossary import Terms  # noqa: E402

KNOWN = Terms(
    ("acceptance rate", "rate", "KV cache", "load", "draft", "Little's law"),
    {"draft": ["drafts"], "rate": ["rates"]},
    {"load": ["engine"]},
    ["to draft"],
)


def linked(text: str, page: str = "page", already: str = "") -> str:
    """The text of a small document, with its links in brackets."""
    tree = publish_doctree(text, settings_overrides={"report_level": 5})
    glossary_links.link_first_uses(
        tree,
        page,
        KNOWN,
        {already},
        lambda term, words: nodes.reference("", f"[{words}|{term}]"),
    )
    return tree.astext()


@pytest.mark.parametrize(
    "text, expected",
    [
        # The first use, and no other, in this paragraph and below.
        ("A draft, a draft.\n\nA draft.", "A [draft|draft], a draft.\n\nA draft."),
        # The longest term first; it does not use up the shorter one inside.
        (
            "The acceptance rate, an acceptance rate and a rate.",
            "The [acceptance rate|acceptance rate], an acceptance rate and a "
            "[rate|rate].",
        ),
        # Forms that are declared, and no stems that are guessed.
        ("Two drafts.", "Two [drafts|draft]."),
        ("He drafted it, drafting.", "He drafted it, drafting."),
        # Not inside words, nor beside a hyphen.
        ("Overdraft, redraft, draft-like.", "Overdraft, redraft, draft-like."),
        # A capital where a sentence begins, and nowhere else.
        ("Draft it.", "[Draft|draft] it."),
        ("Well. Drafts help.", "Well. [Drafts|draft] help."),
        ("The Draft of it.", "The Draft of it."),
        ("**Draft** it.", "[Draft|draft] it."),
        ("The *Draft* of it.", "The Draft of it."),
        ("A kv cache; the KV cache.", "A kv cache; the [KV cache|KV cache]."),
        # Over the end of a line, with either apostrophe, before a possessive.
        ("An acceptance\nrate.", "An [acceptance\nrate|acceptance rate]."),
        ("By Little’s law.", "By [Little’s law|Little's law]."),
        ("The draft's own.", "The [draft|draft]'s own."),
        # A phrase in which no term is meant.
        ("How to draft a draft.", "How to draft a [draft|draft]."),
    ],
)
def test_what_is_linked(text: str, expected: str) -> None:
    assert linked(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Draft\n=====\n\nNone here.",
        "``draft`` :math:`draft` `draft <https://a.org>`_",
        "Code::\n\n  draft",
        "===== =====\ndraft draft\n===== =====",
        ".. figure:: a.png\n   :alt: draft\n\n   The draft.\n\n   A draft.",
    ],
)
def test_what_is_left_out(text: str) -> None:
    assert "|draft]" not in linked(text)
    assert "|draft]" in linked(text + "\n\nThen a draft.")


def test_what_a_chapter_printed_is_left_out() -> None:
    printed = nodes.container("", nodes.paragraph("", "A draft."))
    printed["classes"].append("cell_output")
    tree = publish_doctree("")
    tree += printed
    assert list(glossary_links.prose(tree)) == []


def test_lists_and_notes_are_prose() -> None:
    assert linked("- a draft") == "a [draft|draft]"
    assert "[draft|draft]" in linked(".. note::\n\n   A draft.")


def test_texts_side_by_side_are_read_as_one() -> None:
    tree = publish_doctree("Of an *acceptance*")
    (stress,) = tree.findall(nodes.emphasis)
    stress.extend([nodes.Text("\n"), nodes.Text("rate.")])
    glossary_links.link_first_uses(
        tree, "page", KNOWN, set(), lambda term, words: nodes.reference("", f"[{term}]")
    )
    assert tree.astext() == "Of an [acceptance rate]."


def test_a_word_of_every_day_is_a_term_on_its_pages_alone() -> None:
    assert linked("A load.") == "A load."
    assert linked("A load.", page="engine") == "A [load|load]."


def test_a_term_that_the_page_links_itself_is_not_linked_again() -> None:
    assert linked("A draft.", already="draft") == "A draft."


def test_the_table_is_checked() -> None:
    with pytest.raises(ValueError, match="no such entry"):
        Terms(("draft",), {"darft": ["drafts"]})
    with pytest.raises(ValueError, match="'rates' is a form of"):
        Terms(("rate", "speed"), {"rate": ["rates"], "speed": ["rates"]})


def test_entries_are_read_from_the_source() -> None:
    source = "# G\n\n```{glossary}\none term\n  Says.\n\nother\n  Says.\n```\n\nEnd\n"
    assert glossary.entries(source) == ["one term", "other"]


def test_the_glossary_is_sorted_and_its_table_fits() -> None:
    names = glossary.terms().names
    assert len(names) > 90
    assert [n for n in names if n in ("draft", "temperature")]
    assert list(names) == sorted(
        names, key=lambda name: name.lower().replace("-", " ").replace("–", " ")
    )


def test_pages_of_the_table_are_there(root: Path) -> None:
    for term, pages in glossary.terms().only.items():
        for page in pages:
            assert list(root.glob(f"{page}.*")), (term, page)
