"""The closed forms against enumeration of every outcome."""

import itertools

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib.theory import (
    acceptance,
    best_k,
    expected_tokens,
    speedup,
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
