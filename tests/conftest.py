"""Shared by all tests: where things lie, and the tools on the import path."""

from __future__ import annotations

from pathlib import Path

import pytest

# A failed check in there then tells the values, as one in a test does.
pytest.register_assert_rewrite("site_kit", "lab_kit")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def tried(record_property):
    """Says how many hostile inputs of a kind a test tried; see ``hostile_kit``."""
    from hostile_kit import PROPERTY

    return lambda kind, n=1: record_property(PROPERTY + kind, n)


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the repository."""
    return ROOT
