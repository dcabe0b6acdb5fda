"""No numbered formula or theorem of the book is without a test, and none has changed
behind its test's back."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import identities_kit
import pytest
from book_labels import FORMULA, Label, labels, statements
from identities import (
    HEAD,
    KEPT,
    TESTS,
    keep,
    kept,
    problems,
    tied,
    written,
    wrong_formulas,
)

FILES = sorted((Path(__file__).parent / "identities").glob("test_*.py"))


def test_no_label_is_without_a_test():
    """Nor a test without a label, nor a formula that reads otherwise than its test."""
    assert problems(statements(), tied(), kept()) == []


def test_the_labels_are_those_that_the_book_is_known_to_have():
    """A reader of labels that finds none would find nothing amiss."""
    said = statements()
    assert len(said) >= 46
    assert said["eq-08-tokens"].reads == r"N(k) = \frac{1 - \alpha^{k+1}}{1 - \alpha}"
    assert said["thm-08-tokens"].kind == "theorem"
    assert said["thm-08-tokens"].reads.startswith("Tokens per call\nIf each guess")
    assert "eq-08-tokens" in said["thm-08-tokens"].reads
    assert said["def-03-cost"].place == "notebooks/03_one_token_at_a_time.ipynb"
    assert "fig-08-tokens" not in said
    assert labels()["fig-08-tokens"].kind == "figure"


def test_every_tied_test_is_run_with_its_label():
    """What the source says is what pytest collects: nothing is tied and not run."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", str(FILES[0].parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    collected = done.stdout.splitlines()
    for places in tied().values():
        for place in places:
            name = place.removeprefix("tests/unit/")
            cases = [line for line in collected if f"{name}[" in line]
            assert any("as it stands" in case for case in cases), place
            assert any("fails with" in case for case in cases), place
    in_sources = sum(
        isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        for path in FILES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
    )
    assert in_sources == sum(map(len, tied().values()))
    assert wrong_formulas() == sum("[fails with" in line for line in collected)


# -- The kit


def test_a_formula_that_is_wrong_must_fail():
    tie = identities_kit.identity("eq-x", 2, wrong={"three": 3})

    @tie
    def test_it(formula):
        """Says so."""
        assert formula == 2

    run = test_it
    [parameters] = [m for m in run.pytestmark if m.name == "parametrize"]
    assert [p.id for p in parameters.args[1]] == ["as it stands", "fails with three"]
    assert [m.args for m in run.pytestmark if m.name == "identity"] == [("eq-x",)]
    assert (run.__name__, run.__doc__) == ("test_it", "Says so.")
    run(2, True)
    run(3, False)
    with pytest.raises(AssertionError):
        run(3, True)
    with pytest.raises(pytest.fail.Exception):
        run(2, False)  # a wrong formula that passes
    with pytest.raises(ValueError, match="eq-x: without a wrong formula"):
        identities_kit.identity("eq-x", 2, wrong={})


def test_rows_are_all_there_are():
    grid = identities_kit.rows(3, 4)
    assert len(grid) == len(set(grid)) == 15
    assert all(sum(row) == 1 and min(row) >= 0 for row in grid)
    assert identities_kit.rows(1, 3) == [(1,)]
    table = identities_kit.random_rows(1, 3, 2)
    assert len(table) == 1 + 3 + 9
    assert all(sum(row) == 1 and min(row) > 0 for row in table.values())
    whole = sum(identities_kit.chance(table, t) for t in identities_kit.texts(3, 3))
    assert whole == 1
    assert identities_kit.close([1, 2], [1, 2 + 1e-13])
    assert not identities_kit.close([1, 2], [1, 2.1])
    assert not identities_kit.close([1, 2], [1])


# -- What is told of a fault

TEST = """\
from identities_kit import identity


@identity("eq-one", 1, wrong={"two": 2})
def test_one(formula):
    assert formula == 1
"""
PAGE = """\
# A page

$$
a  = b
$$ (eq-one)

Not numbered:

$$ c = d $$

```{prf:theorem} Two
:label: thm-two

It is
so.
```

```{prf:proof}
$$ e = f $$ (eq-in-proof)
```
<!--
$$ g = h $$ (eq-hidden)
-->
"""


@pytest.fixture
def book(tmp_path):
    """A book of one page and one notebook, with one test."""
    for folder in ("book", "notebooks", TESTS.as_posix()):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "book/page.md").write_text(PAGE, encoding="utf-8")
    cells = [
        {"cell_type": "raw", "metadata": {}, "source": "$$ x $$ (eq-raw)"},
        {
            "cell_type": "markdown",
            "metadata": {},
            "source": ["$$ i\n", " = j $$ (eq-n)"],
        },
    ]
    (tmp_path / "notebooks/01_a.ipynb").write_text(
        json.dumps({"cells": cells}), encoding="utf-8"
    )
    (tmp_path / TESTS / "test_a.py").write_text(TEST, encoding="utf-8")
    return tmp_path


