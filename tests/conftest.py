"""Shared by all tests: where things lie, and the tools on the import path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, so that what is counted of them repeats.
settings.register_profile("repeats", derandomize=True, deadline=None, database=None)
settings.load_profile("repeats")

# A failed check in there then tells the values, as one in a test does.
pytest.register_assert_rewrite("site_kit", "lab_kit", "axe_kit")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def tried(record_property):
    """Says how many hostile inputs of a kind a test tried; see ``hostile_kit``."""
    from hostile_kit import PROPERTY

    return lambda kind, n=1: record_property(PROPERTY + kind, n)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item):
    """Tells the XML report how many examples of a property a test tried; closes the
    figures that a test left open, so that the next finds none."""
    if plots := sys.modules.get("matplotlib.pyplot"):
        plots.close("all")
    if hasattr(item, "hypothesis_statistics"):
        from proof import EXAMPLES, passing_examples

        n = passing_examples(item.hypothesis_statistics)
        item.user_properties.append((EXAMPLES, n))


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the repository."""
    return ROOT
