"""The page about the corpus says what the corpus is."""

import importlib.util


def test_the_counts_on_the_page_are_those_of_the_corpus(root):
    path = root / "tools" / "corpus_counts.py"
    spec = importlib.util.spec_from_file_location("corpus_counts", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = (root / "book" / "corpus.md").read_text(encoding="utf-8")
    (counts,) = tool.MARKED.findall(page)
    assert counts == tool.table(), "run: python tools/corpus_counts.py --write"
