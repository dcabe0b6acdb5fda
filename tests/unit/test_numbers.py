"""Numbers at their limits: coarse types, ties, temperatures, sizes, long texts.

NumPy's warnings are errors here, but for underflow: a chance of e^-800 is meant to
become 0. Nothing is timed: what is compared is calls, lines, and bytes.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults_kit import GREEDY, ways

import specdec_lib as sd
from specdec_lib.verification import lossy

sys.path.insert(0, str(Path(__file__).parents[1] / "exactness"))
from toys import EXACT, inexactness, merged, table_model, total_variation

COARSE = (np.float16, np.float32)
TYPES = (*COARSE, np.float64)


@pytest.fixture(autouse=True)
def no_warnings():
    with np.errstate(all="raise", under="ignore"):
        yield


# Types.


@dataclass(frozen=True)
class As:
    """``model``, with logits as another program might give them."""

    model: Any
    make: Any

    def __getattr__(self, name):
        return getattr(self.model, name)

    def start(self):
        return _AsState(self.model.start(), self.make)


class _AsState:
    def __init__(self, state, make):
        self.state, self.make = state, make

    @property
    def length(self):
        return self.state.length

    def extend(self, tokens):
        return self.make(self.state.extend(tokens))

    def rewind(self, length):
        self.state.rewind(length)


def read_only(rows):
    rows = rows.copy()
    rows.flags.writeable = False
    return rows


def spread(rows):
    """The same numbers, each with strangers between it and the next."""
    wide = np.full((2 * len(rows), 3 * rows.shape[1]), 1e300)
    wide[::2, 1::3] = rows
    return wide[::2, 1::3]


LAYOUTS = {
    "float64": lambda rows: rows,
    "big-endian": lambda rows: rows.astype(">f8"),
    "by columns": np.asfortranarray,
    "with gaps": spread,
    "backwards": lambda rows: rows[:, ::-1].copy()[:, ::-1],
    "read only": read_only,
    "float64 of more": lambda rows: rows.astype(np.longdouble),
}
ROUNDED = {
    "float16": lambda rows: rows.astype(np.float16),
    "float32": lambda rows: rows.astype(np.float32),
    "float32, big-endian": lambda rows: rows.astype(">f4"),
    "float16, read only": lambda rows: read_only(rows.astype(np.float16)),
}
SAMPLERS = (
    sd.Sampler(),
    sd.Sampler(0.5, top_k=2),
    sd.Sampler(1.7, top_p=0.8),
    GREEDY,
    sd.Sampler(processors=(sd.RepetitionPenalty(1.3),)),
)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_logits_changes_no_bit(layout):
    rows = np.random.default_rng(0).normal(size=(4, 9)) * 5
    rows[2, 3] = -np.inf
    for sampler in SAMPLERS:
        given = LAYOUTS[layout](rows)
        found = sampler(given, (1, 2), (3, 4, 5))
        assert found.dtype == np.float64
        assert (found == sampler(rows, (1, 2), (3, 4, 5))).all()
        assert (np.asarray(given, dtype=np.float64) == rows).all()  # left alone


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("temperature", (0.1, 1.0, 3.0))
def test_coarse_logits_differ_by_their_own_rounding_and_no_more(dtype, temperature):
    """A logit off by d makes a probability off by a factor within e^(2 d / T)."""
    g = np.random.default_rng(1)
    logits = g.normal(size=(50, 300)) * 4
    coarse = logits.astype(dtype)
    sampler = sd.Sampler(temperature)
    found, exact = sampler(coarse), sampler(logits)
    assert found.dtype == np.float64
    assert np.abs(found.sum(axis=1) - 1).max() < EXACT
    d = np.abs(coarse.astype(np.float64) - logits).max()
    assert d <= np.abs(logits).max() * np.finfo(dtype).eps / 2
    ratio = np.abs(np.log(found) - np.log(exact)).max()
    assert ratio <= 2 * d / temperature + 1e-12
    # The rounding is that of the logits alone, not of what is done with them.
    assert (found == sampler(coarse.astype(np.float64))).all()


@pytest.mark.parametrize("how", {**LAYOUTS, **ROUNDED})
def test_every_type_is_exact(how):
    """Every outcome of the loop beside the target's own, whatever type both speak."""
    make = {**LAYOUTS, **ROUNDED}[how]
    target, other = As(table_model(1), make), As(table_model(2), make)
    for sampler in SAMPLERS:
        model = sd.ModelDraft(other, sampler)
        tree = sd.TreeDraft(other, sampler, sd.tree_shape((2, 1)))
        for draft, verify in (
            (model, sd.verify_tokens),
            (model, sd.verify_block),
            (tree, sd.verify_tree),
        ):
            off = inexactness(
                target,
                draft,
                k=2,
                tokens=3,
                sampler=sampler,
                verify=verify,
                way=merged,
                min_new_tokens=2,
                stop_ids=(2,),
            )
            assert off < EXACT, (sampler, verify)


