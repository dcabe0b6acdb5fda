"""Every figure, formula and theorem with a label is spoken of, by the right role."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from book_labels import FIGURE, Reference, labels, reference_problems, references


def test_nothing_is_numbered_that_no_sentence_refers_to() -> None:
    assert reference_problems() == []


def test_the_references_are_those_that_the_book_is_known_to_have() -> None:
    """Nothing found would be nothing amiss."""
    assert len(references()) > 150
    chapter = "notebooks/08_speedup_against_k.ipynb"
    for role, name in (
        ("numref", "fig-08-tokens"),
        ("eq", "eq-08-tokens"),
        ("prf:ref", "thm-08-tokens"),
    ):
        assert Reference(role, name, chapter) in references()
    figures = [each for each in labels().values() if each.kind == FIGURE]
    assert len(figures) > 75


PAGE = """\
# A page

See {numref}`fig-a`, {eq}`eq-a`, {prf:ref}`thm-a` and {numref}`the table <tab-a>`.

$$ a = b $$ (eq-a)

```{prf:theorem}
:label: thm-a
So.
```

```{figure} a.svg
:name: fig-a
:alt: A picture

It shows b.
```

```{list-table}
:name: tab-a
* - 1
```
"""


def book(folder: Path, page: str = PAGE, *cells: dict[str, Any]) -> Path:
    (folder / "book").mkdir(exist_ok=True)
    (folder / "notebooks").mkdir(exist_ok=True)
    (folder / "book/page.md").write_text(page, encoding="utf-8")
    (folder / "notebooks/01_a.ipynb").write_text(
        json.dumps({"cells": cells}), encoding="utf-8"
    )
    return folder


def test_a_sound_book_passes(tmp_path: Path) -> None:
    assert reference_problems(book(tmp_path)) == []
    read = labels(tmp_path)
    assert read["fig-a"].reads == "a.svg\n:alt: A picture\nIt shows b."
    assert {name: each.kind for name, each in read.items()} == {
        "eq-a": "formula",
        "thm-a": "theorem",
        "fig-a": "figure",
        "tab-a": "list-table",
    }


@pytest.mark.parametrize(
    "old, new, told",
    [
        (
            "{numref}`fig-a`",
            "the figure",
            "nothing refers to the figure fig-a; say {nu",
        ),
        ("{eq}`eq-a`", "the formula", "nothing refers to the formula eq-a; say {eq}"),
        (
            "{prf:ref}`thm-a`",
            "it",
            "nothing refers to the theorem thm-a; say {prf:ref}",
        ),
        ("{numref}`the table <tab-a>`", "it", "nothing refers to the list-table tab-a"),
        ("{eq}`eq-a`", "<!-- {eq}`eq-a` -->", "nothing refers to the formula eq-a"),
        ("{eq}`eq-a`", "{ref}`eq-a`", "nothing refers to the formula eq-a"),
        ("{eq}`eq-a`", "{eq}`eq-a`, {ref}`eq-a`", "{ref}`eq-a` must be {eq}"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert PAGE.count(old) == 1
    found = reference_problems(book(tmp_path, PAGE.replace(old, new)))
    assert any(told in problem for problem in found), found
    assert all(problem.startswith("book/page.md: ") for problem in found)


def test_where_nobody_looks_a_reference_does_not_count(tmp_path: Path) -> None:
    """Captions and solutions; but what stands around a solution is seen."""
    figure = {"mystnb": {"figure": {"name": "fig-c", "caption": "As {eq}`eq-c` says."}}}
    code = {"cell_type": "code", "metadata": figure, "source": "x"}

    def text(source: str) -> dict[str, Any]:
        return {"cell_type": "markdown", "metadata": {}, "source": source}

    opens = "Try it.\n```{solution-start} ex-a\n:class: dropdown\n```\n"
    closes = "```{solution-end}\n```\n"
    hidden = "```{solution} ex-b\n:class: dropdown\nBy {eq}`eq-c`.\n```\n"
    cells = [
        text("$$ c $$ (eq-c)"),
        code,
        text(hidden),
        text(opens),
        text("By {eq}`eq-c` and {numref}`fig-c`."),
        text(closes),
    ]
    found = reference_problems(book(tmp_path, PAGE, *cells))
    assert [problem.split("; ")[0] for problem in found] == [
        "notebooks/01_a.ipynb: nothing refers to the formula eq-c",
        "notebooks/01_a.ipynb: nothing refers to the figure fig-c",
    ]
    cells[3] = text("By {eq}`eq-c`. " + opens)
    cells[5] = text(closes + "See {numref}`fig-c`.")
    assert reference_problems(book(tmp_path, PAGE, *cells)) == []
