"""The mutation tool makes the mutants it says, and its report is of these sources."""

from __future__ import annotations

import json

import mutants as tool
import pytest

SAMPLE = '''"""A docstring with 1 < 2."""
__all__ = ["share"]
Pair = tuple[int, 2]


def share(a: int, b=2) -> "1 + 1":
    """Not this: 3."""
    if a < b and a:
        raise ValueError(f"a must be {b + 1} or more")
    return a[1:]
'''
BY_HAND = {
    ("", "b: 2", "3"),
    ("", "b: 2", "1"),
    ("share", "a < b and a", "True"),
    ("share", "a < b and a", "False"),
    ("share", "a < b and a", "a < b or a"),
    ("share", "a < b and a", "a < b"),
    ("share", "a < b and a", "a"),
    ("share", "a < b", "a <= b"),
    ("share", "ValueError", "TypeError"),
    ("share", 'raise ValueError(f"a must be {b + 1} or more")', "pass"),
    ("share", "a[1:]", "None"),
    ("share", "a[1:]", "a[:]"),
    ("share", "1", "2"),
    ("share", "1", "0"),
}


def test_the_mutants_of_a_sample_are_those_made_by_hand():
    """Names, annotations, types, docstrings and messages stay as they are."""
    found = tool.mutants_of("sample", SAMPLE)
    made = {(m.function, m.old, m.new) for m in found}
    assert made == {
        (where, old.removeprefix("b: "), new) for where, old, new in BY_HAND
    }
    assert len(found) == len(BY_HAND)
    assert [m.new for m in found if not m.living] == ["3", "1"]
    assert {m.line for m in found if m.function} == {
        "if a < b and a:",
        'raise ValueError(f"a must be {b + 1} or more")',
        "return a[1:]",
    }


@pytest.mark.parametrize(
    "code, others",
    [
        ("x == 1 is y", ["x != 1 is y", "x == 1 is not y", "x == 2 is y"]),
        ("x not in y", ["x in y"]),
        ("-x // y", ["-x / y", "x // y"]),
        ("max(x, 0.5)", ["min(x, 0.5)", "max(x)", "max(0.5)", "max(x, 1.0)"]),
        ("f(x, key='n')", ["f(x)", "f(x, key='')"]),
        ("x[i:n - 1]", ["x[i + 1:n - 1]", "x[i - 1:n - 1]", "x[:n - 1]", "x[i:]"]),
        ("x.copy()", ["x"]),
        ("not x", ["x"]),
        ("x if y else True", ["x if True else True", "x if y else False"]),
        ("x is None", ["x is not None"]),
        ("f(None)", ["f(0)"]),
        ("[x for x in y if x]", ["[x for x in y if True]", "[x for x in y if False]"]),
    ],
)
def test_expressions(code, others):
    before = f"def f(x, y, i, n):\n    return {code}\n"
    sources = [m.source(before) for m in tool.mutants_of("m", before)]
    plain = {tool.ast.unparse(tool.ast.parse(source)) for source in sources}
    for other in others:
        after = before.replace(code, other)
        assert tool.ast.unparse(tool.ast.parse(after)) in plain, other


@pytest.mark.parametrize(
    "code, others",
    [
        ("x += 1", ["x -= 1", "pass"]),
        ("break", ["continue", "pass"]),
        ("x = y", ["pass"]),
        ("del x", ["pass"]),
        ("x.append(y)", ["pass"]),
        ("raise KeyError(x)", ["raise ValueError(x)", "pass"]),
    ],
)
def test_statements(code, others):
    before = f"def f(x, y):\n    for _ in y:\n        {code}\n"
    sources = {m.source(before) for m in tool.mutants_of("m", before)}
    for other in others:
        assert before.replace(code, other) in sources


@pytest.mark.parametrize("module", tool.MODULES)
def test_every_mutant_is_code_of_its_own_and_has_a_name_of_its_own(module):
    source = tool.source_of(module)
    found = tool.mutants_of(module, source)
    assert len({m.key for m in found}) == len(found) > 50
    for mutant in found[:: len(found) // 25]:
        changed = mutant.source(source)
        assert changed != source
        compile(changed, module, "exec", dont_inherit=True)


def report():
    path = tool.ROOT / "tests" / "mutation_report.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_report_is_of_these_sources():
    found = report()["modules"]
    assert tuple(found) == tool.MODULES
    for module in tool.MODULES:
        mutants = tool.mutants_of(module, tool.source_of(module))
        fits = found[module]["sha256"] == tool.digest(mutants)
        assert fits, f"{module} changed since the mutants were judged: make mutants"
        assert found[module]["mutants"] == len(mutants)


def test_the_report_adds_up_and_every_survivor_is_explained():
    found = report()
    modules = found["modules"].values()
    for key in ("mutants", "killed", "timeouts", "survived"):
        assert found[key] == sum(each[key] for each in modules)
    for each in modules:
        assert each["mutants"] == each["killed"] + each["survived"]
    assert found["killed"] >= 0.95 * found["mutants"]
    assert found["score"] == round(found["killed"] / found["mutants"], 4)
    assert len(found["survivors"]) == found["survived"]
    assert tool.misfits(found, tool.explained()) == []
    for each in found["survivors"]:
        assert each["reason"].endswith(".")
        assert each["equivalent"] in (True, False)


def test_survivors_that_do_not_fit_are_said():
    listed = {"module": "metrics", "function": "f", "line": "x", "old": "x", "new": "y"}
    found = {"survivors": [listed], "modules": {"metrics": {}}}
    assert tool.misfits(found, [tool.key_of(listed)]) == []
    (said,) = tool.misfits(found, [])
    assert said.startswith("survives: metrics: f")
    (said,) = tool.misfits({**found, "survivors": []}, [tool.key_of(listed)])
    assert said.startswith("listed, but no survivor: metrics: f")


def test_a_function_that_lives_takes_the_changed_code(tmp_path):
    """Also one that was made before, and closes over a value."""
    source = (
        "def outer(n):\n    def inner(x):\n        return x + n\n    return inner\n"
    )
    path = tmp_path / "sample.py"
    names = {}
    exec(compile(source, str(path), "exec"), names)
    inner = names["outer"](10)
    living = tool.Living([str(path)])
    (plus,) = [m for m in tool.mutants_of("sample", source) if m.new == "x - n"]
    living.put(compile(plus.source(source), str(path), "exec"))
    assert inner(1) == names["outer"](10)(1) == -9


def test_a_report_keeps_what_it_says_of_other_modules():
    of = {m: tool.mutants_of(m, tool.source_of(m)) for m in ("metrics", "sampling")}
    first, second, third = of["metrics"][:3]
    reasons = {first.key: {"equivalent": True, "reason": "Why not."}}
    before = tool.report({first: "survived", second: "timeout"}, reasons)
    assert before["score"] == 0.5
    assert before["score_without_equivalents"] == 1.0
    both = tool.report({of["sampling"][0]: "killed"}, {}, before)
    assert list(both["modules"]) == ["sampling", "metrics"]
    counts = ("mutants", "killed", "timeouts", "survived", "equivalent")
    assert [both[key] for key in counts] == [3, 2, 1, 1, 1]
    assert both["survivors"] == [{**tool.same(first), **reasons[first.key]}]
    again = tool.report({third: "killed"}, {}, both)
    assert (again["mutants"], again["survived"]) == (2, 0)