@dataclass(frozen=True)
class CoarseDraft:
    """A draft as a reader writes it: its own softmax, in its own type."""

    model: Any
    dtype: Any

    def start(self, prompt):
        return _CoarseSession(self, list(prompt))


class _CoarseSession:
    def __init__(self, draft, text):
        self.draft, self.text = draft, text

    def propose(self, k, rng):
        rows, tokens = [], []
        for _ in range(k):
            logits = self.draft.model.start().extend(self.text + tokens)[-1]
            weights = np.exp(logits.astype(self.draft.dtype))
            rows.append(weights / weights.sum())
            tokens.append(rng.categorical(rows[-1]))
        return sd.Proposal(tuple(tokens), np.array(rows))

    def commit(self, tokens):
        self.text += tokens


@pytest.mark.parametrize("dtype", TYPES)
def test_drafts_that_report_coarse_probabilities_are_exact(dtype):
    """They sum to 1 as well as their type can tell; a rule must take them for what
    was drawn from, which is normalised."""
    draft = CoarseDraft(table_model(2, vocab_size=4), dtype)
    sums = [row.sum(dtype=np.float64) for row in _some_rows(draft)]
    assert (max(abs(each - 1) for each in sums) > EXACT) == (dtype != np.float64)
    target = table_model(1, vocab_size=4)
    for verify in (sd.verify_tokens, sd.verify_block, sd.verify_tree):
        off = inexactness(target, draft, k=2, tokens=2, verify=verify, way=merged)
        assert off < EXACT, verify


def _some_rows(draft):
    for first in range(4):
        yield from draft.start([first]).propose(5, sd.SeededRandom(0)).probabilities


@pytest.mark.parametrize("dtype", COARSE)
def test_coarse_rows_of_a_large_vocabulary_are_judged(dtype):
    """What can be drawn from can also be judged, and is divided by what it was."""
    g = np.random.default_rng(0)
    p, q = (np.exp(g.normal(size=(2, 49_152)) * 3) for _ in "pq")
    p, q = ((x / x.sum(axis=1, keepdims=True)).astype(dtype) for x in (p, q))
    q = q[:1]
    assert abs(q.sum(dtype=np.float64) - 1) > 1e-9
    whole = q.astype(np.float64) / q.sum(dtype=np.float64)
    target = p.astype(np.float64) / p.sum(axis=1, keepdims=True, dtype=np.float64)
    for seed in range(20):
        token = sd.SeededRandom(seed).categorical(q[0])
        assert token == sd.SeededRandom(seed).categorical(whole[0])
        for rule in (sd.verify_tokens, sd.verify_block, sd.verify_tree):
            found = rule(p, sd.Proposal((token,), q), sd.SeededRandom(seed))
            again = rule(target, sd.Proposal((token,), whole), sd.SeededRandom(seed))
            assert found == again
    assert sd.theory.acceptance(p[0], q[0]) == pytest.approx(
        sd.theory.acceptance(target[0], whole[0]), abs=1e-12
    )


