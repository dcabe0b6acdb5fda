"""The page about what was checked says what the reports say, and nothing else."""

from __future__ import annotations

import json
import re

import proof
import proof_page as page
import pytest
from book_labels import statements
from faults_list import FAULTS

MARK = re.compile(r"\{\{ (\w+) \}\}")


@pytest.fixture(scope="module")
def values():
    return page.values()


@pytest.fixture(scope="module")
def text():
    return (page.ROOT / "book" / "proof.md").read_text(encoding="utf-8")


def test_every_mark_has_a_value_and_every_value_a_mark(text, values):
    assert set(MARK.findall(text)) == set(values)
    assert all(values.values())


def test_no_number_is_typed(text):
    """But in names, in the tolerance of a comparison, and chapter 5."""
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)|\$10\^\{-12\}\$", " ", MARK.sub(" ", text))
    assert re.findall(r"\d+", prose.replace("hapter 5", "")) == []


def test_every_report_is_there():
    """Else: make faults, make mutants, make proof."""
    for name in ("planted_faults_report", "mutation_report", "proof_report"):
        assert (page.TESTS / f"{name}.json").exists(), name


def test_sums_are_those_of_the_reports(values):
    kept = json.loads(proof.KEPT.read_text(encoding="utf-8"))
    names = {
        "proof_settings": "settings followed on every path",
        "proof_biased": "settings with a planted fault",
        "proof_examples": "property examples",
        "proof_hostile": "hostile inputs: ",
    }
    for mark, name in names.items():
        counts = (
            n
            for counts in kept["tests"].values()
            for what, n in counts.items()
            if what.startswith(name)
        )
        assert int(values[mark].replace(",", "")) == sum(counts)
    assert proof.Counted().largest_error < kept["largest_error"] < 1e-12
    digit, exponent = f"{kept['largest_error']:.0e}".split("e")
    assert values["proof_error"] == rf"${digit} \times 10^{{{int(exponent)}}}$"


def rows(markdown):
    return [line for line in markdown.splitlines() if line.startswith("| ")]


def test_each_planted_fault_has_a_row(values):
    report = json.loads((page.TESTS / "planted_faults_report.json").read_text("utf-8"))
    shown = values["proof_list_planted"]
    areas = {fault["area"] for fault in report["faults"]}
    assert len(rows(shown)) == len(report["faults"]) + 2 * len(areas)
    for fault in report["faults"]:
        name = fault["name"].replace("|", "\\|")
        (row,) = [row for row in rows(shown) if row.startswith(f"| {name} |")]
        assert page.test_name(fault["killed_by"]) in row


def test_each_fault_that_others_met_has_a_row(values):
    assert values["proof_met"] == str(len(FAULTS))
    kinds = {entry.kind for entry in FAULTS}
    assert len(rows(values["proof_list_met"])) == len(FAULTS) + 2 * len(kinds)
    for entry in FAULTS:
        assert all(test in values["proof_list_met"] for test in entry.tests)
        assert entry.why_not in values["proof_list_met"]


def test_each_formula_has_a_row(values):
    """The roles make links of them; the table is in the order of the book."""
    said = statements()
    shown = rows(values["proof_list_identities"])[2:]
    assert values["proof_identities"] == str(len(said)) == str(len(shown))
    for row, (name, label) in zip(shown, said.items(), strict=True):
        assert f"{{{label.role}}}`{name}` | `` unit/identities/test_" in row
    assert int(values["proof_wrong"]) > 2 * len(said)


def mutation_report(folder):
    survivors = [
        {
            "module": "sampling",
            "function": "Sampler.__call__",
            "line": "a = b | c",
            "old": "b | c",
            "new": "b",
            "equivalent": True,
            "reason": "c is part of b | d.",
        }
    ]
    module = {"mutants": 200, "killed": 199, "timeouts": 3, "survived": 1}
    found = {"mutants": 200, "killed": 199, "timeouts": 3, "survived": 1}
    found |= {"equivalent": 1, "modules": {"sampling": module}, "survivors": survivors}
    (folder / "mutation_report.json").write_text(json.dumps(found), encoding="utf-8")


def test_mutants(tmp_path):
    without = page.mutants(tmp_path)
    assert set(without) == set(page.OF_MUTANTS)
    mutation_report(tmp_path)
    found = page.mutants(tmp_path)
    assert set(found) == set(page.OF_MUTANTS)
    assert found["proof_score"] == "99.5"
    assert found["proof_mutants_noticed"] == "199"
    assert "| `` sampling `` | 200 | 199 | 3 | 1 |" in found["proof_table_mutants"]
    (row,) = [row for row in rows(found["proof_list_survivors"]) if "__call__" in row]
    assert "| `` b \\| c `` becomes `` b `` | c is part of b \\| d. |" in row


def test_a_table_and_its_numbers():
    shown = page.table(("Kind", ">Tried"), [("cut", 1234), ("more", 5)])
    assert shown.split("\n")[3:-1] == [
        "| Kind | Tried |",
        "| --- | ---: |",
        "| cut | 1,234 |",
        "| more | 5 |",
    ]
    assert page.power_of_ten(3e-16) == r"$3 \times 10^{-16}$"


def test_files_are_told_by_their_first_sentence():
    said = page.about("unit/test_proof_page")
    assert said == " ".join(__doc__.split())
    for module in proof.read()["tests"]:
        assert page.about(module).endswith(".")
