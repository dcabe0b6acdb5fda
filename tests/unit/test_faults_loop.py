"""Faults of the loop: ends, windows, prompts, caches, rewinds, requests side by side.

By their kinds: every length of prompt against every number of guesses up to the end of
the window and beyond, every place of a stop, every budget, for every kind of draft.
The truth is a text written by fresh readings, one for each token (``written``).
"""

from __future__ import annotations

import copy
from itertools import product

import numpy as np
import pytest
from faults_kit import (
    GREEDY,
    OTHER,
    TARGET,
    VOCAB,
    WAYS,
    Says,
    counted,
    ledger,
    policies,
    ways,
    written,
)

import specdec_lib as sd

WINDOW = 8
NARROW = ledger(1, context_window=WINDOW)  # the target with an end
PROMPT = (0, 1, 2, 3, 4, 1, 2, 3)
KS = (0, 1, 2, 3, 5, 8)


def run(name, target, prompt, *, sampler=GREEDY, other=OTHER, **options):
    draft, verify = ways(sampler, other)[name]
    options = {"max_new_tokens": 40, "seed": 1, **options}
    return sd.generate(
        target, prompt, draft=draft, verify=verify, sampler=sampler, **options
    )


# Windows and prompts.


@pytest.mark.parametrize("name", WAYS)
def test_every_prompt_against_every_k_up_to_the_end_of_the_window(name):
    """No guess may be read past the end, and the text is that of plain decoding."""
    for length in range(1, WINDOW + 1):
        prompt = PROMPT[:length]
        truth = written(TARGET, prompt, WINDOW - length)
        for k in range(WINDOW + 2):
            found = run(name, NARROW, prompt, k=k)
            assert found.tokens == truth, (length, k)
            assert found.finish_reason == "context"


@pytest.mark.parametrize("policy", policies())
@pytest.mark.parametrize("name", ("model", "lookup", "suffixes"))
def test_every_prompt_with_a_length_that_is_chosen(name, policy):
    for length in range(1, WINDOW + 1):
        truth = written(TARGET, PROMPT[:length], WINDOW - length)
        found = run(name, NARROW, PROMPT[:length], k=policies()[policy])
        assert found.tokens == truth
    longer = run(name, TARGET, PROMPT, k=policies()[policy], max_new_tokens=30)
    assert longer.tokens == written(TARGET, PROMPT, 30)


NEEDS_A_MODEL = ("model", "model, by blocks", "tree", "tree of the best")


@pytest.mark.parametrize("name", (*NEEDS_A_MODEL, "model with a cache"))
def test_a_draft_whose_window_is_any_shorter_or_longer(name):
    """It guesses what still fits, then nothing; the text goes on without it."""
    for window, k in product(range(1, WINDOW + 3), (1, 4, WINDOW + 1)):
        other = ledger(2, context_window=window)
        for length in (1, 2, WINDOW - 1, WINDOW):
            truth = written(TARGET, PROMPT[:length], WINDOW - length)
            found = run(name, NARROW, PROMPT[:length], other=other, k=k)
            assert found.tokens == truth, (window, k, length)


@pytest.mark.parametrize("order", range(1, 6))
@pytest.mark.parametrize("length", range(7))
def test_every_prompt_against_every_length_that_is_looked_back(order, length):
    """Shorter than an n-gram or a match, and none at all: no error, the same text."""
    prompt = PROMPT[:length]
    model = ledger(1)
    history = sd.SuffixHistory(max_match=order)
    history.add(PROMPT[::-1])
    for draft in (
        sd.ModelDraft(counted(order), GREEDY),
        sd.ModelDraft(sd.CacheModel(OTHER, order=order), GREEDY),
        sd.PromptLookup(order),
        sd.PromptLookup(order, order),
        sd.SuffixDraft(history, max_match=order, min_match=order, threshold=0),
    ):
        found = sd.generate(
            model, prompt, draft=draft, k=order, max_new_tokens=9, sampler=GREEDY
        )
        assert found.tokens == written(model, prompt or (0,), 9)
    for nothing in (sd.ModelDraft(OTHER), sd.TreeDraft(OTHER)):
        with pytest.raises(ValueError, match="prompt must have at least one token"):
            nothing.start([])


# Budgets and stops.


@pytest.mark.parametrize("name", WAYS)
def test_every_budget_is_kept_to_the_token(name):
    for k, budget in product((*KS, 12), range(9)):
        sampler = sd.Sampler(k % 2)
        found = run(name, TARGET, PROMPT, sampler=sampler, k=k, max_new_tokens=budget)
        assert len(found.tokens) == budget
        assert sum(len(each.emitted) for each in found.rounds) == budget
        assert found.finish_reason == "length"


