"""The printed book for its tests."""

from __future__ import annotations

from collections.abc import Iterator

import pdf_offer
import pytest
from pdf_kit import Print


@pytest.fixture(scope="session")
def book() -> Iterator[Print]:
    """The print in _build/pdf."""
    if not (pdf_offer.FOLDER / pdf_offer.NAME).exists():
        pytest.fail("there is no printed book: type `make pdf` first", pytrace=False)
    printed = Print()
    yield printed
    printed.pdf.close()
