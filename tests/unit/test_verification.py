"""The token rule and its look-alikes, one round at a time, by hand values."""

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib.verification import lossy
from specdec_lib.verification.exact import check_distributions, one_hot


def one_token(p, q, rule=sd.verify_tokens, guess=None):
    """The exact distribution of one token: a guess from q (or a given one) is judged.

    ``guess`` stands for a draft that proposes it whatever it says.
    """

    def run(rng):
        token = rng.categorical(q) if guess is None else guess
        reported = None if q is None else np.array([q])
        verdict = rule(np.array([p, p]), sd.Proposal((token,), reported), rng)
        return token if verdict.accepted else verdict.next_token

    exact = sd.exact_distribution(run)
    return [round(exact.get(x, 0.0), 12) for x in range(len(p))]


def accepted(p, q, rule=sd.verify_tokens):
    """The exact probability that a guess from q is accepted."""

    def run(rng):
        proposal = sd.Proposal((rng.categorical(q),), np.array([q]))
        return rule(np.array([p, p]), proposal, rng).accepted

    return sd.exact_distribution(run).get(1, 0.0)


P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]


@pytest.mark.parametrize(
    "p, q",
    [
        (P, Q),
        ([0.6, 0.4], [0.8, 0.2]),
        ([0.6, 0.4], [0.6, 0.4]),
        ([0.7, 0.3, 0.0], [0.5, 0.5, 0.0]),
        ([1.0, 0.0, 0.0], P),
        ([0.0, 0.5, 0.5], [1.0, 0.0, 0.0]),
        ([1.0, 0.0], [1.0, 0.0]),
    ],
)
def test_one_token_is_the_targets(p, q):
    assert one_token(p, q) == pytest.approx(p, abs=1e-12)
    overlap = np.minimum(p, q).sum()
    assert accepted(p, q) == pytest.approx(overlap, abs=1e-12)
    assert accepted(p, q) == pytest.approx(sd.theory.acceptance(p, q), abs=1e-12)


@pytest.mark.parametrize("guess", range(2))
def test_a_point_mass_is_accepted_with_probability_p(guess):
    p = np.array([0.6, 0.4])
    assert one_token(p, None, guess=guess) == [0.6, 0.4]

    def run(rng):
        return sd.verify_tokens(np.array([p, p]), sd.Proposal((guess,)), rng).accepted

    assert sd.exact_distribution(run)[1] == pytest.approx(p[guess])


def test_a_point_mass_given_as_a_row_is_the_same():
    for guess in range(3):
        assert one_token(P, one_hot(guess, 3)) == P


def test_a_greedy_guess_with_its_soft_probabilities_is_wrong():
    """p = (.6, .4), q = (.8, .2), always guessing 0: .75 comes out in place of .6."""
    assert one_token([0.6, 0.4], [0.8, 0.2], guess=0) == [0.75, 0.25]


def test_a_filtered_draw_with_its_raw_probabilities_is_wrong():
    p, raw, filtered = [0.7, 0.3, 0.0], [0.4, 0.4, 0.2], [0.5, 0.5, 0.0]

    def run(rng):
        guess = rng.categorical(filtered)
        verdict = sd.verify_tokens(
            np.array([p, p]), sd.Proposal((guess,), np.array([raw])), rng
        )
        return guess if verdict.accepted else verdict.next_token

    exact = sd.exact_distribution(run)
    assert [round(exact.get(x, 0), 12) for x in range(3)] == [0.625, 0.375, 0]
    assert one_token(p, filtered) == p


def test_the_residual_by_hand():
    assert sd.residual(P, Q).tolist() == [1, 0, 0]
    left = sd.residual([0.5, 0.4, 0.1], [0.2, 0.2, 0.6])
    assert left == pytest.approx([0.6, 0.4, 0.0], abs=1e-15)
    assert sd.residual(P, [0, 1, 0]) == pytest.approx([5 / 7, 0, 2 / 7], abs=1e-15)


