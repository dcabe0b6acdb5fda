"""Heads and ends of the chapters, the table of the map and its picture agree."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from chapter_graph import (
    CONTENTS,
    MAP,
    PICTURE,
    Row,
    arrows,
    chapters,
    graph_problems,
    map_rows,
)

ROOT = Path(__file__).resolve().parents[2]
FIRST = [("1", "2"), ("1", "3"), ("2", "4"), ("3", "4"), ("4", "5"), ("5", "6")]


def test_the_book_agrees_with_itself() -> None:
    assert graph_problems() == []


def test_what_is_read_is_what_is_there() -> None:
    """Nothing read would be nothing amiss."""
    book = chapters()
    assert [chapter.number for chapter in book[:17]] == [str(i) for i in range(1, 18)]
    assert book[7].needs == (
        "03_one_token_at_a_time",
        "05_exact_sampling",
        "07_seeing_acceptance",
    )
    assert book[0].needs == ()
    assert book[0].then == ("02_smoothing_and_backoff.ipynb",)
    assert Row("8", "08_speedup_against_k", "Speedup against k", ("3", "5", "7")) in (
        map_rows()
    )
    assert arrows()[:6] == FIRST
    assert len(arrows()) == 17


def test_the_words_of_the_picture_say_what_it_shows() -> None:
    """Its text for those who do not see it names all chapters that arrows join."""
    page = (ROOT / MAP).read_text(encoding="utf-8")
    alt = re.search(r"^:alt: (.+)$", page, re.M)
    assert alt
    titles = {row.number: row.title for row in map_rows()}
    for ends in arrows():
        for number in ends:
            assert titles[number] in alt[1]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """The book's contents, its map and the first two cells and the ends of chapters."""
    for name in (CONTENTS, MAP, PICTURE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "notebooks").mkdir()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        kept = [
            cell
            for i, cell in enumerate(cells)
            if i == 0 or "**Next:**" in "".join(cell["source"])
        ]
        text = json.dumps({"cells": kept}, ensure_ascii=False)
        (tmp_path / "notebooks" / path.name).write_text(text, encoding="utf-8")
    assert graph_problems(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    "file, old, new, told",
    [
        (
            "notebooks/04_guess_then_check.ipynb",
            "(the target and the draft), [chapter 3](03",
            "(the target and the draft), [chapter 3](05",
            "notebooks/04_guess_then_check.ipynb: needs 05_one_token_at_a_time, which",
        ),
        (
            "notebooks/06_rules_that_look_right.ipynb",
            "**Needs** | [chapter 5](05_exact_sampling",
            "**Needs** | [chapter 8](08_speedup_against_k",
            "06_rules_that_look_right.ipynb: needs 08_speedup_against_k, which",
        ),
        (
            "notebooks/06_rules_that_look_right.ipynb",
            "**Needs** | [chapter 5](05_exact_sampling",
            "**Needs** | [chapter 4](04_guess_then_check",
            "chapter 6 needs 5 there and 4 by its own head",
        ),
        (
            "notebooks/02_smoothing_and_backoff.ipynb",
            "**Needs** | [](01_counting_words.ipynb)",
            "**Needs** | chapter 1",
            "chapter 2 needs 1 there and nothing by its own head",
        ),
        (
            "notebooks/05_exact_sampling.ipynb",
            "[Chapter 6](06_rules_that_look_right",
            "[Chapter 6](07_seeing_acceptance",
            "the first link of its Next must be to 06_rules_that_look_right.ipynb",
        ),
        (
            "notebooks/a_three_recipes.ipynb",
            "[The map](../book/map.md)",
            "The map",
            "the first link of its Next must be to map.md",
        ),
        (MAP, "| 4, 5, 7 |", "| 4, 7 |", "chapter 10 needs 4, 7 there and 4, 5, 7 by"),
        (MAP, "| 7 | [Seeing", "| 70 | [Seeing", "07_seeing_acceptance must have numb"),
        (
            MAP,
            "[Counting words]",
            "[Counting]",
            "'Counting' is titled 'Counting words'",
        ),
        (MAP, "| A | [Three", "| A | x [Three", "its table must have the chapters of"),
        (
            CONTENTS,
            "      - file: notebooks/03_one_token_at_a_time\n",
            "",
            "its table must have the chapters of",
        ),
        (
            PICTURE,
            'x1="160" y1="122" x2="187" y2="62"',
            'x1="160" y1="122" x2="357" y2="122"',
            "an arrow leads from 1 to 4, which does not need it",
        ),
        (PICTURE, 'd="M390 154L352', 'd="M450 154L352', None),
        (
            PICTURE,
            'L843 472" fill="none" stroke="#555555" stroke-width="1.6" marker-end',
            'L843 472" fill="none" stroke="#555555" stroke-width="1.6" marker-start',
            "no arrow leads to 17",
        ),
    ],
)
def test_a_disagreement_is_named(
    book: Path, file: str, old: str, new: str, told: str | None
) -> None:
    path = book / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    found = graph_problems(book)
    assert any(told in problem for problem in found) if told else not found, found


def test_an_arrow_into_nowhere_is_named(book: Path) -> None:
    path = book / PICTURE
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('x2="187" y2="62"', 'x2="177" y2="22"'), "utf-8")
    with pytest.raises(ValueError, match=r"an arrow ends at \(177, 22\), in no box"):
        graph_problems(book)
