"""The closed forms against enumeration of every outcome."""

import itertools

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib.metrics import Positions
from specdec_lib.theory import (
    acceptance,
    acceptance_by_row,
    best_k,
    best_k_by_position,
    best_k_from_tokens,
    cost_curve,
    expected_calls,
    expected_tokens,
    expected_tokens_by_position,
    oracle_speedup,
    speedup,
    speedup_from_tokens,
    total_variation,
)

P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]


def test_total_variation_by_hand():
    assert total_variation(P, Q) == pytest.approx(0.3, abs=1e-15)
    assert total_variation(P, P) == 0
    assert total_variation([1, 0], [0, 1]) == 1


def test_total_variation_is_the_largest_difference_of_any_event():
    g = np.random.default_rng(0)
    for _ in range(20):
        p, q = g.dirichlet(np.ones(5), size=2)
        events = itertools.product([0, 1], repeat=5)
        largest = max(abs((p - q) @ np.array(event)) for event in events)
        assert total_variation(p, q) == pytest.approx(largest, abs=1e-12)


def test_acceptance_is_the_overlap():
    g = np.random.default_rng(1)
    for _ in range(20):
        p, q = g.dirichlet(np.full(6, 0.3), size=2)
        overlap = np.minimum(p, q).sum()
        assert acceptance(p, q) == pytest.approx(overlap, abs=1e-12)


def test_acceptance_is_what_the_rule_does():
    g = np.random.default_rng(2)
    for _ in range(10):
        p, q = g.dirichlet(np.full(4, 0.5), size=2)

        def run(rng, p=p, q=q):
            proposal = sd.Proposal((rng.categorical(q),), q[np.newaxis])
            return sd.verify_tokens(np.array([p, p]), proposal, rng).accepted

        enumerated = sd.exact_distribution(run)[1]
        assert acceptance(p, q) == pytest.approx(enumerated, abs=1e-12)


@pytest.mark.parametrize("alpha", (0.0, 0.3, 0.8, 0.999999, 1.0))
@pytest.mark.parametrize("k", range(6))
def test_expected_tokens_over_all_outcomes(alpha, k):
    """Each guess fails or passes; tokens are the passes before a failure, and one."""
    expected = 0.0
    for passes in itertools.product([True, False], repeat=k):
        probability = np.prod([alpha if ok else 1 - alpha for ok in passes])
        kept = k if all(passes) else passes.index(False)
        expected += probability * (kept + 1)
    assert expected_tokens(alpha, k) == pytest.approx(expected, abs=1e-12)


def test_expected_tokens_by_hand():
    assert expected_tokens(0.8, 4) == pytest.approx(3.3616, abs=1e-12)
    assert expected_tokens(0.8, 4) == pytest.approx((1 - 0.8**5) / (1 - 0.8))
    assert expected_tokens(1, 4) == 5
    assert expected_tokens(0, 4) == 1
    assert expected_tokens(0.5, 0) == 1


@pytest.mark.parametrize("k", (1, 2, 3))
def test_expected_tokens_is_what_the_loop_does(k):
    """A real round, enumerated: the same p and q at each position."""
    target = sd.FunctionModel(lambda seq: np.log(P), 3)
    draft = sd.ModelDraft(sd.FunctionModel(lambda seq: np.log(Q), 3))
    lengths = sd.exact_distribution(
        lambda rng: len(
            next(
                sd.stream(target, [0], draft=draft, k=k, max_new_tokens=9, rng=rng)
            ).emitted
        )
    )
    mean = sum(length * p for length, p in lengths.items())
    assert mean == pytest.approx(expected_tokens(0.7, k), abs=1e-12)


def test_speedup_by_hand():
    assert speedup(0.8, 4, 0.1) == pytest.approx(3.3616 / 1.4, abs=1e-12)
    assert speedup(0.8, 4, 0) == pytest.approx(3.3616)
    assert speedup(0.8, 0, 0.1) == 1  # no guesses, nothing gained and nothing lost
    assert speedup(0, 4, 0.1) == pytest.approx(1 / 1.4)
    assert speedup(1, 4, 1) == 1