@pytest.mark.parametrize("p", (P, [1.0, 0.0, 0.0], [0.25] * 4))
def test_the_residual_of_equal_distributions_is_p(p):
    assert sd.residual(p, p).tolist() == p  # no NaN, and nothing outside p


def test_the_residual_of_nearly_equal_distributions():
    p = np.array([0.1, 0.2, 0.7])
    q = np.nextafter(p, 0)
    left = sd.residual(p, q)
    assert np.isfinite(left).all()
    assert left.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "p, q", [([0.5, 0.5], [1.0]), ([[0.5, 0.5]], [[0.5, 0.5]]), (1.0, 1.0)]
)
def test_residual_shapes(p, q):
    with pytest.raises(ValueError, match=r"p and q must have the same shape \(V,\)"):
        sd.residual(p, q)


def follow(target, proposal, rule=sd.verify_tokens):
    exact = sd.exact_distribution(lambda rng: rule(np.array(target), proposal, rng))
    return {(v.accepted, v.next_token): p for v, p in exact.items()}


def test_positions_and_rows_by_hand():
    """Three rows with a token of their own: each verdict names the row it used."""
    target = [[0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0], [0, 0, 0, 1.0]]
    by_hand = {(0, 1): 0.5, (1, 2): 0.25, (2, 3): 0.25}
    assert follow(target, sd.Proposal((0, 0))) == by_hand


def test_a_round_with_soft_guesses_by_hand():
    target = [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]
    draft = np.array([[0.2, 0.5, 0.3], [0.3, 0.3, 0.4]])
    # Guess 1: accepted with .3/.5, else the residual of row 0, which is token 0.
    # Guess 2: accepted with .3/.4, else the residual of row 1, which is token 1.
    found = follow(target, sd.Proposal((1, 2), draft))
    by_hand = {
        (0, 0): 0.4,
        (1, 1): 0.6 * 0.25,
        (2, 0): 0.45 * 0.2,
        (2, 1): 0.45 * 0.2,
        (2, 2): 0.45 * 0.6,
    }
    assert found == pytest.approx(by_hand, abs=1e-12)


def test_nothing_proposed_is_plain_sampling():
    found = follow([P], sd.Proposal(()))
    assert found == {(0, 0): 0.5, (0, 1): 0.3, (0, 2): 0.2}
    assert found == follow([P], sd.Proposal((), np.zeros((0, 3))))


def test_each_guess_has_a_uniform_number_of_its_own():
    """Acceptance 1/2 each, four guesses: all are accepted in 1 of 16 rounds."""
    target = np.full((5, 2), 0.5)
    proposal = sd.Proposal((0, 1, 1, 0))
    found = follow(target, proposal)
    lengths = {n: sum(p for (a, _), p in found.items() if a == n) for n in range(5)}
    assert lengths == {0: 1 / 2, 1: 1 / 4, 2: 1 / 8, 3: 1 / 16, 4: 1 / 16}
    rng = sd.SeededRandom(0)
    all_four = [
        sd.verify_tokens(target, proposal, rng).accepted == 4 for _ in range(4000)
    ]
    assert abs(np.mean(all_four) - 1 / 16) < 5 * np.sqrt(1 / 16 * 15 / 16 / 4000)


def test_a_certain_guess_is_always_accepted_and_an_impossible_one_never():
    assert follow([[1.0, 0.0], [0.0, 1.0]], sd.Proposal((0,))) == {(1, 1): 1.0}
    assert follow([[1.0, 0.0], [0.0, 1.0]], sd.Proposal((1,))) == {(0, 0): 1.0}


def test_a_ratio_too_large_for_a_float():
    """A guess that the draft thought all but impossible: accepted, no overflow."""
    q = np.array([[5e-324, 1.0]])
    found = follow([[0.5, 0.5], [0.5, 0.5]], sd.Proposal((0,), q))
    assert found == {(1, 0): 0.5, (1, 1): 0.5}