@pytest.mark.parametrize("dtype", COARSE)
def test_coarse_rows_that_are_no_distributions(dtype):
    for bad, said in (([0.5, 0.4], "sum to 1"), ([1.1, -0.1], "no negative")):
        row = np.array([bad], dtype=dtype)
        fair = np.array([[0.5, 0.5]])
        with pytest.raises(ValueError, match=f"target_probabilities must have.*{said}"):
            sd.verify_tokens(row, sd.Proposal(()), sd.SeededRandom(0))
        with pytest.raises(ValueError, match=f"proposal.probabilities .*{said}"):
            sd.verify_tokens(
                fair.repeat(2, axis=0), sd.Proposal((0,), row), sd.SeededRandom(0)
            )
        with pytest.raises(ValueError, match=f"q must have.*{said}"):
            sd.theory.total_variation(fair[0], row[0])


# Ties.


@pytest.mark.parametrize("vocab_size", (1, 2, 3, 5))
def test_all_equal_logits(vocab_size):
    for value in (0.0, -1e4, 65504.0, 5e-324):
        row = np.full(vocab_size, value)
        assert np.abs(sd.Sampler()(row) - 1 / vocab_size).max() < EXACT
        assert GREEDY(row).argmax() == 0
        for k in range(1, vocab_size + 1):
            p = sd.Sampler(top_k=k)(row)
            assert np.flatnonzero(p).tolist() == list(range(k))
            assert np.abs(p[:k] - 1 / k).max() < EXACT
            p = sd.Sampler(top_p=k / vocab_size)(row)  # reached to the digit
            assert np.flatnonzero(p).tolist() == list(range(k))
            assert np.abs(p[:k] - 1 / k).max() < EXACT


@pytest.mark.parametrize("places", [(0, 1), (1, 3), (0, 3), (2, 3)])
def test_two_that_are_equal_at_the_edge_of_a_filter(places):
    """The lower id is kept, wherever both stand, and as many as were asked for."""
    first, second = places
    others = [i for i in range(4) if i not in places]
    p = np.empty(4)
    p[[first, second]] = 0.25
    p[others] = 0.4, 0.1  # the likeliest, the two, and the last one
    logits = np.log(p)
    kept = sorted((others[0], first))
    for sampler in (sd.Sampler(top_k=2), sd.Sampler(top_p=0.5), sd.Sampler(top_p=0.65)):
        found = sampler(logits)
        assert np.flatnonzero(found).tolist() == kept, sampler
        assert np.abs(found[kept] - p[kept] / 0.65).max() < EXACT
    for sampler in (sd.Sampler(top_k=3), sd.Sampler(top_p=0.66)):
        assert np.flatnonzero(sampler(logits)).tolist() == sorted((*kept, second))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("tied", [(0, 1), (1, 2), (0, 2), (0, 1, 2)])
def test_one_rule_for_ties_everywhere(dtype, tied):
    """At temperature 0 the lowest id, as the docstring of Sampler says: target, every
    draft, every rule, and every model."""
    row = np.array([1.0, 1.0, 1.0], dtype=dtype)
    row[list(tied)] = 2.0
    lowest = tied[0]
    model = As(sd.FunctionModel(lambda text: row, 3, bos_id=0), lambda x: x)
    assert GREEDY(row).argmax() == lowest
    for draft in (
        sd.ModelDraft(model, GREEDY),
        sd.TreeDraft(model, GREEDY, (-1, 0)),
        sd.TreeDraft(model, sd.Sampler(), (-1, 0), "best"),
        sd.ModelDraft(sd.CacheModel(model, weight=0.0), GREEDY),
    ):
        found = draft.start([0]).propose(2, sd.SeededRandom(0))
        assert found.tokens == (lowest, lowest)
    p = GREEDY(np.array([row, row, row]))
    for tokens in product(range(3), repeat=2):
        kept = next((i for i, x in enumerate(tokens) if x != lowest), 2)
        for rule in (sd.verify_tokens, sd.verify_block, sd.verify_tree):
            found = rule(p, sd.Proposal(tokens), sd.SeededRandom(0))
            assert (found.accepted, found.next_token) == (kept, lowest)
        soft = sd.Sampler()(np.array([row, row, row]))
        for rule in (lossy.verify_argmax, lossy.probability_threshold(0.9)):
            found = rule(soft, sd.Proposal(tokens), sd.SeededRandom(0))
            assert found.next_token == lowest