def test_speedup_with_the_cost_of_verifying():
    calls = []

    def cost(n):
        calls.append(n)
        return 1 + 0.05 * (n - 1)

    assert speedup(0.8, 4, 0.1, cost) == pytest.approx(3.3616 / 1.6, abs=1e-12)
    assert calls == [5]  # k guesses and the token before them


def test_speedup_over_a_simulated_clock():
    """Target calls cost 1, draft calls c: time per token by adding up the rounds."""
    target = sd.FunctionModel(lambda seq: np.log(P), 3)
    draft = sd.ModelDraft(sd.FunctionModel(lambda seq: np.log(Q), 3))
    metrics = sd.generate(
        target, [0], draft=draft, k=3, max_new_tokens=8000, seed=1
    ).metrics
    clock = metrics.target_calls + 0.2 * metrics.drafted
    assert metrics.emitted / clock == pytest.approx(speedup(0.7, 3, 0.2), rel=0.03)


@pytest.mark.parametrize("alpha", (0.0, 0.2, 0.5, 0.7, 0.9))
@pytest.mark.parametrize("cost", (0.01, 0.1, 0.5, 2.0))
def test_best_k_is_the_best_of_all(alpha, cost):
    k = best_k(alpha, cost)
    everything = [speedup(alpha, i, cost) for i in range(33)]
    assert everything[k] == max(everything)


def test_best_k_by_hand():
    assert best_k(0.7, 0.1) == 4
    assert best_k(0.0, 0.1) == 0  # guessing does not pay
    assert best_k(0.5, 0.5) == 0  # pays nothing: alpha = c, the smallest among equals
    assert best_k(1.0, 0.1) == 32
    assert best_k(1.0, 0.1, max_k=7) == 7
    assert best_k(0.7, 0.1, max_k=0) == 0
    # Where each token verified costs as much as a call, nothing is to be gained.
    assert best_k(0.7, 0.1, lambda n: float(n)) == 0


@pytest.mark.parametrize("bad", (-0.1, 1.1, np.nan))
def test_bad_alpha(bad):
    with pytest.raises(ValueError, match=rf"alpha must be in \[0, 1\], got {bad}"):
        expected_tokens(bad, 3)
    with pytest.raises(ValueError, match="alpha must be"):
        best_k(bad, 0.1)


@pytest.mark.parametrize("function", (expected_tokens, lambda a, k: speedup(a, k, 0.1)))
def test_bad_k(function):
    with pytest.raises(ValueError, match="k must be 0 or more, got -1"):
        function(0.5, -1)
    for bad in (1.0, True, "2", None):
        with pytest.raises(TypeError, match=f"k must be an integer, got {bad!r}"):
            function(0.5, bad)


def test_bad_max_k():
    with pytest.raises(ValueError, match="max_k must be 0 or more, got -2"):
        best_k(0.5, 0.1, max_k=-2)
    with pytest.raises(TypeError, match=r"max_k must be an integer, got 2\.5"):
        best_k(0.5, 0.1, max_k=2.5)


@pytest.mark.parametrize("bad", (-0.1, np.nan, np.inf))
def test_bad_costs(bad):
    with pytest.raises(ValueError, match=f"draft_cost must be finite.*got {bad}"):
        speedup(0.5, 3, bad)
    with pytest.raises(ValueError, match=f"verify_cost must be .*got {bad} for 4 to"):
        speedup(0.5, 3, 0.1, lambda n: bad)


def test_a_verify_cost_of_nothing():
    with pytest.raises(ValueError, match="verify_cost must be finite and > 0, got 0"):
        speedup(0.5, 3, 0.1, lambda n: 0)


@pytest.mark.parametrize("function", (total_variation, acceptance))
@pytest.mark.parametrize(
    "p, q, message",
    [
        ([0.5, 0.5], [1.0], r"p and q must have the same shape \(V,\), got \(2,\) and"),
        ([P], [Q], r"p and q must have the same shape \(V,\)"),
        ([0.9, 0.3], [0.5, 0.5], "p must have rows that sum to 1"),
        ([0.5, 0.5], [1.5, -0.5], "q must have no negative and no NaN"),
        ([0.5, 0.5], [np.nan, 0.5], "q must have no negative and no NaN"),
    ],
)
def test_bad_distributions(function, p, q, message):
    with pytest.raises(ValueError, match=message):
        function(p, q)


