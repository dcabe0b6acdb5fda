"""The Python examples on the pages of the book run as they stand."""

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).resolve().parents[2] / "book").glob("*.md"))
EXAMPLES = [
    pytest.param(source, id=f"{page.stem}-{i}")
    for page in PAGES
    for i, source in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)
    )
]


def test_there_are_examples():
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize("source", EXAMPLES)
def test_the_example_runs(source, capsys):
    exec(compile(source, "example", "exec"), {})
    shown = capsys.readouterr().out
    assert bool(shown) == ("print(" in source)
