"""Toy models, their plain distribution by recursion, and the check of exactness.

The oracle does not go through the loop: the probability of a text is the product of the
sampler's rows, one token after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

import specdec_lib as sd

PROMPT = (0, 1)
EXACT = 1e-12  # of a probability: what rounding may do
TEMPERATURES = (0.0, 0.5, 1.0, 1.7)
Outcomes = dict[tuple[int, ...], float]
MEASURED: list[float] = []  # by `inexactness`, in the test that runs


def samplers(temperature: float) -> list[sd.Sampler]:
    """With and without each of the filters."""
    return [
        sd.Sampler(temperature, top_k=top_k, top_p=top_p)
        for top_k in (None, 2)
        for top_p in (None, 0.8)
    ]


def table_model(seed: int, vocab_size: int = 3, scale: float = 1.5, gaps: int = 0):
    """A model whose logits depend on the last two tokens and on the length's parity.

    With ``gaps`` that many tokens have probability 0 in each context.
    """
    g = np.random.default_rng(seed)
    shape = (2, vocab_size, vocab_size, vocab_size)
    table = g.normal(size=shape) * scale
    for row in table.reshape(-1, vocab_size) if gaps else ():
        row[g.choice(vocab_size, size=gaps, replace=False)] = -np.inf
    return sd.FunctionModel(
        lambda seq: table[len(seq) % 2, seq[-2] if len(seq) > 1 else 0, seq[-1]],
        vocab_size,
        bos_id=0,
    )


@dataclass(frozen=True)
class PointMass:
    """Proposes tokens by a rule of its own, without any randomness."""

    vocab_size: int = 3

    def start(self, prompt: Sequence[int]):
        return _PointMassSession(list(prompt), self.vocab_size)


class _PointMassSession:
    def __init__(self, sequence: list[int], vocab_size: int) -> None:
        self.sequence = sequence
        self.vocab_size = vocab_size

    def propose(self, k, rng):
        guess = list(self.sequence)
        for _ in range(k):
            guess.append((2 * guess[-1] + len(guess)) % self.vocab_size)
        return sd.Proposal(tuple(guess[len(self.sequence) :]))

    def commit(self, tokens):
        self.sequence += tokens


class Growing:
    """A draft length: no guess at first, then one more than the last round kept."""

    def __init__(self) -> None:
        self.k = 0

    def next_k(self) -> int:
        return self.k

    def observe(self, round: sd.Round) -> None:
        self.k = round.accepted + 1


def outside_of(model, sampler: sd.Sampler):
    """A model that only ever says what ``model`` under ``sampler`` never says."""

    def logits(seq):
        p = sampler(model.logits_after(seq), seq)
        return np.where(p > 0, -np.inf, 0.0)

    return sd.FunctionModel(logits, model.vocab_size, bos_id=0)


TARGET = table_model(1)
GAPPED = table_model(5, gaps=1)
OTHER = table_model(2)
DRAFTS = ("same temperature", "other temperature", "greedy", "point mass", "equal")
DRAFTS += ("disjoint",)


def pair(name: str, sampler: sd.Sampler):
    """A (target, draft) by the name of the draft."""
    warm = sd.Sampler(sampler.temperature)
    other = sd.Sampler(temperature=0.7 if sampler.temperature != 0.7 else 1.3)
    return {
        "same temperature": (TARGET, sd.ModelDraft(OTHER, warm)),
        "other temperature": (TARGET, sd.ModelDraft(OTHER, other)),
        "greedy": (TARGET, sd.ModelDraft(OTHER, sd.Sampler(temperature=0))),
        "point mass": (TARGET, PointMass()),
        "equal": (TARGET, sd.ModelDraft(TARGET, sampler)),
        "disjoint": (GAPPED, sd.ModelDraft(outside_of(GAPPED, sampler))),
    }[name]


def rows_of(model) -> Callable[[tuple[int, ...]], np.ndarray]:
    """Logits after a sequence, from a fresh state: no cache, no rewind."""
    return lambda seq: np.asarray(model.start().extend(seq)[-1], dtype=np.float64)


def plain(
    target,
    tokens: int,
    *,
    sampler: sd.Sampler,
    prompt: tuple[int, ...] = PROMPT,
    stop_ids: Sequence[int] = (),
    min_new_tokens: int = 0,
) -> Outcomes:
    """The distribution of plain decoding, by recursion over the sampler's rows."""
    logits_after = rows_of(target)
    outcomes: Outcomes = {}

    def follow(new: tuple[int, ...], probability: float) -> None:
        if len(new) == tokens or (new and new[-1] in stop_ids):
            outcomes[new] = outcomes.get(new, 0.0) + probability
            return
        logits = logits_after(prompt + new).copy()
        if len(new) < min_new_tokens:
            logits[list(stop_ids)] = -np.inf
        for token, p in enumerate(sampler(logits, prompt + new).tolist()):
            if p > 0:
                follow((*new, token), probability * p)

    follow((), 1.0)
    return outcomes