def test_acceptance_by_row_is_acceptance_of_each_row():
    p, q = np.random.default_rng(0).dirichlet(np.full(5, 0.4), size=(2, 7))
    rows = acceptance_by_row(p, q)
    assert rows.shape == (7,)
    for i in range(7):
        assert rows[i] == pytest.approx(acceptance(p[i], q[i]), abs=1e-12)
    assert acceptance_by_row(p[:0], q[:0]).shape == (0,)


def test_acceptance_by_row_is_never_above_one():
    """Rounding takes the sum of a row above 1; a chance may not follow it there."""
    rows = np.random.default_rng(0).dirichlet(np.ones(300), size=200)
    assert rows.sum(axis=1).max() > 1
    chances = acceptance_by_row(rows, rows)
    assert chances.max() <= 1
    assert expected_calls(chances, 3) == pytest.approx(50)


# Rates by position


@pytest.mark.parametrize("k", range(6))
def test_expected_tokens_by_position_over_all_outcomes(k):
    rates = np.random.default_rng(k).uniform(size=k).tolist()
    expected = 0.0
    for passes in itertools.product([True, False], repeat=k):
        probability = np.prod(
            [r if ok else 1 - r for r, ok in zip(rates, passes, strict=True)]
        )
        kept = k if all(passes) else passes.index(False)
        expected += probability * (kept + 1)
    assert expected_tokens_by_position(rates) == pytest.approx(expected, abs=1e-12)


def test_expected_tokens_by_position_by_hand():
    assert expected_tokens_by_position([]) == 1
    assert expected_tokens_by_position([0.5, 0.8]) == pytest.approx(1 + 0.5 + 0.4)
    assert expected_tokens_by_position([0.0, 1.0, 1.0]) == 1
    assert expected_tokens_by_position([1.0, 1.0]) == 3
    for alpha in (0.0, 0.4, 1.0):
        assert expected_tokens_by_position([alpha] * 4) == pytest.approx(
            expected_tokens(alpha, 4), abs=1e-12
        )


def markov_pair(seed, size=3):
    """A target and a draft, each with its own distribution after each token."""
    p, q = np.random.default_rng(seed).dirichlet(np.full(size, 0.6), size=(2, size))
    target = sd.FunctionModel(lambda seq: np.log(p[seq[-1]]), size)
    draft = sd.FunctionModel(lambda seq: np.log(q[seq[-1]]), size)
    return p, q, target, sd.ModelDraft(draft)


def test_rates_by_position_give_the_measured_tokens_per_call_to_the_last_digit():
    """For rounds of one length it is an identity, independence or none."""
    # After 0 and 1, which often follow each other, the draft is right; after 2, wrong.
    p = np.array([[0.6, 0.3, 0.1], [0.3, 0.6, 0.1], [0.05, 0.05, 0.9]])
    q = np.array([p[0], p[1], [0.49, 0.49, 0.02]])
    target = sd.FunctionModel(lambda seq: np.log(p[seq[-1]]), 3)
    draft = sd.ModelDraft(sd.FunctionModel(lambda seq: np.log(q[seq[-1]]), 3))
    run = sd.generate(target, [0], draft=draft, k=3, max_new_tokens=500, seed=0)
    rounds = [r for r in run.rounds if len(r.drafted) == 3]
    tokens = expected_tokens_by_position(Positions.from_rounds(rounds).rates)
    metrics = sd.Metrics.from_rounds(rounds)
    assert tokens == pytest.approx(metrics.tokens_per_call, abs=1e-12)
    # And the formula for equal rates is another number.
    plain = expected_tokens(metrics.acceptance_rate, 3)
    assert abs(plain - metrics.tokens_per_call) > 0.1


@pytest.mark.parametrize("bad", (-0.1, 1.5, np.nan))
def test_bad_rates(bad):
    for function in (expected_tokens_by_position, lambda r: expected_calls(r, 2)):
        with pytest.raises(ValueError, match=f"rates must.*got {bad} at.* 1"):
            function([0.5, bad])


