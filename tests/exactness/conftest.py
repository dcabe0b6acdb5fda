"""Make toys.py importable from the tests beside it; tell what they measured."""

import sys
from pathlib import Path

import pytest
from proof import BIASED, ERROR, FOLLOWED

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _told(record_property):
    """Of how many settings a test found the law, by whether it is the target's."""
    import toys

    toys.MEASURED.clear()
    yield
    exact = [error for error in toys.MEASURED if error < toys.EXACT]
    if exact:
        record_property(FOLLOWED, len(exact))
        record_property(ERROR, max(exact))
    if len(toys.MEASURED) > len(exact):
        record_property(BIASED, len(toys.MEASURED) - len(exact))
