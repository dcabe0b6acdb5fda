"""The real model, where it was fetched."""

from __future__ import annotations

import pytest

from specdec_lib.llama import fetch


@pytest.fixture(scope="session")
def smollm2_path():
    """The file of SmolLM2; tests that need it are skipped where it is not."""
    try:
        return fetch.find("smollm2")
    except FileNotFoundError as error:
        pytest.skip(str(error))
