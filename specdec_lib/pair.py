"""The book's pair: one tokenizer, and two n-gram models that speak it.

The target is a Kneser-Ney model of order 5, the draft one of order 2, both counted on
the same text. They stand for every pair of a good model and a cheap one: the draft
knows the common turns of phrase, the target knows more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from .files import read_archive, write_archive
from .models import check_count, check_same_vocabulary
from .ngram import MAX_ORDER, NGramModel
from .text import DEFAULT_MERGES, Tokenizer, load_corpus

FORMAT, VERSION = "specdec pair", 1


@dataclass(frozen=True, eq=False)
class Pair:
    """A target, a draft model, and the tokenizer of both."""

    tokenizer: Tokenizer
    target: NGramModel
    draft: NGramModel

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all three to one file, an ``.npz`` archive, whole or not at all.

        Raises OSError where the file cannot be written; an older one is then as it was.
        """
        merges = np.array(self.tokenizer.merges, dtype=np.int64).reshape(-1, 2)
        arrays = {"merges": merges}
        for name, model in (("target", self.target), ("draft", self.draft)):
            arrays |= {f"{name}.{key}": a for key, a in model.to_arrays().items()}
        write_archive(path, FORMAT, VERSION, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Pair:
        """Read what ``save`` wrote; ValueError naming the file for anything else."""
        arrays = read_archive(path, FORMAT, VERSION)

        def model(name: str) -> NGramModel:
            start = f"{name}."
            return NGramModel.from_arrays(
                {
                    key.removeprefix(start): array
                    for key, array in arrays.items()
                    if key.startswith(start)
                }
            )

        try:
            tokenizer = Tokenizer(arrays["merges"].tolist())
            pair = cls(tokenizer, model("target"), model("draft"))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is a broken pair of models: {error}") from error
        sizes = {part.vocab_size for part in (tokenizer, pair.target, pair.draft)}
        if len(sizes) != 1:
            raise ValueError(f"{path} is a broken pair: vocabularies of sizes {sizes}")
        try:
            for name in ("target", "draft"):
                check_same_vocabulary(tokenizer, getattr(pair, name), f"its {name}")
        except ValueError as error:
            raise ValueError(f"{path} is a broken pair: {error}") from None
        return pair


def train_pair(
    texts: Iterable[str],
    *,
    order: int = 5,
    draft_order: int = 2,
    merges: int = DEFAULT_MERGES,
    smoothing: str = "kneser-ney",
    progress: Callable[[str], None] | None = None,
) -> Pair:
    """Train a tokenizer and two n-gram models on ``texts``, one sequence for each.

    ``order`` and ``draft_order`` are 1 to 8, ``merges`` is the number of byte pairs to
    join, ``smoothing`` one of ``NGramModel.fit``. ``progress`` is called with what is
    being done. Raises ValueError for texts that are all empty.
    """
    for name, value in (("order", order), ("draft_order", draft_order)):
        check_count(name, value)
        if not 1 <= value <= MAX_ORDER:
            raise ValueError(f"{name} must be inside 1 .. {MAX_ORDER}, got {value}")
    texts = list(texts)
    report = progress or (lambda what: None)
    report("training the tokenizer")
    tokenizer = Tokenizer.train(texts, merges=merges)
    sequences = []
    for i, text in enumerate(texts, 1):
        report(f"encoding text {i} of {len(texts)}")
        if text:
            sequences.append(tokenizer.encode(text))

    def fit(order: int) -> NGramModel:
        return NGramModel.fit(
            sequences,
            order=order,
            vocab_size=tokenizer.vocab_size,
            smoothing=smoothing,
            bos_id=tokenizer.bos_id,
            eos_id=tokenizer.eos_id,
            vocabulary=tokenizer.vocabulary,
        )

    report(f"counting the target's {order}-grams")
    target = fit(order)
    report(f"counting the draft's {draft_order}-grams")
    return Pair(tokenizer, target, fit(draft_order))


def book_pair(*, order: int = 5, draft_order: int = 2) -> Pair:
    """The pair that the chapters use, trained on the corpus that ships (in a moment).

    ``order`` and ``draft_order`` are those of the target and of the draft, 1 to 8.

    >>> pair = book_pair()
    >>> pair.target.order, pair.draft.order, pair.tokenizer.vocab_size
    (5, 2, 1258)
    """
    return train_pair(load_corpus().train.texts, order=order, draft_order=draft_order)
