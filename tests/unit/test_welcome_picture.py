"""The picture on the welcome page shows rounds that really happen."""

import importlib.util
import re

import pytest


@pytest.fixture(scope="module")
def tool(root):
    path = root / "tools" / "welcome_picture.py"
    spec = importlib.util.spec_from_file_location("welcome_picture", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_the_stored_picture_is_what_the_pair_does(tool):
    stored = tool.PATH.read_text(encoding="utf-8")
    assert stored == tool.picture()[0], "run: python tools/welcome_picture.py --write"


def test_the_page_says_what_the_picture_shows(tool, root):
    page = (root / "book" / "welcome.md").read_text(encoding="utf-8")
    words = tool.picture()[1]
    tokens, calls = re.search(r"(\d+) tokens in (\d+) calls", words).groups()
    assert f"{tokens} tokens in {calls} calls" in page
