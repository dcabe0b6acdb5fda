from __future__ import annotations

import pytest
from service_kit import serving

import specdec_lib as sd


@pytest.fixture(scope="session")
def pair():
    return sd.book_pair()


@pytest.fixture(scope="session")
def engine(pair):
    return sd.Engine(pair.target, pair.tokenizer, pair.draft)


@pytest.fixture(scope="session")
def book(engine):
    """The book's models, served in this process for all tests."""
    with serving(engine, workers=4, queue=200) as service:
        yield service
