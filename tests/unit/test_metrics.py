"""Every figure of a run, by hand."""

import dataclasses

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib.metrics import Positions


def round_of(drafted, accepted, emitted, **seconds):
    return sd.Round(
        drafted=(0,) * drafted, accepted=accepted, emitted=(0,) * emitted, **seconds
    )


@pytest.mark.parametrize(
    "drafted, accepted, emitted, tested",
    [
        (4, 0, 1, 1),  # the first is rejected, three are never looked at
        (4, 1, 2, 2),
        (4, 3, 4, 4),
        (4, 4, 5, 4),  # all accepted, and a bonus
        (0, 0, 1, 0),  # no guesses: plain decoding
        (4, 2, 2, 2),  # the second accepted guess was a stop id
        (4, 4, 4, 4),  # the last one was
    ],
)
def test_tested_is_up_to_and_including_the_first_rejection(
    drafted, accepted, emitted, tested
):
    assert round_of(drafted, accepted, emitted).tested == tested


def test_rounds_of_all_and_nothing():
    metrics = sd.Metrics.from_rounds([round_of(4, 4, 5), round_of(4, 0, 1)])
    assert (metrics.drafted, metrics.tested) == (8, 5)
    assert (metrics.accepted, metrics.emitted, metrics.target_calls) == (4, 6, 2)
    assert metrics.acceptance_rate == 4 / 5
    assert metrics.draft_efficiency == 4 / 8
    assert metrics.tokens_per_call == 3


def test_a_correction_is_not_accepted():
    metrics = sd.Metrics.from_rounds([round_of(4, 0, 1)] * 5)
    assert metrics.acceptance_rate == 0
    assert metrics.draft_efficiency == 0
    assert metrics.tokens_per_call == 1


def test_tokens_per_call_counts_the_bonus_and_accepted_does_not():
    """Without a cut they differ by exactly one each round."""
    rounds = [round_of(3, a, a + 1) for a in (0, 1, 2, 3, 3)]
    metrics = sd.Metrics.from_rounds(rounds)
    accepted_per_call = metrics.accepted / metrics.target_calls
    assert metrics.tokens_per_call - accepted_per_call == pytest.approx(1)


def test_a_ratio_of_nothing_is_none():
    none = sd.Metrics.from_rounds([])
    assert none.acceptance_rate is None
    assert none.draft_efficiency is None
    assert none.tokens_per_call is None
    plain = sd.Metrics.from_rounds([round_of(0, 0, 1)] * 3)
    assert plain.acceptance_rate is None
    assert plain.draft_efficiency is None
    assert plain.tokens_per_call == 1


def test_seconds_add_up():
    rounds = [
        round_of(1, 1, 2, draft_seconds=0.25, target_seconds=1.0),
        round_of(1, 0, 1, draft_seconds=0.5, target_seconds=2.0),
    ]
    metrics = sd.Metrics.from_rounds(iter(rounds))
    assert (metrics.draft_seconds, metrics.target_seconds) == (0.75, 3.0)


def test_rounds_of_several_runs_add_up():
    a, b = [round_of(4, 4, 5)], [round_of(4, 0, 1), round_of(2, 1, 2)]
    both = sd.Metrics.from_rounds([*a, *b])
    one, other = sd.Metrics.from_rounds(a), sd.Metrics.from_rounds(b)
    for field in dataclasses.fields(sd.Metrics):
        total = getattr(one, field.name) + getattr(other, field.name)
        assert getattr(both, field.name) == total


def test_the_metrics_of_a_run_are_those_of_its_rounds():
    target = sd.FunctionModel(lambda seq: [0.0, 1.0, 2.0], 3)
    draft = sd.ModelDraft(sd.FunctionModel(lambda seq: [1.0, 0.0, 0.0], 3))
    generation = sd.generate(target, [0], draft=draft, max_new_tokens=200, seed=0)
    metrics = generation.metrics
    assert metrics.emitted == len(generation.tokens) == 200
    assert metrics.target_calls == len(generation.rounds)
    assert metrics.accepted == sum(r.accepted for r in generation.rounds)
    # Each round but the last ends in a correction or a bonus, so one token more.
    assert metrics.emitted == metrics.accepted + metrics.target_calls


def test_the_acceptance_rate_estimates_the_overlap():
    """Here every position has the same p and q, so that 1 - TV is exact."""
    p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    target = sd.FunctionModel(lambda seq: np.log(p), 3)
    draft = sd.ModelDraft(sd.FunctionModel(lambda seq: np.log(q), 3))
    metrics = sd.generate(
        target, [0], draft=draft, k=3, max_new_tokens=8000, seed=0
    ).metrics
    spread = (0.7 * 0.3 / metrics.tested) ** 0.5
    assert abs(metrics.acceptance_rate - 0.7) < 5 * spread
    assert metrics.tokens_per_call == pytest.approx(
        sd.theory.expected_tokens(0.7, 3), rel=0.03
    )
    # Over drafted in place of tested it is another number, and not alpha.
    assert metrics.draft_efficiency == pytest.approx((0.7 + 0.49 + 0.343) / 3, rel=0.05)
    assert metrics.draft_efficiency < 0.6


