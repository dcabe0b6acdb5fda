"""Mixtures of drafts leave the target's distribution as it is, to 1e-12."""

from dataclasses import dataclass, replace

import pytest
from toys import (
    EXACT,
    OTHER,
    TARGET,
    PointMass,
    inexactness,
    merged,
    table_model,
    whole_loop,
)

import specdec_lib as sd
from specdec_lib.drafts import mixtures

THIRD = table_model(9)
WAYS = [whole_loop, merged]
PROMPT = (0, 1, 2, 0, 1)  # with something to remember


@dataclass(frozen=True)
class Sometimes:
    """A draft that proposes only where ``when(sequence, rng)`` says so."""

    draft: sd.ModelDraft | PointMass
    when: object

    def start(self, prompt):
        return _SometimesSession(self.draft.start(prompt), self.when, list(prompt))


class _SometimesSession:
    def __init__(self, session, when, sequence):
        self.session, self.when, self.sequence = session, when, sequence

    def propose(self, k, rng):
        if self.when(self.sequence, rng):
            return self.session.propose(k, rng)
        return sd.Proposal(())

    def commit(self, tokens):
        self.session.commit(tokens)
        self.sequence += tokens


def after_a_zero(sequence, rng):
    return sequence[-1] == 0


def after_an_even_sum(sequence, rng):
    return sum(sequence) % 2 == 0


def by_a_coin(sequence, rng):
    return rng.bernoulli(0.4)


def first_of(name, sampler=None):
    sampler = sampler or sd.Sampler()
    model, third = sd.ModelDraft(OTHER, sampler), sd.ModelDraft(THIRD, sampler)
    return sd.FirstOf(
        {
            "copy, then model": [Sometimes(PointMass(), after_a_zero), model],
            "model, then copy": [Sometimes(model, after_an_even_sum), PointMass()],
            "two models": [Sometimes(model, after_a_zero), third],
            "by a coin": [Sometimes(model, by_a_coin), third],
            "none at times": [
                Sometimes(PointMass(), after_a_zero),
                Sometimes(model, after_an_even_sum),
            ],
            "one": [model],
        }[name]
    )


FIRST_OF = ("copy, then model", "model, then copy", "two models", "by a coin")
FIRST_OF += ("none at times", "one")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FIRST_OF)
def test_the_first_that_proposes(name, way):
    assert inexactness(TARGET, first_of(name), k=2, tokens=3, way=way) < EXACT


@pytest.mark.parametrize("temperature", (0.0, 0.5, 1.7))
@pytest.mark.parametrize("k, tokens", [(1, 3), (3, 3), (2, 4)])
def test_the_first_that_proposes_at_other_temperatures(temperature, k, tokens):
    sampler = sd.Sampler(temperature, top_k=2)
    for name in ("two models", "none at times"):
        draft = first_of(name, sampler)
        found = inexactness(
            TARGET, draft, k=k, tokens=tokens, sampler=sampler, way=merged
        )
        assert found < EXACT


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("draw", ("without replacement", "with replacement", "best"))
def test_a_tree_passes_through(draw, way):
    """A tree where the first part has one, a chain from the second elsewhere."""
    tree = sd.TreeDraft(OTHER, shape=(-1, -1, 0), draw=draw)
    draft = sd.FirstOf([Sometimes(tree, after_an_even_sum), sd.ModelDraft(THIRD)])
    options = dict(k=2, tokens=3, verify=sd.verify_tree, way=way)
    assert inexactness(TARGET, draft, **options) < EXACT
    assert inexactness(sd.CacheModel(TARGET), draft, prompt=PROMPT, **options) < EXACT


def test_the_block_rule_takes_them_too():
    cached = sd.ModelDraft(sd.CacheModel(OTHER, weight=0.5, order=2))
    draft = sd.FirstOf([Sometimes(PointMass(), after_a_zero), cached])
    found = inexactness(
        TARGET, draft, k=3, tokens=3, prompt=PROMPT, verify=sd.verify_block
    )
    assert found < EXACT


@dataclass(frozen=True)
class Misreported:
    """A draft whose proposals are handed on with other probabilities."""

    draft: object
    rows_after: object  # of (sequence, tokens): what is reported

    def start(self, prompt):
        return _MisreportedSession(self.draft.start(prompt), self, list(prompt))