def whole_loop(
    target, draft, *, k, tokens, sampler, prompt=PROMPT, library=sd, **options
) -> Outcomes:
    """The distribution of the real loop's tokens, every branch from start to end."""
    return sd.exact_distribution(
        lambda rng: (
            library.generate(
                target,
                prompt,
                draft=draft,
                k=k,
                max_new_tokens=tokens,
                sampler=sampler,
                rng=rng,
                **options,
            ).tokens
        )
    )


def merged(
    target,
    draft,
    *,
    k,
    tokens,
    sampler,
    prompt=PROMPT,
    min_new_tokens=0,
    library=sd,
    **options,
) -> Outcomes:
    """The same, one real round for each distinct text so far.

    Cheaper, but each round starts from a fresh state: what is carried from round to
    round is for :func:`whole_loop` to see.
    """
    waiting: Outcomes = {(): 1.0}
    outcomes: Outcomes = {}
    while waiting:
        done = min(waiting, key=len)
        probability = waiting.pop(done)
        one_round = sd.exact_distribution(
            lambda rng, done=done: round_of(
                library.stream(
                    target,
                    prompt + done,
                    draft=draft,
                    k=k,
                    max_new_tokens=tokens - len(done),
                    min_new_tokens=max(0, min_new_tokens - len(done)),
                    sampler=sampler,
                    rng=rng,
                    **options,
                )
            )
        )
        for (emitted, finish), p in one_round.items():
            where = waiting if finish is None else outcomes
            text = done + emitted
            where[text] = where.get(text, 0.0) + probability * p
    return outcomes


def round_of(rounds):
    first = next(rounds)
    return first.emitted, first.finish_reason


def total_variation(a: Outcomes, b: Outcomes) -> float:
    return 0.5 * sum(abs(a.get(x, 0.0) - b.get(x, 0.0)) for x in a.keys() | b.keys())


def inexactness(
    target, draft, *, k, tokens, sampler=None, way=whole_loop, library=sd, **options
) -> float:
    """Total variation between what the loop gives and what the target alone gives."""
    sampler = sampler if sampler is not None else sd.Sampler()
    for_plain = {
        name: value
        for name, value in options.items()
        if name in ("prompt", "stop_ids", "min_new_tokens")
    }
    real = way(
        target, draft, k=k, tokens=tokens, sampler=sampler, library=library, **options
    )
    assert abs(sum(real.values()) - 1.0) < 1e-12
    error = total_variation(real, plain(target, tokens, sampler=sampler, **for_plain))
    MEASURED.append(error)
    return error


def library_with(**replaced):
    """The library with some names replaced, for :func:`inexactness`."""
    return SimpleNamespace(**{"generate": sd.generate, "stream": sd.stream, **replaced})


@dataclass(frozen=True)
class ReadsTrees:
    """``model`` with states that read a tree in one call, each row from its own branch.

    Written apart from the library's way by branches, and stricter: the tree must be
    kept or forgotten, and only the tree that was read last.
    """

    model: sd.FunctionModel

    def __getattr__(self, name):
        return getattr(self.model, name)

    def start(self):
        return _TreeReader(self.model)


class _TreeReader:
    def __init__(self, model) -> None:
        self.model = model
        self.sequence: tuple[int, ...] = ()
        self.branches: list[tuple[int, ...]] = []

    @property
    def length(self):
        return len(self.sequence)

    def _rows(self, sequences):
        window = self.model.context_window
        assert window is None or max(map(len, sequences)) <= window
        return np.array([self.model.logits_after(each) for each in sequences])

    def extend(self, tokens):
        self.branches = []
        before = self.sequence
        self.sequence += tuple(tokens)
        ends = range(len(before) + 1, self.length + 1)
        return self._rows([self.sequence[:end] for end in ends])

    def rewind(self, length):
        assert 0 <= length <= self.length
        self.branches = []
        self.sequence = self.sequence[:length]

    def extend_tree(self, tokens, parents):
        self.branches = []
        for token, parent in zip(tokens, parents, strict=True):
            above = self.sequence if parent == -1 else self.branches[parent]
            self.branches.append((*above, token))
        return self._rows(self.branches)

    def keep(self, nodes):
        for node in nodes:
            assert self.branches[node][:-1] == self.sequence
            self.sequence = self.branches[node]
        self.branches = []