def test_an_n_gram_model_has_the_same_rule_for_ties():
    """By its own short cut, and by the logits that a target would look at."""
    text = [0, 2, 0, 1, 0, 2, 0, 1, 3, 3, 0]
    for smoothing in ("add-k", "jelinek-mercer", "kneser-ney", "stupid-backoff"):
        model = sd.NGramModel.fit([text], order=2, vocab_size=4, smoothing=smoothing)
        for context in ([], [0], [1], [2], [3]):
            p = model.probabilities(context)
            assert model.greedy(context) == np.flatnonzero(p == p.max())[0]
        assert model.greedy([0]) == 1  # 1 and 2 came equally often
        assert GREEDY(model.start().extend([0])[0]).argmax() == 1


# Temperatures, and logits of every size.

GRID = [10.0**e for e in range(-8, 9)]


@pytest.mark.parametrize("dtype", TYPES)
def test_every_temperature_with_logits_of_any_size(dtype):
    """From 1e-8 to 1e8, with logits to the largest float16 and, where there are any,
    beyond: no NaN, no overflow, and both limits."""
    g = np.random.default_rng(3)
    most = float(np.finfo(dtype).max)
    scales = [s for s in (1e-4, 1.0, 100.0, 1e4, 65504.0, 1e30, 1e300) if s <= most]
    for temperature, scale in product(GRID, scales):
        logits = (g.uniform(-1, 1, size=(6, 40)) * scale).astype(dtype)
        logits[0, :2] = scale, -scale
        logits[1, 3:6] = scale  # three are best
        logits[2, 7] = -np.inf
        p = sd.Sampler(temperature)(logits)
        rows = logits.astype(np.float64)
        assert np.isfinite(p).all()
        assert np.abs(p.sum(axis=1) - 1).max() < EXACT
        assert p[2, 7] == 0
        # The order of the logits is that of the probabilities.
        order = np.argsort(-rows, axis=1, kind="stable")
        assert (np.diff(np.take_along_axis(p, order, 1), axis=1) <= 0).all()
        gaps = (rows.max(axis=1, keepdims=True) - rows)[np.isfinite(rows)]
        if gaps.max() < 1e-3 * temperature:  # uniform, to a factor of e^(gap / T)
            able = np.isfinite(rows)
            even = able / able.sum(axis=1, keepdims=True)
            assert np.abs(p - even).max() <= gaps.max() / temperature
        least = np.min(gaps[gaps > 0]) if (gaps > 0).any() else np.inf
        if least > 800 * temperature:  # greedy; equals share
            best = rows == rows.max(axis=1, keepdims=True)
            assert (p == best / best.sum(axis=1, keepdims=True)).all()
        for sampler in (
            sd.Sampler(temperature, top_k=3),
            sd.Sampler(temperature, top_p=0.5),
            sd.Sampler(temperature, top_k=5, top_p=0.9),
        ):
            kept = sampler(logits)
            assert np.isfinite(kept).all()
            assert np.abs(kept.sum(axis=1) - 1).max() < EXACT
            chosen = kept > 0
            assert ((kept > 0).sum(axis=1) >= 1).all()
            # What was kept keeps its proportions.
            ratio = kept / np.where(p > 0, p, 1)
            high = np.where(chosen, ratio, 0).max(axis=1)
            low = np.where(chosen & (p > 1e-290), ratio, np.inf).min(axis=1)
            assert (high <= low * (1 + 1e-9)).all()