def test_what_is_read_of_a_book(book):
    said = statements(book)
    assert said == {
        "eq-n": Label("eq-n", FORMULA, "notebooks/01_a.ipynb", "i\n= j"),
        "eq-one": Label("eq-one", FORMULA, "book/page.md", "a = b"),
        "eq-in-proof": Label("eq-in-proof", FORMULA, "book/page.md", "e = f"),
        "thm-two": Label("thm-two", "theorem", "book/page.md", "Two\nIt is\nso."),
    }
    assert tied(book) == {"eq-one": [f"{TESTS}/test_a.py::test_one"]}
    assert kept(book) == {}
    with (book / "book/page.md").open("a", encoding="utf-8") as file:
        file.write("\n$$ k = l $$ (eq-n)\n")
    with pytest.raises(ValueError, match=r"eq-n is given twice: .*01_a.* and book/pag"):
        statements(book)


def test_wrong_formulas_are_counted(book):
    assert wrong_formulas(book) == 1
    path = book / TESTS / "test_a.py"
    more = TEST.replace(
        '{"two": 2}', "{**OTHERS, 'b': 3, **{k: 1 for k in OTHERS.items()}}"
    )
    path.write_text(f"OTHERS = {{'c': 4, 'd': 5}}\n{TEST}{more}", encoding="utf-8")
    assert wrong_formulas(book) == 1 + 2 + 1 + 2
    path.write_text(TEST.replace('{"two": 2}', "dict(a=1)"), encoding="utf-8")
    with pytest.raises(ValueError, match="cannot count the entries of dict"):
        wrong_formulas(book)


def told(book):
    return problems(statements(book), tied(book), kept(book))


def test_each_fault_is_told(book):
    keep(list(statements(book)), book)
    without = {line.split(":")[1].split(" has no test")[0] for line in told(book)}
    assert without == {
        " the formula eq-n",
        " the formula eq-in-proof",
        " the theorem thm-two",
    }
    path = book / KEPT
    for name in ("eq-n", "eq-in-proof", "thm-two"):
        text = path.read_text(encoding="utf-8")
        text = text.replace(f"[{name}]", f'[{name}]\nuntested = "a \\"name\\""')
        path.write_text(text, encoding="utf-8")
    assert told(book) == []
    keep(["eq-one"], book)  # the reasons stay
    assert kept(book)["eq-n"] == {"untested": 'a "name"', "reads": "i\n= j\n"}
    assert told(book) == []

    page = book / "book/page.md"
    page.write_text(PAGE.replace("a  = b", "a = 2 b"), encoding="utf-8")
    [line] = told(book)
    assert line.startswith("book/page.md: eq-one reads otherwise than when its test")
    assert f"Look at {TESTS}/test_a.py::test_one, then: " in line
    assert line.endswith("tools/identities.py keep eq-one")
    keep(["eq-one"], book)
    assert told(book) == []
    page.write_text(PAGE.replace("a  = b", "a   =\n\n2   b"), encoding="utf-8")
    assert told(book) == []  # blanks and breaks of lines mean nothing

    page.write_text(PAGE.replace("a  = b", "a = 2 b").replace("-one", "-won"), "utf-8")
    assert [line.split(": ")[1] for line in told(book)] == [
        "the formula eq-won has no test; write one under "
        f'@identity("eq-won", ...) in {TESTS}',
        "the book has no label eq-one",
        "the book has no label eq-one",
    ]


def test_a_reason_beside_a_test_and_other_entries_are_told(book):
    keep(["eq-one"], book)
    said = {"eq-one": statements(book)["eq-one"]}
    entry = {"reads": "a = b", "untested": "why?", "more": "x"}
    assert problems(said, tied(book), {"eq-one": entry}) == [
        "eq-one has a test and a reason for having none",
        f"{KEPT}: eq-one has more than `reads` and `untested`",
    ]
    with pytest.raises(ValueError, match="no label eq-none"):
        keep(["eq-none"], book)
    with pytest.raises(ValueError, match="three quotation marks"):
        written(said, {"eq-one": {"reads": "'''"}})


def test_the_file_is_written_as_it_is_read(root):
    text = (root / KEPT).read_text(encoding="utf-8")
    assert text.startswith(HEAD)
    assert written(statements(), tomllib.loads(text)) == text
