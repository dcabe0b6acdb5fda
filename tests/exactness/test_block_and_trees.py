"""The block rule and the tree rule: exact through the whole loop, to 1e-12."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from test_exact_ngrams import STOP, fitted
from toys import (
    DRAFTS,
    EXACT,
    GAPPED,
    OTHER,
    TARGET,
    TEMPERATURES,
    Growing,
    PointMass,
    ReadsTrees,
    inexactness,
    merged,
    outside_of,
    pair,
    plain,
    samplers,
    table_model,
    total_variation,
    whole_loop,
)

import specdec_lib as sd
from specdec_lib.drafts.trees import DRAWS
from specdec_lib.models import node_depths

CASES = [  # temperature, top_k, top_p
    (0.0, None, None),
    (0.0, 2, 0.8),
    (0.5, None, 0.8),
    (1.0, None, None),
    (1.0, 2, None),
    (1.7, 2, 0.8),
]
SHAPES = {
    "two for one place": (-1, -1),
    "three for one place": (-1, -1, -1),
    "a fork after the first guess": (-1, 0, 0),
    "two, one after each": (-1, -1, 0, 1),
    "two after the first of two": (-1, -1, 0, 0),
    "irregular": (-1, -1, 0, 0, 1),
    "a child before its parent's sibling": (-1, 0, -1, 2),
    "one branch deeper": (-1, -1, 1, 2),
}


def tree(shape, draw="without replacement", model=OTHER, sampler=None):
    return sd.TreeDraft(model, sampler or sd.Sampler(), shape, draw)


def by_tree(target, draft, **options):
    return inexactness(target, draft, verify=sd.verify_tree, **options)


def by_block(target, draft, **options):
    return inexactness(target, draft, verify=sd.verify_block, **options)


# The block rule


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("k", (1, 2, 3))
def test_block_rule(draft, temperature, k):
    """Room for all k guesses and a bonus."""
    for sampler in samplers(temperature):
        target, guesser = pair(draft, sampler)
        options = {"k": k, "tokens": k + 1, "sampler": sampler}
        assert by_block(target, guesser, way=merged, **options) < EXACT, sampler


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("k", (2, 3))
def test_block_rule_in_the_whole_loop(draft, k):
    """What is carried from round to round is right too."""
    for temperature in TEMPERATURES if k == 2 else (1.0,):
        sampler = sd.Sampler(temperature)
        target, guesser = pair(draft, sampler)
        assert by_block(target, guesser, k=k, tokens=k + 1, sampler=sampler) < EXACT


@pytest.mark.parametrize("draft", DRAFTS)
def test_block_rule_with_stop_ids_a_minimum_and_processors(draft):
    penalty = sd.RepetitionPenalty(1.8)
    sampler = sd.Sampler(1.2, processors=(penalty, sd.LogitBias({0: -1.0})))
    target, guesser = pair(draft, sampler)
    options = {"k": 2, "tokens": 3, "sampler": sampler, "stop_ids": (2,)}
    for minimum in (0, 2):
        assert by_block(target, guesser, min_new_tokens=minimum, **options) < EXACT


def test_block_rule_with_impossible_tokens():
    for draft in (sd.ModelDraft(OTHER), PointMass(), sd.ModelDraft(GAPPED)):
        assert by_block(GAPPED, draft, k=2, tokens=3) < EXACT
    gapped_draft = sd.ModelDraft(table_model(9, gaps=2))
    assert by_block(TARGET, gapped_draft, k=3, tokens=4) < EXACT


# The tree rule


@pytest.mark.parametrize("draft", DRAFTS)
def test_tree_rule_on_chains(draft):
    for temperature in TEMPERATURES:
        sampler = sd.Sampler(temperature)
        target, guesser = pair(draft, sampler)
        assert by_tree(target, guesser, k=2, tokens=3, sampler=sampler) < EXACT


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("shape", SHAPES)
def test_tree_rule(shape, draw):
    """Filters on both sides or on the target alone; trees cut off at a depth below
    their own; targets with and without a call for trees."""
    shape = SHAPES[shape]
    depth = max(node_depths(shape))
    for number, (temperature, top_k, top_p) in enumerate(CASES):
        sampler = sd.Sampler(temperature, top_k=top_k, top_p=top_p)
        own = sampler if number in (1, 3, 4) else sd.Sampler(temperature)
        target = ReadsTrees(TARGET) if number % 3 else TARGET
        k = max(1, depth - number % 2)
        error = by_tree(
            target,
            tree(shape, draw, sampler=own),
            k=k,
            tokens=min(k + 1, 3),
            sampler=sampler,
            way=merged,
        )
        assert error < EXACT, (sampler, k)


@pytest.mark.parametrize("target", (TARGET, ReadsTrees(TARGET)), ids=("plain", "tree"))
@pytest.mark.parametrize("draw", DRAWS)
def test_tree_rule_in_the_whole_loop(draw, target):
    """The target's state is on the kept branch, or reads it again."""
    for shape in ((-1, -1, 0), (-1, 0, 0)):
        assert by_tree(target, tree(shape, draw), k=2, tokens=3) < EXACT