def test_a_place_where_nothing_was_tested():
    with pytest.raises(ValueError, match="nothing was tested at place 1"):
        expected_tokens_by_position([0.0, None])


# Calls along a text


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", (0, 1, 2, 3))
def test_expected_calls_is_the_mean_of_the_loop(seed, k):
    """All outcomes of the real loop, against all texts of the target alone."""
    p, q, target, draft = markov_pair(seed)
    length = 4

    def calls(rng):
        run = sd.generate(target, [0], draft=draft, k=k, max_new_tokens=length, rng=rng)
        return run.metrics.target_calls

    truth = sum(n * chance for n, chance in sd.exact_distribution(calls).items())
    predicted = 0.0
    for text in itertools.product(range(3), repeat=length):
        before = (0, *text[:-1])
        along = [(p[c, x], q[c, x]) for c, x in zip(before, text, strict=True)]
        chance = np.prod([each[0] for each in along])
        rates = [min(1, q_x / p_x) for p_x, q_x in along]
        predicted += chance * expected_calls(rates, k)
    assert predicted == pytest.approx(truth, abs=1e-12)


def test_expected_calls_by_hand():
    assert expected_calls([], 3) == 0
    assert expected_calls([0.9], 3) == 1  # the last token is never guessed
    # One guess: right, and the bonus ends it; or wrong, and a second call.
    assert expected_calls([0.75, 0.1], 1) == pytest.approx(0.75 * 1 + 0.25 * 2)
    assert expected_calls([0.5] * 10, 0) == 10
    assert expected_calls([1.0] * 10, 4) == 2
    long = expected_calls([0.7] * 3000, 4)
    assert 3000 / long == pytest.approx(expected_tokens(0.7, 4), rel=1e-3)


# Costs


def test_cost_curve_goes_through_its_points_and_straight_between():
    curve = cost_curve([1, 2, 4, 8], [10.0, 11.0, 15.0, 31.0])
    assert [curve(n) for n in (1, 2, 4, 8)] == pytest.approx([1, 1.1, 1.5, 3.1])
    assert curve(3) == pytest.approx(1.3)
    assert curve(6) == pytest.approx(2.3)
    assert curve.ns == (1, 2, 4, 8)
    assert curve.ratios == pytest.approx((1, 1.1, 1.5, 3.1))
    assert speedup(0.8, 3, 0.1, curve) == pytest.approx(2.952 / 1.8)


def test_cost_curve_says_nothing_of_what_was_not_measured():
    curve = cost_curve([1, 2, 4], [1, 1, 1])
    for n in (0, 5):
        with pytest.raises(ValueError, match=f"the measured 1 .. 4 .*got {n}.*up to 3"):
            curve(n)
    assert best_k(0.9, 0.01, curve, max_k=3) == 3
    with pytest.raises(ValueError, match="inside the measured"):
        best_k(0.9, 0.01, curve)


@pytest.mark.parametrize(
    "ns, times, message",
    [
        ([], [], "ns must increase and start with 1"),
        ([2, 3], [1, 1], "ns must increase and start with 1"),
        ([1, 3, 3], [1, 1, 1], "ns must increase and start with 1"),
        ([1, 2], [1], "times must have one time for each of ns"),
        ([1, 2], [1, 0], "times must be finite and > 0"),
        ([1, 2], [1, np.nan], "times must be finite and > 0"),
        ([1, 2], [np.inf, 1], "times must be finite and > 0"),
    ],
)
def test_bad_cost_curves(ns, times, message):
    with pytest.raises(ValueError, match=message):
        cost_curve(ns, times)


def test_cost_curve_of_no_integers():
    with pytest.raises(TypeError, match=r"ns must be an integer, got 1\.5"):
        cost_curve([1, 1.5], [1, 1])


