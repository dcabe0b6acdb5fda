"""Shared by all tests: where things lie, and the tools on the import path."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the repository."""
    return ROOT
