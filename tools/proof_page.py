"""What `book/proof.md` shows, made from the reports that the tests and tools write.

The page has prose, and marks such as `{{ proof_planted }}`; `values` has a number or a
piece of Markdown for each. Nobody types a number.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import book_labels
import identities
from proof import BIASED, EXAMPLES, FOLLOWED, HOSTILE, ROOT, Counts, read

TESTS = ROOT / "tests"
Row = Sequence[object]
OF_MUTANTS = (
    "proof_mutants",
    "proof_mutants_noticed",
    "proof_score",
    "proof_survived",
    "proof_equivalent",
    "proof_table_mutants",
    "proof_list_survivors",
)


def number(value: int) -> str:
    return f"{value:,}"


def power_of_ten(value: float) -> str:
    """3e-16 as a formula."""
    digit, exponent = f"{value:.0e}".split("e")
    return rf"${digit} \times 10^{{{int(exponent)}}}$"


def code(text: str) -> str:
    """As code in a cell of a table."""
    return "`` " + " ".join(text.split()).replace("|", "\\|") + " ``" if text else ""


def table(heads: Sequence[str], rows: Iterable[Row]) -> str:
    """A table; a head that begins with > is of a column of numbers."""
    marks = ["---:" if head.startswith(">") else "---" for head in heads]
    lines = [
        "| " + " | ".join(head.removeprefix(">") for head in heads) + " |",
        "| " + " | ".join(marks) + " |",
    ]
    for row in rows:
        cells = (number(x) if isinstance(x, int) else str(x) for x in row)
        lines.append("| " + " | ".join(cells) + " |")
    content = "\n".join(lines)
    return f"```{{table}}\n:class: sd-proof\n\n{content}\n```"


def dropdown(title: str, content: str) -> str:
    return f"````{{dropdown}} {title}\n{content}\n````"


def about(module: str) -> str:
    """The first sentence that a file of tests says of itself."""
    text = (TESTS / f"{module}.py").read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(text)) or ""
    return " ".join(said.split("\n\n")[0].split()).replace("|", "\\|")


def by_file(tests: Counts, what: str, *more: str) -> list[list[object]]:
    """For each file that counted ``what``: what it is about, and its counts."""
    return [
        [about(module), *(counts.get(each, 0) for each in (what, *more)), code(module)]
        for module, counts in tests.items()
        if what in counts
    ]


def total(tests: Counts, what: str) -> int:
    return sum(counts.get(what, 0) for counts in tests.values())


def hostile(tests: Counts) -> Counter[str]:
    """How many hostile inputs of each kind, in all files together."""
    found: Counter[str] = Counter()
    for counts in tests.values():
        for name, n in counts.items():
            if name.startswith(HOSTILE):
                found[name.removeprefix(HOSTILE)] += n
    return found


def hostile_by_file(tests: Counts) -> list[list[object]]:
    rows: list[list[object]] = []
    for module, counts in tests.items():
        kinds = [n for name, n in counts.items() if name.startswith(HOSTILE)]
        if kinds:
            rows.append([about(module), len(kinds), sum(kinds), code(module)])
    return rows


def test_name(killed_by: str) -> str:
    """`tests/unit/test_a.py::test_b[1]` as `unit/test_a::test_b`."""
    module, _, name = killed_by.partition("::")
    module = module.removeprefix("tests/").removesuffix(".py")
    return f"{module}::{name.partition('[')[0]}"


def grouped(entries: Iterable[Any], key: Any) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return groups


def planted(found: dict[str, Any]) -> str:
    """The catalogue of planted faults, a list that opens for each part."""
    lists = []
    for area, faults in grouped(found["faults"], lambda f: f["area"]).items():
        noticed = sum(fault["killed_by"] is not None for fault in faults)
        rows = [
            (
                fault["name"].replace("|", "\\|"),
                fault["effect"].replace("|", "\\|"),
                code(test_name(fault["killed_by"])) if fault["killed_by"] else "none",
            )
            for fault in faults
        ]
        title = f"{area[0].upper()}{area[1:]}: {len(faults)} planted, {noticed} noticed"
        lists.append(dropdown(title, table(("Fault", "Effect", "Noticed by"), rows)))
    return "\n\n".join(lists)


def met(faults: Sequence[Any]) -> str:
    """The faults that others met, a list that opens for each kind."""
    lists = []
    for kind, entries in grouped(faults, lambda entry: entry.kind).items():
        rows = []
        for entry in entries:
            watch = "<br>".join(code(test) for test in entry.tests)
            more = f"<br>{entry.why_not}" if entry.why_not else ""
            rows.append((entry.fault.replace("|", "\\|"), watch + more))
        title = f"{kind[0].upper()}{kind[1:]}: {len(entries)}"
        lists.append(dropdown(title, table(("What went wrong", "Watched by"), rows)))
    return "\n\n".join(lists)


def mutants(root: Path = TESTS) -> dict[str, str]:
    """Of the report of the mutation tool: numbers, a table, and the survivors."""
    path = root / "mutation_report.json"
    if not path.exists():
        return dict.fromkeys(OF_MUTANTS, "(not counted yet: `make mutants`)")
    found = json.loads(path.read_text(encoding="utf-8"))
    heads = ("Module", ">Mutants", ">Noticed", ">By time alone", ">Survived")
    keys = ("mutants", "killed", "timeouts", "survived")
    modules = found["modules"]
    rows = [
        [code(name), *(each[key] for key in keys)] for name, each in modules.items()
    ]
    lists = []
    for module, survivors in grouped(found["survivors"], lambda s: s["module"]).items():
        reasons = [
            (
                code(each["function"]),
                f"{code(each['old'])} becomes {code(each['new'])}",
                each["reason"].replace("|", "\\|"),
            )
            for each in survivors
        ]
        columns = ("Where", "Change", "Why no test sees it")
        title = f"{module}: {len(survivors)} survived"
        lists.append(dropdown(title, table(columns, reasons)))
    return {
        "proof_mutants": number(found["mutants"]),
        "proof_mutants_noticed": number(found["killed"]),
        "proof_score": f"{100 * found['killed'] / found['mutants']:.1f}",
        "proof_survived": number(found["survived"]),
        "proof_equivalent": number(found["equivalent"]),
        "proof_table_mutants": table(heads, rows),
        "proof_list_survivors": "\n\n".join(lists),
    }


def formulas() -> str:
    """Each labelled formula and theorem, as a link, and its test."""
    tests = identities.tied()
    rows = [
        (
            f"{'formula ' * (label.role == 'eq')}{{{label.role}}}`{name}`",
            "<br>".join(code(test_name(t)) for t in tests[name]),
        )
        for name, label in book_labels.statements().items()
        if name in tests
    ]
    title = f"All {len(rows)} formulas and theorems"
    return dropdown(title, table(("Formula or theorem", "Test"), rows))


def values() -> dict[str, str]:
    """What stands in place of each mark of the page."""
    sys.path.insert(0, str(TESTS))
    from faults_list import FAULTS

    kept = read()
    tests: Counts = kept["tests"]
    faults = json.loads((TESTS / "planted_faults_report.json").read_text("utf-8"))
    kinds = hostile(tests)
    areas = grouped(faults["faults"], lambda fault: fault["area"])
    kinds_table = table(("Kind", ">Tried"), kinds.most_common())
    return {
        "proof_settings": number(total(tests, FOLLOWED)),
        "proof_error": power_of_ten(kept["largest_error"]),
        "proof_biased": number(total(tests, BIASED)),
        "proof_table_settings": table(
            ("Tests", ">Exact", ">With a fault", "File"),
            by_file(tests, FOLLOWED, BIASED),
        ),
        "proof_planted": number(faults["planted"]),
        "proof_noticed": number(faults["killed"]),
        "proof_areas": number(len(areas)),
        "proof_list_planted": planted(faults),
        "proof_examples": number(total(tests, EXAMPLES)),
        "proof_table_examples": table(
            ("Tests", ">Examples", "File"), by_file(tests, EXAMPLES)
        ),
        "proof_hostile": number(kinds.total()),
        "proof_kinds": number(len(kinds)),
        "proof_table_hostile": table(
            ("Tests", ">Kinds", ">Tried", "File"), hostile_by_file(tests)
        ),
        "proof_list_kinds": dropdown(f"All {len(kinds)} kinds", kinds_table),
        "proof_identities": number(len(identities.tied())),
        "proof_wrong": number(identities.wrong_formulas()),
        "proof_list_identities": formulas(),
        "proof_met": number(len(FAULTS)),
        "proof_met_in_part": number(sum(bool(entry.why_not) for entry in FAULTS)),
        "proof_list_met": met(FAULTS),
        **mutants(),
    }
