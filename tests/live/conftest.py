"""JupyterLite as it was built, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live_chapters
import pytest
from site_kit import running_browser, served


@pytest.fixture(scope="session")
def lite() -> Path:
    """The folder with JupyterLite; skipped where its parts could not be fetched."""
    if not live_chapters.LITE.exists():
        pytest.skip(
            "_build/lite is not there: Python for the browser could not be fetched, or "
            "`make lite` was not called; it says which"
        )
    if not live_chapters.is_current():
        pytest.fail("_build/lite is of other files: `make lite`", pytrace=False)
    return live_chapters.LITE


@pytest.fixture(scope="session")
def address(lite: Path) -> Iterator[str]:
    """The address at which the folder above it is served."""
    yield from served(lite.parent)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium; without one the tests fail and say what to install."""
    yield from running_browser()