@pytest.mark.parametrize("temperature", GRID)
def test_the_loop_at_every_temperature(temperature):
    """All kinds of drafts and rules, with logits of one to ten thousand; the draft is
    as far from the target as one can be."""
    table = np.random.default_rng(4).uniform(-1e4, 1e4, size=(7, 7))
    table[3] *= 1e-4
    target = sd.FunctionModel(lambda text: table[text[-1]], 7)
    other = sd.FunctionModel(lambda text: -table[text[-1]], 7)
    sampler = sd.Sampler(temperature)
    for name, (draft, rule) in ways(sampler, other).items():
        if "knows its chances" in name or "n-grams" in name or "itself" in name:
            continue  # they are made of models of five tokens
        for filtered in (sampler, sd.Sampler(temperature, top_k=3, top_p=0.9)):
            found = sd.generate(
                target,
                [1, 2, 1],
                draft=draft,
                k=3,
                max_new_tokens=12,
                sampler=filtered,
                verify=rule,
                seed=1,
            )
            assert len(found.tokens) == 12


TINY = 5e-324  # the smallest number above 0
FAINT = (0.0, TINY, 1e-320, 1e-308, 1e-200, 1e-17)


def law(rule, p, q):
    """What comes after two places of one law p, guessed by q: by all outcomes."""

    def run(rng):
        tokens = (rng.categorical(q), rng.categorical(q))
        found = rule(np.array([p, p, p]), sd.Proposal(tokens, np.array([q, q])), rng)
        return (*tokens[: found.accepted], found.next_token)[:2]

    return sd.exact_distribution(run)


@pytest.mark.parametrize("rule", (sd.verify_tokens, sd.verify_block, sd.verify_tree))
def test_chances_too_small_to_add_up(rule):
    """Probabilities that vanish beside 1, on either side: ratios of the smallest
    numbers, and residuals of them."""
    for a, b, c, d in product(FAINT, repeat=4):
        p = np.array([1.0 - a - b, a, b])
        q = np.array([c, 1.0 - c - d, d])
        found = law(rule, p, q)
        assert abs(sum(found.values()) - 1) < EXACT
        # The second token is missing after a correction: compare what came first.
        first = Counter()
        for tokens, chance in found.items():
            first[tokens[:1]] += chance
        assert total_variation(first, {(i,): p[i] for i in range(3)}) < EXACT


def test_the_residual_of_the_smallest_numbers():
    for a, b in product(FAINT[1:], repeat=2):
        if a + b < 1e-17:  # beside 1 it is nothing
            p, q = np.array([1.0, a, b]), np.array([1.0, 0.0, 0.0])
            found = sd.residual(p, q)
            assert np.abs(found - [0, a / (a + b), b / (a + b)]).max() < 1e-3
            assert abs(found.sum() - 1) < EXACT


# Vocabularies of one token, and of 200,000.

HUGE = 200_000