def test_speedup_from_tokens_is_tokens_over_time():
    assert speedup_from_tokens(3.0, 4, 0.25) == 1.5
    assert speedup_from_tokens(3.0, 4, 0.25, lambda n: n / 5 + 1) == 1.0
    assert speedup_from_tokens(1.0, 0, 7.0) == 1.0
    assert speedup(0.6, 3, 0.2) == speedup_from_tokens(expected_tokens(0.6, 3), 3, 0.2)


@pytest.mark.parametrize("bad", (0.5, 5.5, np.nan))
def test_tokens_per_call_that_cannot_be(bad):
    with pytest.raises(ValueError, match=f"inside 1 .. k \\+ 1 = 5, got {bad}"):
        speedup_from_tokens(bad, 4, 0.1)


# The oracle


@pytest.mark.parametrize("alpha", (0.0, 0.3, 0.8, 1.0))
@pytest.mark.parametrize("k", (0, 1, 4))
def test_the_oracle_over_all_outcomes(alpha, k):
    def curve(n):
        return 1 + 0.07 * (n - 1)

    tokens = time = 0.0
    for passes in itertools.product([True, False], repeat=k):
        probability = np.prod([alpha if ok else 1 - alpha for ok in passes])
        kept = k if all(passes) else passes.index(False)
        tokens += probability * (kept + 1)
        time += probability * (0.1 * kept + curve(kept + 1))
    assert oracle_speedup(alpha, k, 0.1, curve) == pytest.approx(tokens / time)
    assert oracle_speedup(alpha, k, 0.1, curve) >= speedup(alpha, k, 0.1, curve) - 1e-12


def test_a_draft_that_is_always_right():
    assert oracle_speedup(1, 4, 0) == 5
    assert oracle_speedup(1, 4, 0.1) == pytest.approx(5 / 1.4)
    assert oracle_speedup(1, 4, 0.1) == pytest.approx(speedup(1, 4, 0.1))
    assert oracle_speedup(0, 4, 0.1) == 1  # it drafts nothing, and loses nothing
    assert oracle_speedup(0.7, 0, 0.1) == 1


@pytest.mark.parametrize("alpha, cost, slope", [(0.6, 0.1, 0.05), (0.8, 0.4, 0.9)])
def test_no_rule_for_when_to_stop_beats_the_oracle(alpha, cost, slope):
    """All rules that know how many guesses would pass (0 .. 4) and draft 0 .. 4."""
    most = 4
    chances = [(1 - alpha) * alpha**a for a in range(most)] + [alpha**most]

    def curve(n):
        return 1 + slope * (n - 1)

    best = 0.0
    for rule in itertools.product(range(most + 1), repeat=most + 1):
        tokens = time = 0.0
        for a, n in enumerate(rule):
            tokens += chances[a] * (min(a, n) + 1)
            time += chances[a] * (cost * n + curve(n + 1))
        best = max(best, tokens / time)
    bound = max(oracle_speedup(alpha, k, cost, curve) for k in range(most + 1))
    assert best == pytest.approx(bound, abs=1e-12)


# The best draft length


def test_best_k_from_tokens_is_the_best_of_all():
    g = np.random.default_rng(0)
    for _ in range(20):
        rates = g.uniform(0.3, 1, size=6).tolist()
        tokens = {k: expected_tokens_by_position(rates[:k]) for k in range(7)}
        speedups = [tokens[k] / (1 + 0.15 * k) for k in range(7)]
        assert best_k_from_tokens(tokens, 0.15) == int(np.argmax(speedups))
        assert best_k_by_position(rates, 0.15) == int(np.argmax(speedups))


def test_best_k_from_tokens_by_hand():
    assert best_k_from_tokens({4: 2.0, 2: 2.0}, 0) == 2  # the smallest among equals
    assert best_k_from_tokens({0: 1.0, 3: 3.0}, 5) == 0
    assert best_k_from_tokens({3: 3.0}, 5) == 3  # the only one that was tried
    assert best_k_from_tokens({1: 1.9, 4: 4.5}, 0.0, lambda n: float(n)) == 1
    assert best_k_by_position([], 0.1) == 0
    assert best_k_by_position([0.7] * 9, 0.1) == best_k(0.7, 0.1)
    with pytest.raises(ValueError, match="at least one draft length"):
        best_k_from_tokens({}, 0.1)