def test_input_is_left_alone():
    p, q = np.array([P, P]), np.array([Q])
    for token in range(3):
        for seed in range(5):
            sd.verify_tokens(p, sd.Proposal((token,), q), sd.SeededRandom(seed))
    assert p.tolist() == [P, P]
    assert q.tolist() == [Q]


BAD = [
    # target, tokens, draft, message
    ([P], (0,), [Q], r"target_probabilities must have shape \(2, V\).*got \(1, 3\)"),
    ([P] * 3, (0,), [Q], r"target_probabilities must have shape \(2, V\)"),
    (P, (), None, r"target_probabilities must have shape \(1, V\).*got \(3,\)"),
    (np.zeros((1, 0)), (), None, r"target_probabilities must have shape \(1, V\)"),
    ([P, [0.5, 0.5, 0.1]], (0,), [Q], "target_probabilities must .* row 1 sums to 1.1"),
    ([P, [0.9, 0.3, -0.2]], (0,), [Q], "target_probabilities must have no negative"),
    ([P, [np.nan] * 3], (0,), [Q], "target_probabilities must have no .* NaN"),
    ([P, P], (3,), [Q], "proposal.tokens must be inside 0 .. 2, got 3"),
    ([P, P], (-1,), [Q], "proposal.tokens must be inside 0 .. 2, got -1"),
    ([P, P], (-1,), None, "proposal.tokens must be inside 0 .. 2, got -1"),
    ([P] * 3, (0, 1), [Q], r"proposal.probabilities must have shape \(2, 3\) or be"),
    ([P, P], (0,), [Q, Q], r"proposal.probabilities must have shape \(1, 3\) or be"),
    ([P, P], (0,), [[0.5, 0.5]], r"proposal.probabilities must have shape \(1, 3\)"),
    ([P, P], (0,), Q, r"proposal.probabilities must have .*got \(3,\)"),
    ([P, P], (0,), [[0.5, 0.4, 0]], "proposal.probabilities must .* row 0 sums to 0.9"),
    ([P, P], (0,), [[1.5, -0.5, 0]], "proposal.probabilities must have no negative"),
    ([P, P], (0,), [[0, 0.5, 0.5]], r"proposal.tokens\[0\] = 0 has probability 0"),
]


@pytest.mark.parametrize("target, tokens, draft, message", BAD)
@pytest.mark.parametrize(
    "rule",
    [
        sd.verify_tokens,
        sd.verify_block,
        sd.verify_tree,
        lossy.verify_argmax,
        lossy.probability_threshold(0.5),
        lossy.ratio_threshold(0.5),
        lossy.logit_ratio(0.5),
    ],
)
def test_a_broken_contract_is_an_error_before_any_draw(
    rule, target, tokens, draft, message
):
    class NoRandomness:
        pass

    draft = None if draft is None else np.array(draft)
    with pytest.raises(ValueError, match=message):
        rule(np.array(target), sd.Proposal(tokens, draft), NoRandomness())


def test_tokens_that_are_not_integers():
    with pytest.raises(TypeError, match=r"proposal.tokens must be integers"):
        sd.verify_tokens(np.array([P, P]), sd.Proposal((0.5,)), None)


def test_rounding_of_a_distribution_is_forgiven_up_to_a_millionth():
    check_distributions(np.array([[0.5, 0.5 + 9e-7]]), "p")
    check_distributions(np.zeros((0, 3)), "p")
    with pytest.raises(ValueError, match="p must have rows that sum to 1, row 0"):
        check_distributions(np.array([[0.5, 0.5 + 2e-6]]), "p")


# Rules that look right, on p = (.5, .3, .2) and q = (.2, .5, .3).