def every_way(vocab_size, sampler):
    """Every draft with every rule that takes it, over ``vocab_size`` tokens."""
    other = sd.FunctionModel(lambda text: _row(vocab_size, 3, text), vocab_size)
    counted = sd.NGramModel.fit(
        [[min(t, vocab_size - 1) for t in (0, 5, 7, 0, 5, 9, 0, 5, 7)]],
        order=3,
        vocab_size=vocab_size,
    )
    chain = {
        "model": sd.ModelDraft(other, sampler),
        "n-grams": sd.ModelDraft(counted, sampler),
        "cache": sd.ModelDraft(sd.CacheModel(other), sampler),
        "unsure": sd.ModelDraft(other, sampler, least=1e-9),
        "knowing": sd.ModelDraft(
            other, sampler, least=1e-9, chance=sd.TrueChance(other)
        ),
        "lookup": sd.PromptLookup(),
        "suffixes": sd.SuffixDraft(threshold=0),
        "first of": sd.FirstOf([sd.PromptLookup(), sd.ModelDraft(other, sampler)]),
    }
    for name, draft in chain.items():
        for rule in (
            sd.verify_tokens,
            sd.verify_block,
            sd.verify_tree,
            lossy.verify_argmax,
            lossy.probability_threshold(0.5),
            lossy.ratio_threshold(0.5),
            lossy.logit_ratio(0.5),
        ):
            yield f"{name}, {rule.__qualname__}", draft, rule
    for draw in ("without replacement", "with replacement", "best"):
        shape = sd.tree_shape((2, 1))
        yield f"tree, {draw}", sd.TreeDraft(other, sampler, shape, draw), sd.verify_tree


def _row(vocab_size, seed, text):
    """Logits with some clear favourites."""
    row = np.linspace(0, 1, vocab_size) if vocab_size > 1 else np.zeros(1)
    row[(text[-1] * 7 + seed) % vocab_size] += 15
    row[(text[-1] * 11 + 1) % vocab_size] += 14
    return row


FILTERS = (
    sd.Sampler(),
    GREEDY,
    sd.Sampler(top_k=3),
    sd.Sampler(top_p=0.9),
    sd.Sampler(0.7, top_k=HUGE - 1, top_p=0.999),
    sd.Sampler(processors=(sd.RepetitionPenalty(1.2), sd.LogitBias({0: -1.0}))),
)


def test_a_vocabulary_of_one_token():
    """There is nothing to choose: every draft is right, every rule says so."""
    target = sd.FunctionModel(lambda text: np.zeros(1), 1, bos_id=0)
    for sampler in FILTERS:
        for name, draft, rule in every_way(1, sampler):
            for k in (0, 1, 4):
                found = sd.generate(
                    target,
                    [0],
                    draft=draft,
                    k=k,
                    max_new_tokens=5,
                    sampler=sampler,
                    verify=rule,
                )
                assert found.tokens == (0,) * 5, name
                if "logit_ratio" not in name:  # it asks for q > p
                    assert found.metrics.acceptance_rate in (None, 1.0), name
    assert sd.generate(target, (), max_new_tokens=2, stop_ids=[0]).tokens == (0,)
    assert sd.NGramModel.fit([[0, 0]], order=2, vocab_size=1).greedy([0]) == 0


class Lines:
    """Counts the lines of Python that the library runs."""

    def __enter__(self):
        self.count = 0
        self.before = sys.gettrace()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *error):
        sys.settrace(self.before)

    def _enter(self, frame, event, argument):
        return self._line if "specdec_lib" in frame.f_code.co_filename else None

    def _line(self, frame, event, argument):
        self.count += event == "line"
        return self._line


def test_a_vocabulary_of_200_000_tokens():
    """In a handful of rows of memory, and without a step of Python for each token."""
    row_bytes = 8 * HUGE
    target = sd.FunctionModel(lambda text: _row(HUGE, 2, text), HUGE, bos_id=0)
    options = {"k": 3, "max_new_tokens": 4, "seed": 1}

    def measured(what, **more):
        tracemalloc.start()
        try:
            with Lines() as lines:
                found = sd.generate(target, [0, 5, 0, 5], **options, **more)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(found.tokens) == 4
        assert lines.count < 5000, (what, lines.count)
        assert peak < 24 * row_bytes, (what, peak / row_bytes)

    for sampler in FILTERS:
        draft = sd.ModelDraft(target, sampler)
        measured(sampler, sampler=sampler, draft=draft)
    for name, draft, rule in every_way(HUGE, sd.Sampler()):
        measured(name, draft=draft, verify=rule)


# Ten thousand tokens.