def test_a_deep_branch_in_the_whole_loop():
    sampler = sd.Sampler(top_k=2)
    for target in (TARGET, ReadsTrees(TARGET)):
        draft = tree((-1, -1, 1, 2), sampler=sampler)
        assert by_tree(target, draft, k=3, tokens=4, sampler=sampler) < EXACT


def test_two_guesses_for_one_place_by_hand():
    """p = (.5, .3, .2) and q = (.2, .5, .3): the first is accepted with .7; what is
    left of p is certain of token 0."""
    p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    target = sd.FunctionModel(lambda seq: np.log(p), 3)
    model = sd.FunctionModel(lambda seq: np.log(q), 3)
    accepted = {
        # After 1 was rejected (.5 · .4), 0 is drawn with .2/.5; after 2 (.3 / 3), with
        # .2/.7.
        "without replacement": 0.7 + 0.2 * 2 / 5 + 0.1 * 2 / 7,
        "with replacement": 0.7 + 0.3 * 0.2,
        # 1 is accepted with p, .3; what is left is (5, 0, 2) / 7, of which 2 is next.
        "best": 0.3 + 0.7 * 2 / 7,
    }
    for draw in DRAWS:
        draft = tree((-1, -1), draw, model)
        options = {"draft": draft, "k": 1, "verify": sd.verify_tree}
        found = whole_loop(target, draft, k=1, tokens=2, sampler=sd.Sampler(),
                           verify=sd.verify_tree)  # fmt: skip
        for text in itertools.product(range(3), repeat=2):
            assert found[text] == pytest.approx(p[text[0]] * p[text[1]], abs=EXACT)
        counts = sd.exact_distribution(
            lambda rng, options=options: (
                (
                    next(sd.stream(target, (0,), max_new_tokens=2, rng=rng, **options))
                ).accepted
            )
        )
        assert counts[1] == pytest.approx(accepted[draw], abs=EXACT)


@pytest.mark.parametrize("draw", DRAWS)
def test_greedy_output_is_one_text(draw):
    sampler = sd.Sampler(0)
    truth = plain(TARGET, 3, sampler=sampler)
    for own in (sampler, sd.Sampler()):
        draft = tree((-1, -1, 0), draw, sampler=own)
        real = whole_loop(
            TARGET, draft, k=2, tokens=3, sampler=sampler, verify=sd.verify_tree
        )
        assert len(real) == 1
        assert total_variation(real, truth) < EXACT


@pytest.mark.parametrize("draw", DRAWS)
def test_processors_see_their_own_branch(draw):
    """A penalty depends on what stands before a node, so on the node's branch."""
    sampler = sd.Sampler(0.9, processors=(sd.RepetitionPenalty(3.0),))
    for own in (sampler, sd.Sampler()):
        for shape in ((-1, -1, 1), (-1, 0, -1)):
            draft = tree(shape, draw, sampler=own)
            options = {"k": 2, "tokens": 3, "sampler": sampler, "way": merged}
            assert by_tree(TARGET, draft, **options) < EXACT
    bias = sd.Sampler(processors=(sd.LogitBias({1: -np.inf}),))
    draft = tree((-1, -1, 0), draw)
    assert by_tree(TARGET, draft, k=2, tokens=3, sampler=bias) < EXACT


@pytest.mark.parametrize("minimum", (0, 1, 2, 3))
@pytest.mark.parametrize("draw", DRAWS)
def test_stop_ids_in_trees(draw, minimum):
    """A stop id may be a kept guess, a rejected one, or the token after."""
    error = by_tree(
        ReadsTrees(TARGET) if minimum % 2 else TARGET,
        tree((-1, -1, 1), draw),
        k=2,
        tokens=3,
        stop_ids=(2,),
        min_new_tokens=minimum,
    )
    assert error < EXACT


@pytest.mark.parametrize("draw", DRAWS)
def test_context_windows(draw):
    """The target's window ends the text; the draft's, even shorter, cuts its trees."""
    target = sd.FunctionModel(TARGET.logits_after, 3, context_window=5)
    truth = plain(TARGET, 3, sampler=sd.Sampler())
    for window in (2, 3, 4):
        model = sd.FunctionModel(OTHER.logits_after, 3, context_window=window)
        real = whole_loop(
            ReadsTrees(target) if window % 2 else target,
            tree((-1, -1, 1), draw, model),
            k=2,
            tokens=9,
            sampler=sd.Sampler(),
            verify=sd.verify_tree,
        )
        assert total_variation(real, truth) < EXACT


