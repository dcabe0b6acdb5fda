"""The list of faults that others met names tests that are there, and all of its own."""

from __future__ import annotations

import ast
import functools

import pytest
from faults_list import FAULTS


@functools.cache
def functions(root, module):
    tree = ast.parse((root / "tests" / f"{module}.py").read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("entry", FAULTS, ids=range(1, len(FAULTS) + 1))
def test_every_fault_has_tests_that_are_there(root, entry):
    assert entry.tests
    assert len(set(entry.tests)) == len(entry.tests)
    for test in entry.tests:
        module, _, name = test.partition("::")
        function = functions(root, module).get(name)
        assert name.startswith("test_")
        assert function is not None, test
        # Not one of those that are only run where somebody asks for it.
        marks = [ast.unparse(each) for each in function.decorator_list]
        assert not any("skip" in mark or "xfail" in mark for mark in marks), test


def test_no_fault_is_told_twice():
    assert len({entry.fault for entry in FAULTS}) == len(FAULTS) == 46


@pytest.mark.parametrize("name", ("rules", "loop", "figures"))
def test_every_test_of_a_fault_is_named_in_the_list(root, name):
    module = f"unit/test_faults_{name}"
    named = {test for entry in FAULTS for test in entry.tests}
    there = {f"{module}::{each}" for each in functions(root, module)}
    tests = {test for test in there if "::test_" in test}
    assert tests - named == set()