class Calls:
    """Counts every call, of Python and of what is written in C."""

    def __enter__(self):
        self.count = 0
        sys.setprofile(self._see)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)

    def _see(self, frame, event, argument):
        self.count += event in ("call", "c_call")


def wandering(vocab_size=40, tokens=6000, seed=5):
    """A text that repeats itself now and then, as texts do."""
    g = np.random.default_rng(seed)
    phrases = [
        g.integers(0, vocab_size, size=n).tolist() for n in g.integers(3, 20, 60)
    ]
    text: list[int] = []
    while len(text) < tokens:
        text += phrases[int(g.integers(len(phrases)))]
        text.append(int(g.integers(vocab_size)))
    return text


LONG = wandering()
LONG_TARGET = sd.NGramModel.fit([LONG], order=4, vocab_size=40)
LONG_OTHER = sd.NGramModel.fit([LONG], order=2, vocab_size=40)
TOKENS = 10_000


def long_ways():
    model, other = sd.ModelDraft(LONG_OTHER), LONG_OTHER
    small = sd.SuffixHistory(4000)
    small.add(LONG)
    curve = sd.theory.cost_curve([1, 2, 5, 9], [1.0, 1.2, 1.5, 2.0])
    chain = {
        "none": (None, 4),
        "model": (model, sd.RecentAcceptance(0.1)),
        "cache": (sd.ModelDraft(sd.CacheModel(other)), 4),
        "lookup": (sd.PromptLookup(), sd.UpAndDown()),
        "lookup, what pays": (sd.PromptLookup(), sd.PayingLength(curve)),
        "suffixes": (sd.SuffixDraft(), 4),
        "suffixes, few": (sd.SuffixDraft(small, max_tokens=2000), 4),
        "first of": (sd.FirstOf([sd.PromptLookup(), model]), 4),
        "model that stops when unsure": (sd.ModelDraft(other, least=0.3), 4),
    }
    for name, (draft, k) in chain.items():
        yield name, draft, k, sd.verify_block if name == "model" else sd.verify_tokens
    yield "tree", sd.TreeDraft(other, shape=sd.tree_shape((2, 1))), 4, sd.verify_tree


LONG_WAYS = {name: way for name, *way in long_ways()}
# What is handed the text, to look at it, is handed a copy.
HANDED_THE_TEXT = {"model that stops when unsure"}


@pytest.mark.parametrize("name", LONG_WAYS)
def test_ten_thousand_tokens_without_drift(name):
    """After 9,500 a token takes no more calls, and no more memory in passing, than
    after 1,500; and little is kept for it."""
    draft, k, rule = LONG_WAYS[name]
    rounds = sd.stream(
        LONG_TARGET,
        LONG[:5],
        draft=draft,
        k=k,
        max_new_tokens=TOKENS,
        verify=rule,
        seed=0,
    )
    calls, work, passing, kept, done = Counter(), Counter(), {}, {}, 0
    while done < TOKENS:
        if done % 8000 < 1500 or done % 8000 >= 1800:  # neither of the places
            done += len(next(rounds).emitted)
            continue
        place = done // 8000
        if not tracemalloc.is_tracing():
            tracemalloc.start()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        with Calls() as counted:
            each = next(rounds)
        now, peak = tracemalloc.get_traced_memory()
        calls[place] += counted.count
        passing.setdefault(place, []).append(peak - before)
        done += len(each.emitted)
        work[place] += len(each.emitted) + len(each.drafted)
        if not 1500 <= done % 8000 < 1800:
            kept[place] = now
            tracemalloc.stop()
    rounds.close()
    first, last = (calls[place] / work[place] for place in (0, 1))
    assert last < 1.15 * first
    first, last = (np.median(passing[place]) for place in (0, 1))
    if name in HANDED_THE_TEXT:
        first, last = first - 8 * 1650, last - 8 * 9650
    assert last < 1.15 * first
    assert kept[1] < 300 * 4000, kept  # a table may have grown just then
