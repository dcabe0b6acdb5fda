"""How large the shipped corpus is, as a table in Markdown.

    python tools/corpus_counts.py            print it
    python tools/corpus_counts.py --write    put it into the corpus page

A test compares the page with what this makes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from specdec_lib.text import Corpus, corpus_counts, load_corpus

PAGE = Path(__file__).resolve().parents[1] / "book" / "corpus.md"
MARKED = re.compile(r"(?<=<!-- counts -->\n).*?(?=<!-- end of counts -->)", re.S)


def table() -> str:
    """The counts of each document and of the parts, as Markdown."""
    corpus = load_corpus()
    lines = [
        "| Document | Words | Sentences | Distinct words |",
        "|---|---:|---:|---:|",
    ]

    def row(name: str, part: Corpus) -> str:
        counts = corpus_counts(part)
        return (
            f"| {name} | {counts['words']:,} | {counts['sentences']:,} "
            f"| {counts['distinct_words']:,} |"
        )

    for document in corpus.documents:
        title = document.text.split("\n", 1)[0]
        held_out = document.name in corpus.held_out_names
        lines.append(
            row(title + (" (held out)" if held_out else ""), Corpus((document,)))
        )
    lines += [
        row("**Training part**", corpus.train),
        row("**Held-out part**", corpus.held_out),
        row("**Together**", corpus),
    ]
    whole = corpus_counts(corpus)
    kilobytes = sum(len(text.encode()) for text in corpus.texts) / 1000
    return "\n".join(lines) + (
        f"\n\nOf the {whole['sentences']:,} sentences, "
        f"{whole['distinct_sentences']:.2%} are distinct, and so are "
        f"{whole['distinct_4grams']:.1%} of all runs of four words. "
        f"The whole text is {kilobytes:.0f} kB.\n"
    )


def main() -> None:
    if "--write" in sys.argv:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(MARKED.sub(lambda _: table(), page), encoding="utf-8")
    else:
        print(table())


if __name__ == "__main__":
    main()