class _MisreportedSession:
    def __init__(self, session, fault, sequence):
        self.session, self.fault, self.sequence = session, fault, sequence

    def propose(self, k, rng):
        proposal = self.session.propose(k, rng)
        if not proposal.tokens:
            return proposal
        rows = self.fault.rows_after(self.sequence, proposal.tokens)
        return replace(proposal, probabilities=rows)

    def commit(self, tokens):
        self.session.commit(tokens)
        self.sequence += tokens


def rows_of_model(model):
    """What ``model`` says of each of the tokens, at temperature 1."""

    def rows_after(sequence, tokens):
        read = [*sequence, *tokens[:-1]]
        return sd.Sampler()(model.start().extend(read)[len(sequence) - 1 :])

    return rows_after


@pytest.mark.parametrize("name", ("two models", "by a coin", "copy, then model"))
def test_the_wrong_parts_probabilities_are_seen(name):
    """Always those of one part, whichever proposed."""
    wrong = Misreported(first_of(name), rows_of_model(OTHER))
    assert inexactness(TARGET, wrong, k=2, tokens=3) > 0.01


def test_the_right_parts_probabilities_pass_the_same_way():
    """The wrapper by itself is not what fails."""
    honest = Misreported(first_of("one"), rows_of_model(OTHER))
    assert inexactness(TARGET, honest, k=2, tokens=3) < EXACT


# ---- a model mixed with a cache

CACHES = {
    "one token": dict(weight=0.4, window=20, order=1),
    "two tokens": dict(weight=0.4, window=20, order=2),
    "three tokens": dict(weight=0.6, window=20, order=3),
    "a short window": dict(weight=0.6, window=3, order=3),
    "all weight": dict(weight=1.0, window=20, order=2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CACHES)
def test_a_cached_model_as_the_draft(name, way):
    draft = sd.ModelDraft(sd.CacheModel(OTHER, **CACHES[name]))
    found = inexactness(TARGET, draft, k=2, tokens=3, prompt=PROMPT, way=way)
    assert found < EXACT


@pytest.mark.parametrize("temperature", (0.0, 0.5, 1.7))
@pytest.mark.parametrize("k, tokens", [(1, 3), (3, 3), (2, 4)])
def test_a_cached_draft_at_other_temperatures(temperature, k, tokens):
    sampler = sd.Sampler(temperature, top_p=0.9)
    cached = sd.CacheModel(OTHER, weight=0.5)
    for own in (sampler, sd.Sampler(0.7)):
        found = inexactness(
            TARGET,
            sd.ModelDraft(cached, own),
            k=k,
            tokens=tokens,
            sampler=sampler,
            prompt=PROMPT,
            way=merged,
        )
        assert found < EXACT


@pytest.mark.parametrize("name", ("one token", "two tokens", "three tokens"))
def test_the_models_law_reported_for_the_mixtures_is_seen(name):
    cached = sd.CacheModel(OTHER, **CACHES[name])
    draft = sd.ModelDraft(cached)
    wrong = Misreported(draft, rows_of_model(OTHER))
    right = Misreported(draft, rows_of_model(cached))
    assert inexactness(TARGET, wrong, k=2, tokens=3, prompt=PROMPT) > 0.02
    assert inexactness(TARGET, right, k=2, tokens=3, prompt=PROMPT) < EXACT


@pytest.mark.parametrize("name", ("two tokens", "a short window"))
def test_a_cached_model_as_the_target(name):
    """Its states are rewound by every rejection, and must then be as if new."""
    target = sd.CacheModel(TARGET, **CACHES[name])
    draft = first_of("copy, then model")
    assert inexactness(target, draft, k=2, tokens=3, prompt=PROMPT) < EXACT


def test_counts_that_a_rewind_leaves_are_seen(monkeypatch):
    """In the target, where they change the text; in a draft they only cost."""

    def forgetful(state, length):
        state._state.rewind(length)
        del state._sequence[length:]

    monkeypatch.setattr(mixtures._CacheState, "rewind", forgetful)
    cached = sd.CacheModel(TARGET, **CACHES["two tokens"])
    as_target = inexactness(cached, sd.ModelDraft(OTHER), k=2, tokens=3, prompt=PROMPT)
    as_draft = inexactness(TARGET, sd.ModelDraft(cached), k=2, tokens=3, prompt=PROMPT)
    assert as_target > 0.01
    assert as_draft < EXACT


def test_both_together():
    cached = sd.ModelDraft(sd.CacheModel(OTHER, weight=0.5, order=2))
    draft = sd.FirstOf([Sometimes(PointMass(), after_a_zero), cached])
    assert inexactness(TARGET, draft, k=3, tokens=3, prompt=PROMPT) < EXACT
