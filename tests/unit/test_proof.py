"""What the tests count is read, kept and compared as it is."""

from __future__ import annotations

import json

import proof as tool
import pytest

REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_one" file="tests/unit/test_a.py">
<properties>
<property name="property examples" value="100" />
<property name="hostile inputs: forged" value="3" />
</properties></testcase>
<testcase classname="tests.unit.test_a" name="test_two" file="tests/unit/test_a.py">
<properties>
<property name="hostile inputs: forged" value="4" />
<property name="something else" value="x" />
</properties></testcase>
<testcase classname="tests.unit.test_b" name="test_three" file="tests/unit/test_b.py">
<properties>
<property name="settings followed on every path" value="5" />
<property name="largest error" value="3.2e-16" />
</properties>{more}</testcase>
</testsuite></testsuites>"""
FORGED = tool.HOSTILE + "forged"
A = {FORGED: 7, tool.EXAMPLES: 100}
B = {tool.FOLLOWED: 5}


def written(folder, step="unit", more=""):
    folder.mkdir(exist_ok=True)
    path = folder / f"{step}.xml"
    path.write_text(REPORT.format(more=more), encoding="utf-8")
    return path


def test_counts_are_added_up_for_each_file(tmp_path):
    found = tool.counted(written(tmp_path))
    assert found.tests == {"unit/test_a": A, "unit/test_b": B}
    assert found.largest_error == 3.2e-16
    assert found.partly == set()


def test_a_skipped_test_is_remembered_and_a_failed_one_ends_it(tmp_path):
    skipped = '<skipped type="pytest.skip" message="no package"/>'
    assert tool.counted(written(tmp_path, more=skipped)).partly == {"unit/test_b"}
    expected = '<skipped type="pytest.xfail" message="known"/>'
    assert tool.counted(written(tmp_path, more=expected)).partly == set()
    with pytest.raises(ValueError, match="unit/test_b::test_three failed"):
        tool.counted(written(tmp_path, more='<failure message="no"/>'))


def kept(**tests):
    names = {f"unit/test_{name}": counts for name, counts in tests.items()}
    return {"tests": names, "largest_error": 4e-16}


@pytest.mark.parametrize(
    "before, said",
    [
        (kept(a=A, b=B), []),
        (kept(a=A, b={tool.FOLLOWED: 6}), ["5 were counted, kept: 6"]),
        (kept(a=A), ["5 were counted, kept: 0"]),
        (kept(a=A, b=B, c={FORGED: 1}), ["0 were counted, kept: 1"]),
        (kept(a=A, b=B) | {"largest_error": 1e-17}, ["largest error 3e-16"]),
        (kept(a={**A, FORGED: 1_000}, b=B), ["7 were counted, kept: 1,000"]),
    ],
)
def test_a_difference_is_told(tmp_path, before, said):
    lines = tool.differences(before, tool.counted(written(tmp_path)), "unit")
    assert len(lines) == len(said)
    for line, part in zip(lines, said, strict=True):
        assert part in line


def test_other_steps_are_not_compared(tmp_path):
    before = kept(a=A, b=B)
    before["tests"]["llama/test_d"] = {FORGED: 9}
    assert tool.differences(before, tool.counted(written(tmp_path)), "unit") == []


def test_where_tests_were_skipped_less_may_be_counted_and_not_more(tmp_path):
    now = tool.counted(written(tmp_path, more='<skipped type="pytest.skip"/>'))
    assert tool.differences(kept(a=A, b={tool.FOLLOWED: 6}), now, "unit") == []
    assert tool.differences(kept(a=A, b={tool.FOLLOWED: 4}), now, "unit")
    again = tool.with_step(kept(a=A, b={tool.FOLLOWED: 6}), now, "unit")
    assert again["tests"]["unit/test_b"] == {tool.FOLLOWED: 6}


def test_keep_and_check_agree(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tool, "REPORTS", tmp_path)
    monkeypatch.setattr(tool, "telling", lambda step: [step])
    path = tmp_path / "kept.json"
    written(tmp_path, "unit")
    assert tool.check(["unit"], path) == 1
    assert "make proof" in capsys.readouterr().out
    tool.keep(["unit"], path)
    assert tool.check(["unit"], path) == 0
    tests = json.loads(path.read_text(encoding="utf-8"))["tests"]
    assert tests == {"unit/test_a": A, "unit/test_b": B}
    assert tool.main(["check", "exactness"]) == 2  # there is no such report


def test_the_largest_error_is_that_of_the_exactness_step(tmp_path):
    now = tool.counted(written(tmp_path))
    assert tool.with_step(kept(), now, "exactness")["largest_error"] == 4e-16
    older = {"tests": {}, "largest_error": 9e-13}
    assert tool.with_step(older, now, "unit")["largest_error"] == 9e-13
    assert [tool.rounded_up(x) for x in (0, 1e-16, 1.01e-16, 9.5e-16)] == [
        0,
        1e-16,
        2e-16,
        1e-15,
    ]


def test_examples_that_passed():
    said = (
        "a::b:\n\n  - during reuse phase (0.01 seconds):\n"
        "    - 3 passing, 0 failing, and 0 invalid test cases\n\n"
        "  - during generate phase (0.77 seconds):\n    - Typical runtimes: ~ 0-2 ms\n"
        "    - 200 passing, 0 failing, and 94 invalid test cases\n\n"
        "  - Stopped because settings.max_examples=200"
    )
    assert tool.passing_examples(said) == 203
    older = said.replace("passing", "passing examples")
    assert tool.passing_examples(older) == 203
    with pytest.raises(ValueError, match="not told"):
        tool.passing_examples(said.replace("passing", "fine"))


def test_a_step_is_read_where_it_is_written():
    assert f"--junitxml={tool.REPORTS / 'unit.xml'}" in tool.options("unit")


def test_files_that_count_are_found():
    assert "tests/unit/test_hostile_files.py" in tool.telling("unit")
    assert "tests/exactness/test_exact.py" in tool.telling("exactness")
    assert "tests/unit/test_metrics.py" not in tool.telling("unit")