@pytest.mark.parametrize("name", WAYS)
def test_a_stop_at_every_place_of_a_round_ends_the_text_there(name):
    """Whether it is the first guess, one in the middle, the last, or the bonus."""
    text = written(TARGET, PROMPT, 12)
    for k, place in product(KS, range(9)):
        stop = text[place]
        end = text.index(stop) + 1
        found = run(name, TARGET, PROMPT, k=k, stop_ids=[stop])
        assert found.tokens == text[:end]
        assert found.finish_reason == "stop"
        assert found.rounds[-1].accepted <= len(found.rounds[-1].emitted)
        # The same token as the last one allowed, and as one too many.
        for budget in (end, end - 1):
            found = run(
                name, TARGET, PROMPT, k=k, stop_ids=[stop], max_new_tokens=budget
            )
            assert found.tokens == text[:budget]
            assert found.finish_reason == ("stop" if budget == end else "length")


class Bytes(sd.Tokenizer):
    """A tokenizer without a token that ends a text."""

    eos_id = None


@pytest.mark.parametrize("draft", (sd.PromptLookup(), sd.SuffixDraft(threshold=0)))
def test_without_a_stop_id_it_runs_to_the_budget(draft):
    """Guesses that are found, one after the other, and nothing to compare them with."""
    tokenizer = Bytes()
    ids = tokenizer.encode("abcabcabc").tolist()
    again = sd.FunctionModel(
        lambda text: 9.0 * np.eye(258)[ids[(len(text) - 1) % 9]], 258, bos_id=0
    )
    engine = sd.Engine(again, tokenizer, draft, sampler=GREEDY)
    assert engine.stop_ids == ()
    done = engine.complete("abcabcabc", max_new_tokens=20, k=4)
    assert (done.text, done.finish_reason) == ("abcabcabcabcabcabcab", "length")
    assert done.metrics.accepted > 10


# Caches and rewinds.


class Checked:
    """``model``, each of whose rows is compared with a fresh reading of its text."""

    def __init__(self, model):
        self.model, self.rows, self.rewinds = model, 0, 0

    def __getattr__(self, name):
        if name in ("model", "__deepcopy__"):
            raise AttributeError(name)
        return getattr(self.model, name)

    def start(self):
        return _CheckedState(self)


class _CheckedState:
    def __init__(self, owner):
        self.owner, self.state = owner, owner.model.start()
        self.text = []
        if hasattr(self.state, "extend_tree"):
            self.extend_tree, self.keep = self._extend_tree, self._keep

    @property
    def length(self):
        assert self.state.length == len(self.text)
        return self.state.length

    def _same(self, row, text):
        fresh = self.owner.model.start().extend(text)[-1]
        assert np.array_equal(np.isneginf(row), np.isneginf(fresh))
        finite = np.isfinite(fresh)
        assert np.abs(row[finite] - fresh[finite]).max() < 1e-9, text
        self.owner.rows += 1

    def extend(self, tokens):
        rows = self.state.extend(tokens)
        for row, token in zip(rows, tokens, strict=True):
            self.text.append(token)
            self._same(row, self.text)
        return rows

    def rewind(self, length):
        self.owner.rewinds += length < len(self.text)
        self.state.rewind(length)
        del self.text[length:]

    def _extend_tree(self, tokens, parents):
        rows = self.state.extend_tree(tokens, parents)
        self.tree = []
        for row, token, parent in zip(rows, tokens, parents, strict=True):
            above = self.text if parent == -1 else self.tree[parent]
            self.tree.append([*above, token])
            self._same(row, self.tree[-1])
        return rows

    def _keep(self, nodes):
        self.state.keep(nodes)
        self.owner.rewinds += 1
        if len(nodes):
            self.text = list(self.tree[nodes[-1]])


MODELS = {
    "function": ledger(5),
    "3-grams": counted(3, 1),
    "5-grams, backing off": counted(5, 1, smoothing="stupid-backoff"),
    "4-grams, a cache of 7": sd.CacheModel(counted(4, 1), window=7, order=3),
    "function, a cache of 3": sd.CacheModel(ledger(5), window=3, order=1),
}
CHAINS_AND_TREES = ("model", "model, by blocks", "lookup", "tree", "tree with doubles")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", CHAINS_AND_TREES)
def test_every_row_of_every_model_is_that_of_a_fresh_reading(name, model):
    """As the target and as the draft, through rounds that reject, keep and fork. What
    was read and kept is not read again, where a state can keep a path of a tree."""
    target, other = Checked(MODELS[model]), Checked(MODELS[model])
    needed = 0
    for k, seed in ((1, 0), (4, 1)):
        options = {"sampler": sd.Sampler(), "max_new_tokens": 16, "seed": seed, "k": k}
        found = run(name, target, PROMPT[:3], **options)
        needed += len(PROMPT[:3]) - 1
        needed += sum(1 + len(each.drafted) for each in found.rounds)
        if name != "lookup":
            run(name, TARGET, PROMPT[:3], other=other, **options)
    assert target.rewinds > 2
    assert name == "lookup" or other.rewinds > 1
    if "tree" not in name or hasattr(MODELS[model].start(), "extend_tree"):
        assert target.rows == needed