def test_accepting_the_argmax_is_greedy_decoding():
    assert one_token(P, Q, lossy.verify_argmax) == [1, 0, 0]
    assert one_token([0.4, 0.4, 0.2], Q, lossy.verify_argmax) == [1, 0, 0]
    target = np.array([[0.2, 0.8], [0.9, 0.1], [0.3, 0.7]])
    assert follow(target, sd.Proposal((1, 0)), lossy.verify_argmax) == {(2, 1): 1}
    assert follow(target, sd.Proposal((1, 1)), lossy.verify_argmax) == {(1, 0): 1}
    assert follow(target, sd.Proposal((0, 0)), lossy.verify_argmax) == {(0, 1): 1}


def test_a_threshold_on_the_probability():
    assert one_token(P, Q, lossy.probability_threshold(0.5)) == [1, 0, 0]
    # Above .25 pass 0 and 1; the guesses of 2, .3 of them, become 0.
    assert one_token(P, Q, lossy.probability_threshold(0.25)) == [0.5, 0.5, 0]
    # The threshold itself does not pass.
    assert one_token(P, Q, lossy.probability_threshold(0.3)) == [1, 0, 0]


def test_a_threshold_on_the_ratio():
    # Ratios 2.5, .6, .667: all pass at .5, and the output is the draft's.
    assert one_token(P, Q, lossy.ratio_threshold(0.5)) == Q
    # At .65 the guess 1 fails: .5 p is added to (.2, 0, .3).
    assert one_token(P, Q, lossy.ratio_threshold(0.65)) == [0.45, 0.15, 0.4]
    assert one_token(P, Q, lossy.ratio_threshold(0)) == Q
    assert one_token(P, None, lossy.ratio_threshold(0.4), guess=0) == [1, 0, 0]
    assert one_token(P, None, lossy.ratio_threshold(0.5), guess=0) == P


def test_the_ratio_of_logits():
    # q/p is .4, 1.667, 1.5. At p0 = .35 the bar is 1.538: only the guess 1 passes.
    expected = np.array([0, 0.5, 0]) + 0.5 * np.array(P)
    assert one_token(P, Q, lossy.logit_ratio(0.35)) == pytest.approx(expected.tolist())
    # At p0 = 0 the bar is 1: 1 and 2 pass.
    expected = np.array([0, 0.5, 0.3]) + 0.2 * np.array(P)
    assert one_token(P, Q, lossy.logit_ratio(0.0)) == pytest.approx(expected.tolist())
    assert one_token(P, None, lossy.logit_ratio(0.4), guess=0) == [1, 0, 0]
    assert one_token(P, None, lossy.logit_ratio(0.6), guess=0) == P


@pytest.mark.parametrize("bad", (-0.1, np.nan, np.inf))
def test_bad_thresholds(bad):
    for rule in (lossy.probability_threshold, lossy.ratio_threshold):
        with pytest.raises(ValueError, match=f"tau must be .*got {bad}"):
            rule(bad)


@pytest.mark.parametrize("bad", (-0.1, 1.0, np.nan))
def test_bad_constants_of_the_ratio_of_logits(bad):
    with pytest.raises(ValueError, match=rf"p0 must be in \[0, 1\), got {bad}"):
        lossy.logit_ratio(bad)


def test_a_lossy_rule_in_the_loop_with_a_model_draft():
    """It may draw the very guess it has just rejected; the draft must go on."""
    g = np.random.default_rng(0)
    p_table, q_table = g.normal(size=(2, 3, 3))
    target = sd.FunctionModel(lambda seq: p_table[seq[-1]], 3)
    draft = sd.ModelDraft(sd.FunctionModel(lambda seq: q_table[seq[-1]], 3))
    for rule in (lossy.ratio_threshold(1.0), lossy.logit_ratio(0.5)):
        for seed in range(20):
            generation = sd.generate(
                target,
                [0],
                draft=draft,
                k=3,
                max_new_tokens=30,
                verify=rule,
                seed=seed,
            )
            assert len(generation.tokens) == 30
