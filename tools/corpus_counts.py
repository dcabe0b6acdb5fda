"""Print how large the shipped corpus is: `python tools/corpus_counts.py`."""

from specdec_lib.text import Corpus, corpus_counts, load_corpus


def main() -> None:
    corpus = load_corpus()
    print(f"{'document':32} {'words':>6} {'sentences':>9}  4-grams")
    for document in corpus.documents:
        row = corpus_counts(Corpus((document,)))
        mark = " (held out)" if document.name in corpus.held_out_names else ""
        print(
            f"{document.name:32} {row['words']:6} {row['sentences']:9}"
            f"  {row['distinct_4grams']:.1%}{mark}"
        )
    for title, part in (
        ("all", corpus),
        ("train", corpus.train),
        ("held out", corpus.held_out),
    ):
        row = corpus_counts(part)
        print(
            f"\n{title}: {row['documents']} documents, "
            f"{row['characters']:,} characters, "
            f"{row['words']:,} words ({row['distinct_words']:,} distinct), "
            f"{row['sentences']:,} sentences "
            f"({row['distinct_sentences']:.2%} distinct), "
            f"{row['distinct_4grams']:.2%} of the word 4-grams distinct"
        )


if __name__ == "__main__":
    main()