# Requests one after the other and side by side.


REQUESTS = [
    # prompt, temperature, seed: of some nearly all guesses are right, of some none
    (PROMPT, 0.0, 1),
    ((0, 1, 0, 1, 0, 1), 1.0, 2),
    ((4,), 0.7, 3),
    (PROMPT[::-1], 1.0, 4),
]


def start(way, request, k):
    (draft, verify), (prompt, temperature, seed) = way, request
    options = {"sampler": sd.Sampler(temperature), "max_new_tokens": 15, "seed": seed}
    return sd.stream(TARGET, prompt, draft=draft, verify=verify, k=k, **options)


def seen(rounds):
    return [(each.drafted, each.accepted, each.emitted) for each in rounds]


@pytest.mark.parametrize("name", WAYS)
def test_a_request_knows_nothing_of_others(name):
    """Not of those before it, and not of those that run at the same time, in any order:
    neither guesses nor tokens, though some accept all and some nothing."""
    alone = [seen(start(ways(sd.Sampler())[name], request, 4)) for request in REQUESTS]
    shared = ways(sd.Sampler())[name]
    for order in ((0, 1, 2, 3), (3, 1, 0, 2), (2, 2, 3, 0, 1)):
        for i in order:
            assert seen(start(shared, REQUESTS[i], 4)) == alone[i]
    g = np.random.default_rng(0)
    for _ in range(4):
        streams = [start(shared, request, 4) for request in REQUESTS]
        together = [[] for _ in REQUESTS]
        waiting = list(range(len(REQUESTS)))
        while waiting:
            i = waiting[g.integers(len(waiting))]
            each = next(streams[i], None)
            if each is None:
                waiting.remove(i)
            else:
                together[i].append(each)
        assert [seen(rounds) for rounds in together] == alone


@pytest.mark.parametrize("policy", policies())
def test_a_length_that_learns_forgets_between_requests(policy):
    shared = policies()[policy]
    way = ways(sd.Sampler())["lookup"]
    alone = [seen(start(way, request, policies()[policy])) for request in REQUESTS]
    streams = [start(way, request, shared) for request in REQUESTS]
    together = [[] for _ in REQUESTS]
    for _ in range(16):
        for i, each in enumerate(streams):
            together[i] += [one for one in [next(each, None)] if one is not None]
    assert [seen(rounds) for rounds in together] == alone
    assert seen(start(way, REQUESTS[1], shared)) == alone[1]
    assert vars(copy.copy(shared)) == vars(policies()[policy])


# Processors that look at the text.


def whole_prefix(logits, prefix):
    """Another bias for every prefix: one guess that is not seen changes the row."""
    place = 7
    for token in prefix:
        place = (place * 29 + token + 1) % 991
    return logits + 1.5 * np.cos(place * np.arange(1, len(logits) + 1))


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("both", (False, True), ids=("target alone", "both"))
def test_what_a_processor_sees_does_not_depend_on_k(name, both):
    sampler = sd.Sampler(0, processors=(whole_prefix, sd.RepetitionPenalty(1.3)))
    truth = written(TARGET, PROMPT, 16, sampler)
    assert truth != written(TARGET, PROMPT, 16)
    draft, verify = ways(sampler if both else GREEDY)[name]
    for k in KS:
        found = sd.generate(
            TARGET,
            PROMPT,
            draft=draft,
            k=k,
            verify=verify,
            max_new_tokens=16,
            sampler=sampler,
        )
        assert found.tokens == truth, k


FILTERS = {
    "top 2": sd.Sampler(top_k=2),
    "nucleus": sd.Sampler(top_p=0.6),
    "cold nucleus": sd.Sampler(0.6, top_p=0.7),
    "never 3": sd.Sampler(processors=(sd.LogitBias({3: -np.inf}),)),
    "hardly ever 3": sd.Sampler(processors=(sd.LogitBias({3: -100.0}),)),
}


@pytest.mark.parametrize("sampler", FILTERS.values(), ids=FILTERS)
def test_what_the_target_filters_never_comes_from_a_draft_that_does_not(sampler):
    """At no place of any round, as a guess, a correction or a bonus."""
    plain = ways(sd.Sampler())
    plain |= {
        f"only {token}": (Says(lambda text, k, t=token: [t] * k), sd.verify_block)
        for token in range(VOCAB)
    }
    for seed, (name, (draft, verify)) in enumerate(plain.items()):
        options = {"k": 1 + seed % 6, "max_new_tokens": 25, "sampler": sampler}
        found = sd.generate(
            TARGET, PROMPT, draft=draft, verify=verify, seed=seed, **options
        )
        text = list(PROMPT)
        for token in found.tokens:
            row = sampler(TARGET.logits_after(text), text)
            assert row[token] > 1e-30, name
            text.append(token)
