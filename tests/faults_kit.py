"""Toys for the tests of faults that others met, and which test watches for which.

``FAULTS`` is the list: what went wrong elsewhere, by its kind, and the tests here that
fail where this library does the same. ``test_faults_met.py`` checks that these tests
exist. A fault that cannot happen here has no test but a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

import specdec_lib as sd

GREEDY = sd.Sampler(temperature=0)
VOCAB = 5


def ledger(
    seed: int, vocab_size: int = VOCAB, *, scale: float = 1.5, **options: Any
) -> sd.FunctionModel:
    """A model whose every row depends on all tokens before it, and on their order.

    So one stale, missing, doubled or shifted token shows in the next row.
    """
    table = np.random.default_rng(seed).normal(size=(997, vocab_size)) * scale

    def logits(sequence: Sequence[int]) -> Any:
        place = 1
        for token in sequence:
            place = (place * 31 + token + 1) % 997
        return table[place]

    return sd.FunctionModel(logits, vocab_size, bos_id=0, **options)


TARGET, OTHER = ledger(1), ledger(2)


def written(
    model: Any, prompt: Sequence[int], tokens: int, sampler: sd.Sampler = GREEDY
) -> tuple[int, ...]:
    """Greedy text by one fresh reading for each token: no loop, no state, no rewind."""
    text = list(prompt)
    for _ in range(tokens):
        row = model.start().extend(text)[-1]
        text.append(int(sampler(row, text).argmax()))
    return tuple(text[len(prompt) :])


def counted(order: int, seed: int = 0, **options: Any) -> sd.NGramModel:
    """An n-gram model of a random text."""
    g = np.random.default_rng(seed)
    text = g.integers(0, VOCAB, size=400)
    return sd.NGramModel.fit([text], order=order, vocab_size=VOCAB, **options)


def remembered() -> sd.SuffixHistory:
    history = sd.SuffixHistory()
    history.add(np.random.default_rng(4).integers(0, VOCAB, size=60).tolist())
    return history


Way = tuple[Any, Any]  # a draft, and the rule that judges it


def ways(sampler: sd.Sampler = GREEDY, other: Any = OTHER) -> dict[str, Way]:
    """Every kind of draft, each with a rule that takes it."""
    tokens, block, tree = sd.verify_tokens, sd.verify_block, sd.verify_tree
    model = sd.ModelDraft(other, sampler)
    unsure = sd.ModelDraft(other, sampler, least=0.3, draw_last=False)
    chance = sd.TrueChance(TARGET, sampler)
    knowing = sd.ModelDraft(other, sampler, least=0.3, chance=chance)
    cached = sd.CacheModel(other, window=6, order=2)
    return {
        "model": (model, tokens),
        "model, by blocks": (model, block),
        "model, as a chain of a tree": (model, tree),
        "the target itself": (sd.ModelDraft(TARGET, sampler), tokens),
        "model that stops when unsure": (unsure, tokens),
        "model that knows its chances": (knowing, block),
        "model with a cache": (sd.ModelDraft(cached, sampler), tokens),
        "n-grams": (sd.ModelDraft(counted(4), sampler), block),
        "lookup": (sd.PromptLookup(), tokens),
        "lookup, earliest": (sd.PromptLookup(5, 2, earliest=True), block),
        "suffixes": (sd.SuffixDraft(threshold=0), tokens),
        "suffixes of others": (sd.SuffixDraft(remembered(), threshold=0), block),
        "the first that has one": (sd.FirstOf([sd.PromptLookup(), model]), tokens),
        "tree": (sd.TreeDraft(other, sampler, sd.tree_shape((2, 1, 1))), tree),
        "tree of the best": (sd.TreeDraft(other, sampler, draw="best"), tree),
        "tree with doubles": (
            sd.TreeDraft(other, sampler, (-1, -1, -1, 0), "with replacement"),
            tree,
        ),
    }


WAYS = tuple(ways())


def policies() -> dict[str, Any]:
    """Every rule that chooses k on the way."""
    curve = sd.theory.cost_curve([1, 2, 5, 9], [1.0, 1.2, 1.5, 2.0])
    return {
        "up and down": sd.UpAndDown(),
        "recent acceptance": sd.RecentAcceptance(0.1),
        "what pays": sd.PayingLength(curve),
    }


@dataclass(frozen=True)
class Says:
    """Proposes ``guesses(text, k)``, and reports what ``rows(tokens)`` makes of it."""

    guesses: Any
    rows: Any = None

    def start(self, prompt: Sequence[int]) -> Any:
        return _Saying(self, list(prompt))


class _Saying:
    def __init__(self, draft: Says, text: list[int]) -> None:
        self.draft, self.text = draft, text

    def propose(self, k: int, rng: Any) -> sd.Proposal:
        tokens = tuple(self.draft.guesses(self.text, k))[:k]
        rows = self.draft.rows(tokens) if self.draft.rows and tokens else None
        return sd.Proposal(tokens, rows)

    def commit(self, tokens: Sequence[int]) -> None:
        self.text += tokens


def simplex(vocab_size: int, parts: int) -> list[list[float]]:
    """Every distribution whose probabilities are multiples of 1 / ``parts``."""
    return [
        [count / parts for count in counts]
        for counts in product(range(parts + 1), repeat=vocab_size)
        if sum(counts) == parts
    ]