def test_positions_by_hand():
    rounds = [
        round_of(3, 0, 1),  # the first rejected
        round_of(3, 2, 3),  # the third rejected
        round_of(3, 3, 4),  # all accepted, and a bonus
        round_of(2, 2, 3),  # a shorter draft
        round_of(3, 1, 1),  # the first was a stop id: nothing after it is judged
        round_of(0, 0, 1),  # no guesses
    ]
    positions = Positions.from_rounds(iter(rounds))
    assert positions.drafted == (5, 5, 4)
    assert positions.tested == (5, 3, 2)
    assert positions.accepted == (4, 3, 1)
    assert positions.rates == (4 / 5, 1.0, 1 / 2)


def test_positions_where_nothing_was_tested():
    assert Positions.from_rounds([]) == Positions((), (), ())
    assert Positions.from_rounds([round_of(0, 0, 1)]).rates == ()
    assert Positions.from_rounds([round_of(3, 0, 1)] * 2).rates == (0.0, None, None)


@pytest.mark.parametrize("k", (1, 2, 5))
def test_positions_add_up_to_the_metrics(k):
    g = np.random.default_rng(k)
    p, q = g.dirichlet(np.ones(4), size=(2, 4))
    target = sd.FunctionModel(lambda seq: np.log(p[seq[-1]]), 4)
    draft = sd.ModelDraft(sd.FunctionModel(lambda seq: np.log(q[seq[-1]]), 4))
    run = sd.generate(
        target, [0], draft=draft, k=k, max_new_tokens=300, stop_ids=[], seed=k
    )
    positions = Positions.from_rounds(run.rounds)
    for name in ("drafted", "tested", "accepted"):
        assert sum(getattr(positions, name)) == getattr(run.metrics, name)
    assert len(positions.rates) == k
    # All before must have been accepted for a guess to be tested.
    for accepted, tested in zip(
        positions.accepted[:-1], positions.tested[1:], strict=True
    ):
        assert tested <= accepted


def test_positions_where_independence_fails():
    """The first guess always fails after token 0, all later ones always pass."""
    cycle = np.roll(np.eye(4), 1, axis=1)
    target = sd.FunctionModel(lambda seq: 50 * cycle[seq[-1]], 4)
    draft = sd.ModelDraft(
        sd.FunctionModel(lambda seq: 50 * (cycle[seq[-1]] if seq[-1] else cycle[1]), 4)
    )
    run = sd.generate(target, [0], draft=draft, k=3, max_new_tokens=400, seed=0)
    # 0 -> 1 must come from the target; then 2, 3, 0 are guessed, and a bonus 1.
    positions = Positions.from_rounds(run.rounds[1:-1])
    assert positions.rates == (1.0, 1.0, 1.0)
    assert run.rounds[0].accepted == 0


#    0 - 2 - 4
#      \ 3
#    1 - 5
TREE = (-1, -1, 0, 0, 2, 1)


@pytest.mark.parametrize(
    "path, emitted, tested",
    [
        ((), 1, 2),  # both of the first place rejected
        ((0,), 2, 1 + 2),  # the second of the first place is never looked at
        ((1,), 2, 2 + 1),
        ((0, 2), 3, 1 + 1 + 1),
        ((0, 3), 3, 1 + 2),  # nothing below 3: a bonus
        ((0, 2, 4), 4, 1 + 1 + 1),
        ((1, 5), 3, 2 + 1),
        ((0,), 1, 1),  # it was a stop id: what the rule saw below was cut off
        ((1,), 1, 2),
        ((0, 3), 2, 1 + 2),
    ],
)
def test_tested_in_a_tree(path, emitted, tested):
    round = sd.Round((0,) * 6, len(path), (0,) * emitted, parents=TREE, path=path)
    assert round.tested == tested
    metrics = sd.Metrics.from_rounds([round, round_of(4, 1, 2)])
    assert metrics.drafted == 6 + 4
    assert metrics.tested == tested + 2
    assert metrics.accepted == len(path) + 1
    assert metrics.emitted == emitted + 2


def test_a_tree_without_branches_is_tested_as_a_chain():
    for accepted, emitted in ((0, 1), (2, 3), (3, 4), (2, 2), (3, 3)):
        chain = round_of(3, accepted, emitted)
        tree = dataclasses.replace(
            chain, parents=(-1, 0, 1), path=tuple(range(accepted))
        )
        assert tree.tested == chain.tested
    assert sd.Round((), 0, (0,), parents=(), path=()).tested == 0


def test_positions_refuse_trees():
    tree = sd.Round((0, 0), 0, (0,), parents=(-1, -1), path=())
    with pytest.raises(ValueError, match="rounds must be of chains, got one with a tr"):
        Positions.from_rounds([round_of(4, 1, 2), tree])


def test_tested_is_what_the_rule_asked_for():
    """One yes-or-no question of the tree rule for each tested guess."""
    g = np.random.default_rng(0)
    p, q = g.dirichlet(np.ones(4), size=(2, 4))
    target = sd.FunctionModel(lambda seq: np.log(p[seq[-1]]), 4)
    model = sd.FunctionModel(lambda seq: np.log(q[seq[-1]]), 4)

    class Asked(sd.SeededRandom):
        questions = 0

        def bernoulli(self, p):
            self.questions += 1
            return super().bernoulli(p)

    for shape in ((-1, -1, 0, 0, 2, 1), (-1, -1, -1, 1)):
        rng = Asked(3)
        metrics = sd.generate(
            target, [0], draft=sd.TreeDraft(model, shape=shape), k=3,
            max_new_tokens=200, verify=sd.verify_tree, rng=rng,
        ).metrics  # fmt: skip
        assert metrics.tested == rng.questions
        assert metrics.emitted == metrics.accepted + metrics.target_calls == 200