@pytest.mark.parametrize("draw", DRAWS)
def test_trees_with_impossible_tokens(draw):
    """Also a draft with fewer tokens to choose from than its shape has children."""
    for shape in ((-1, -1, 0), (-1, -1, -1)):
        models = (OTHER, GAPPED, table_model(9, gaps=2))
        models += (outside_of(GAPPED, sd.Sampler()),)
        for model in models:
            draft = tree(shape, draw, model)
            assert by_tree(GAPPED, draft, k=2, tokens=3, way=merged) < EXACT


def test_a_length_that_is_chosen_each_round():
    draft = tree((-1, -1, 1))
    assert by_tree(TARGET, draft, k=Growing(), tokens=3) < EXACT
    draft = sd.ModelDraft(OTHER)
    assert by_block(TARGET, draft, k=Growing(), tokens=4) < EXACT


def test_siblings_found_in_different_ways():
    """A tree may mix a certain guess with drawn ones, as long as each row is honest."""

    @dataclass(frozen=True)
    class Mixed:
        def start(self, prompt):
            return MixedSession(list(prompt))

    class MixedSession:
        def __init__(self, sequence):
            self.sequence = sequence

        def propose(self, k, rng):
            sure = self.sequence[-2] if len(self.sequence) > 1 else 0
            row = sd.Sampler()(OTHER.logits_after(tuple(self.sequence)))
            drawn = rng.categorical(row)
            return sd.Proposal((sure, drawn), np.array([np.eye(3)[sure], row]),
                               (-1, -1))  # fmt: skip

        def commit(self, tokens):
            self.sequence += tokens

    assert by_tree(TARGET, Mixed(), k=1, tokens=3) < EXACT


# A pair of n-gram models, with the model's own call for trees and without


class OneBranchAtATime:
    """A model whose states cannot read trees."""

    def __init__(self, model):
        self.model = model
        self.vocab_size, self.bos_id = model.vocab_size, model.bos_id
        self.context_window = model.context_window

    def start(self):
        state = self.model.start()
        hidden = type("State", (), {"length": property(lambda self: state.length)})()
        hidden.extend, hidden.rewind = state.extend, state.rewind
        return hidden


@pytest.mark.parametrize("stop_ids", ((), (STOP,)))
@pytest.mark.parametrize("draw", DRAWS)
def test_n_gram_models(draw, stop_ids):
    for temperature in (0.0, 0.8):
        sampler = sd.Sampler(temperature, top_k=3)
        for target in (fitted(3), OneBranchAtATime(fitted(3))):
            draft = tree((-1, -1, 0), draw, fitted(2), sampler)
            options = {"k": 2, "tokens": 3, "sampler": sampler, "stop_ids": stop_ids}
            assert by_tree(target, draft, way=merged, **options) < EXACT
    draft = tree((-1, -1), draw, fitted(2), sd.Sampler(top_k=2))
    error = by_tree(fitted(3), draft, k=1, tokens=2, sampler=sd.Sampler())
    assert error < EXACT


@pytest.mark.parametrize("temperature", (0.0, 0.6, 1.0))
def test_n_gram_models_by_the_block_rule(temperature):
    sampler = sd.Sampler(temperature)
    options = {"k": 2, "tokens": 3, "sampler": sampler, "way": merged}
    for own in (sampler, sd.Sampler(0)):
        draft = sd.ModelDraft(fitted(2), own)
        assert by_block(fitted(3), draft, **options) < EXACT


def test_cases_taken_at_random():
    """Everything at once, in combinations that nobody thought of."""
    g = np.random.default_rng(17)

    def some(values):
        return values[g.integers(len(values))]

    def some_sampler():
        return sd.Sampler(
            float(g.choice([0, 0.3, 1, 2.5])),
            top_k=some((None, 1, 2)),
            top_p=some((None, 0.3, 0.9, 1.0)),
            processors=some(
                ((), (sd.RepetitionPenalty(2.0),), (sd.LogitBias({0: -2.0}),))
            ),
        )

    for number in range(500):
        vocab_size = int(g.integers(2, 4))
        target, other = (
            table_model(
                int(g.integers(10**6)),
                vocab_size,
                scale=float(g.choice([0.1, 1.5, 5.0])),
                gaps=int(g.integers(2)),
            )
            for _ in range(2)
        )
        if g.integers(2):
            target = ReadsTrees(target)
        if g.integers(3):
            nodes = int(g.integers(1, 5))
            shape = tuple(int(g.integers(-1, node)) for node in range(nodes))
            draft = sd.TreeDraft(other, some_sampler(), shape, some(DRAWS))
            verify = sd.verify_tree
        else:
            draft = sd.ModelDraft(other, some_sampler())
            verify = some((sd.verify_block, sd.verify_tree))
        error = inexactness(
            target,
            draft,
            k=int(g.integers(4)),
            tokens=int(g.integers(1, 4)),
            sampler=some_sampler(),
            stop_ids=some(((), (vocab_size - 1,))),
            way=some((whole_loop, merged)),
            verify=verify,
        )
        assert error < EXACT, f"case {number}"
