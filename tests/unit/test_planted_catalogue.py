"""The catalogue of planted faults fits the library, and the tool tells the truth."""

from __future__ import annotations

import ast
import functools
import json

import planted_faults as tool
import pytest

FAULTS = tool.catalogue()
# These plant fragments of their own, and fail as soon as one of them is gone.
PLANT_THEMSELVES = ("exactness/test_planted_faults", "unit/test_planted_catalogue")


@functools.cache
def functions(module):
    text = (tool.ROOT / "tests" / f"{module}.py").read_text(encoding="utf-8")
    nodes = ast.parse(text).body
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_can_be_planted(fault):
    planted = fault.planted(tool.source_of(fault))
    compile(planted, fault.file, "exec")
    assert fault.effect.endswith(".")
    assert fault.tests
    for test in fault.tests:
        module, _, name = test.partition("::")
        assert name in functions(module), test
        assert module not in PLANT_THEMSELVES


def test_there_are_many_of_every_kind():
    assert len(FAULTS) > 100
    areas = [fault.area for fault in FAULTS]
    assert min(map(areas.count, areas)) >= 4
    changes = {(fault.file, fault.old, fault.new) for fault in FAULTS}
    assert len(changes) == len({fault.name for fault in FAULTS}) == len(FAULTS)


METRICS = "specdec_lib/metrics.py"
SECONDS = "unit/test_metrics::test_seconds_add_up"
NOTHING = "unit/test_metrics::test_a_ratio_of_nothing_is_none"


def test_the_report_is_of_this_catalogue():
    """Else: make faults."""
    path = tool.ROOT / "tests" / "planted_faults_report.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    killers = [each["killed_by"] for each in found["faults"]]
    assert found == tool.report(list(map(tool.entry, FAULTS, killers)))
    assert found["killed"] == found["planted"] == len(FAULTS)
    for fault, killer in zip(FAULTS, killers, strict=True):
        assert killer.partition("[")[0] in map(tool.node, fault.tests)


def written(path, *faults):
    """A catalogue with these: name, fragment, what takes its place, test."""
    lines = []
    for name, old, new, test in faults:
        fields = {"name": name, "area": "a", "effect": "b.", "file": METRICS}
        fields |= {"old": old, "new": new, "tests": [test]}
        lines += ["[[fault]]", *(f"{k} = {json.dumps(v)}" for k, v in fields.items())]
    path.write_text("\n".join(lines), encoding="utf-8")
    return ["--catalogue", str(path), "--all"]


RATIO = ("kills", "part / whole if whole else None", "part / whole", NOTHING)


def test_it_tells_the_killed_from_the_survivors(tmp_path, capfd):
    """The first two changes have one size, and next to no time between them."""
    source = tool.ROOT / METRICS
    before = source.read_bytes()
    arguments = written(
        tmp_path / "faults.toml",
        ("none", "the alpha of", "the Alpha of", SECONDS),
        ("one", "r.target_seconds for", "r.draft_seconds  for", SECONDS),
        RATIO,
    )
    report = tmp_path / "report.json"
    assert tool.main([*arguments, "--report", str(report)]) == 1
    found = json.loads(report.read_text(encoding="utf-8"))
    killers = [None, tool.node(SECONDS), tool.node(NOTHING)]
    assert [each["killed_by"] for each in found["faults"]] == killers
    assert (found["planted"], found["killed"]) == (3, 2)
    said = capfd.readouterr().out
    assert "none: SURVIVED" in said
    assert f"kills: killed by {tool.node(NOTHING)}" in said
    assert source.read_bytes() == before
    table = tool.as_markdown(found).splitlines()
    assert table[0] == "2 of 3 planted faults were noticed."
    assert table[4:6] == [
        "| none | b. | **nothing** |",
        f"| one | b. | `{tool.node(SECONDS)}` |",
    ]


def test_tests_that_fail_without_a_fault_prove_nothing(tmp_path, capfd):
    gone = (*RATIO[:3], "unit/test_metrics::test_that_is_not_there")
    assert tool.main(written(tmp_path / "faults.toml", gone)) == 2
    assert "Without any fault, these tests must pass" in capfd.readouterr().out


@pytest.mark.parametrize(
    "faults, message",
    [
        ([("f", "not there", "x", SECONDS)], "0 times in specdec_lib/metrics.py"),
        ([("f", "drafted", "x", SECONDS)], "must be there exactly once: 'drafted'"),
        ([("f", RATIO[1], RATIO[1], NOTHING)], "the new fragment is the old one"),
        ([RATIO, RATIO], "names must be unique, there twice: kills"),
    ],
)
def test_a_catalogue_that_does_not_fit_is_said_before_any_work(
    faults, message, tmp_path, capfd
):
    assert tool.main(written(tmp_path / "faults.toml", *faults)) == 2
    assert message in capfd.readouterr().out


def test_it_lists_what_there_is_and_knows_the_names(capfd):
    assert tool.main([]) == 0
    assert capfd.readouterr().out.count("\n") == len(FAULTS)
    with pytest.raises(SystemExit):
        tool.main(["--only", "no such fault"])
    assert "no fault of the name 'no such fault'" in capfd.readouterr().err


def test_a_report_keeps_what_is_known_of_other_faults(tmp_path):
    """And forgets faults that have changed since, or are gone."""
    path = tmp_path / "report.json"
    one, two, three = FAULTS[:3]
    assert tool.with_earlier([tool.entry(two, "b")], path, FAULTS) == [
        tool.entry(two, "b")
    ]
    changed = {**tool.entry(two, "c"), "new": "another"}
    gone = {**tool.entry(two, "d"), "name": "gone"}
    before = [changed, gone, tool.entry(three, None), tool.entry(one, "a")]
    tool.write_report(path, tool.report(before))
    kept = [tool.entry(one, "a"), tool.entry(three, None)]
    assert tool.with_earlier([], path, FAULTS) == kept
    now = tool.with_earlier([tool.entry(three, "e")], path, FAULTS)
    assert now == [tool.entry(one, "a"), tool.entry(three, "e")]
