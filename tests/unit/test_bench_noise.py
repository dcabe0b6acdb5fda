"""What the gate's statistics say: against tables, hand calculation and simulation."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from specdec_lib.bench import judge, pairs_needed, power, share_found, t_quantile

ONE, FIVE = math.log(1.01), math.log(1.05)


@pytest.mark.parametrize(
    "p, freedom, table",
    [  # the usual printed tables of Student's t
        (0.95, 1, 6.314),
        (0.975, 2, 4.303),
        (0.99, 3, 4.541),
        (0.95, 5, 2.015),
        (0.975, 10, 2.228),
        (0.99, 30, 2.457),
        (0.975, 120, 1.980),
        (0.5, 7, 0.0),
        (0.05, 5, -2.015),
    ],
)
def test_quantiles_of_t_are_those_of_the_tables(p, freedom, table):
    assert t_quantile(p, freedom) == pytest.approx(table, abs=6e-4)


def test_with_many_degrees_of_freedom_t_is_normal():
    normal = NormalDist().inv_cdf(0.975)
    assert t_quantile(0.975, 9_999) == pytest.approx(normal, abs=5e-4)
    assert t_quantile(0.975, math.inf) == normal


def test_one_sample_by_hand():
    found = judge([0.02, 0.04, 0.06])  # mean 0.04, standard deviation 0.02
    half = 2.920 * 0.02 / math.sqrt(3)  # t at 0.95 with 2 degrees of freedom
    assert math.log1p(found.change) == pytest.approx(0.04)
    assert math.log1p(found.low) == pytest.approx(0.04 - half, abs=1e-5)
    assert math.log1p(found.high) == pytest.approx(0.04 + half, abs=1e-5)
    assert found.spread == pytest.approx(0.02)
    assert (found.pairs, found.verdict) == (3, "cannot tell")


def test_against_a_baseline_by_hand():
    run, before = [0.10, 0.12], [0.01, 0.03, 0.05, 0.03]
    a, b = 0.0002 / 2, (0.0008 / 3) / 4  # squared standard errors of the means
    freedom = (a + b) ** 2 / (a**2 / 1 + b**2 / 3)
    half = t_quantile(0.95, freedom) * math.sqrt(a + b)
    found = judge(run, before)
    assert math.log1p(found.change) == pytest.approx(0.08)
    assert math.log1p(found.low) == pytest.approx(0.08 - half)
    # A shift of both changes nothing.
    shifted = judge(np.add(run, 3), np.add(before, 3))
    assert shifted.low == pytest.approx(found.low)


@pytest.mark.parametrize(
    "centre, half, verdict",
    [
        (0.03, 0.005, "fine"),  # surely slower, and surely by less than 5 %
        (0.00, 0.04, "fine"),
        (0.00, 0.06, "cannot tell"),
        (0.03, 0.03, "cannot tell"),
        (0.04, 0.02, "slower"),
        (0.08, 0.01, "slower"),
        (-0.30, 0.20, "fine"),
    ],
)
def test_the_three_answers(centre, half, verdict):
    # Two numbers whose interval reaches ``half`` to either side.
    apart = half * math.sqrt(2) / 6.3138 / math.sqrt(2)
    found = judge([centre - apart, centre + apart])
    assert math.log1p(found.high) == pytest.approx(centre + half, abs=1e-3 * half)
    assert found.verdict == verdict


def test_several_questions_share_the_level():
    numbers = [0.03, 0.05, 0.06, 0.08]
    assert judge(numbers, tests=5).low == judge(numbers, level=0.01).low
    assert judge(numbers, tests=5).low < judge(numbers).low


def test_no_spread_at_all():
    assert judge([0.1, 0.1]).verdict == "slower"
    assert judge([0.0, 0.0], [0.0, 0.0]).verdict == "fine"
    assert judge([0.1, 0.1]).needed is None  # it is told
    assert pairs_needed(0.0) == 2


def simulated(effect, spread, n, level, draws=4000, baseline=None):
    """The share of "slower", with normal noise, by the definition of the interval."""
    g = np.random.default_rng(7)
    x = math.log1p(effect) + spread * g.normal(size=(draws, n))
    centre, variance, freedom = x.mean(axis=1), x.var(axis=1, ddof=1) / n, n - 1
    if baseline:
        y = spread * g.normal(size=(draws, baseline))
        centre, b = centre - y.mean(axis=1), y.var(axis=1, ddof=1) / baseline
        total = variance + b
        freedom = total**2 / (variance**2 / (n - 1) + b**2 / (baseline - 1))
        variance = total
    if np.ndim(freedom):
        t = np.array([t_quantile(1 - level, f) for f in freedom])
    else:
        t = t_quantile(1 - level, freedom)
    half = t * np.sqrt(variance)
    return float(((centre - half > ONE) & (centre + half >= FIVE)).mean())


@pytest.mark.parametrize("effect", [0.0, 0.01, 0.03, 0.05, 0.08])
@pytest.mark.parametrize("spread, n", [(0.01, 3), (0.03, 4), (0.03, 12), (0.06, 20)])
def test_power_is_what_a_simulation_finds(effect, spread, n):
    for level in (0.05, 0.01):
        share = simulated(effect, spread, n, level)
        error = 4 * math.sqrt(0.25 / 4000)
        assert power(effect, spread, n, level) == pytest.approx(share, abs=error)


@pytest.mark.parametrize(
    "n, effect", [(200, 0.03), (200, 0.06), (400, 0.05), (400, 0.1)]
)
def test_power_with_many_pairs_is_the_normal_formula(n, effect):
    error, z = 0.3 / math.sqrt(n), NormalDist().inv_cdf(0.95)
    by_hand = NormalDist().cdf((math.log1p(effect) - ONE) / error - z)
    assert power(effect, 0.3, n) == pytest.approx(by_hand, abs=0.004)


def test_false_alarms_never_pass_the_level():
    for spread in (0.002, 0.01, 0.03, 0.1):
        for n in (2, 3, 5, 20, 100):
            for effect in (-0.1, 0.0, 0.005, 0.01):
                assert power(effect, spread, n) <= 0.05 + 1e-6
    # Where it matters it is the level itself, no less.
    assert power(0.01, 0.1, 5) == pytest.approx(0.05, abs=1e-3)


def test_judge_alarms_as_often_as_it_should():
    """The function itself, on normal noise: alone, and against a baseline."""
    g = np.random.default_rng(3)
    slower = {0.01: 0, 0.05: 0}
    for _ in range(400):
        noise, before = 0.02 * g.normal(size=6), 0.02 * g.normal(size=12)
        for effect in slower:
            found = judge(noise + math.log1p(effect), before)
            slower[effect] += found.verdict == "slower"
    assert slower[0.01] / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    expected = simulated(0.05, 0.02, 6, 0.05, baseline=12, draws=1000)
    assert slower[0.05] / 400 == pytest.approx(expected, abs=0.08)


def test_the_number_that_is_needed_is_the_first_that_is_enough():
    for spread in (0.01, 0.03, 0.1):
        n = pairs_needed(spread)
        assert power(0.05, spread, n) >= 0.9
        assert n == 2 or power(0.05, spread, n - 1) < 0.9
    assert pairs_needed(50.0) is None
    found = judge(np.tile([-0.2, 0.2], 10))
    assert found.verdict == "cannot tell"
    assert found.needed == pairs_needed(found.spread) > found.pairs


def test_the_share_that_is_found_counts_whole_groups_in_order():
    found, not_found = [0.06, 0.05, 0.055], [0.0, 0.0, 0.001]
    assert share_found([*found, *not_found, *found, 0.3, 0.3], 3) == 2 / 3
    assert share_found([*not_found, *not_found], 3) == 0
    g = np.random.default_rng(5)
    logs = math.log(1.05) + 0.03 * g.normal(size=6 * 500)
    share = share_found(logs, 6)
    assert share == pytest.approx(power(0.05, 0.03, 6), abs=4 * math.sqrt(0.25 / 500))
    with pytest.raises(ValueError, match="log_ratios must be 4 or more, got 3"):
        share_found(found, 4)


def test_a_baseline_that_is_known_badly_is_never_made_up_for():
    found = judge([0.0, 0.01, -0.01], [0.2, -0.2, 0.1])
    assert (found.verdict, found.needed) == ("cannot tell", None)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: judge([0.1]), "log_ratios must be two or more finite numbers"),
        (lambda: judge([0.1, math.nan]), "log_ratios must be two or more finite"),
        (lambda: judge([0.1, 0.2], [0.1]), "baseline must be two or more finite"),
        (lambda: judge([0.1, 0.2], level=0.5), "level must be inside 0 .. 0.5"),
        (lambda: judge([0.1, 0.2], tests=0), "tests must be 1 or more"),
        (lambda: judge([0.1, 0.2], ignored=0.05), "ignored and limit must be"),
        (lambda: power(-1.0, 0.1, 3), "effect must be above -1"),
        (lambda: power(0.1, 0.0, 3), "spread must be finite and > 0"),
        (lambda: power(0.1, 0.1, 1), "pairs must be 2 or more"),
        (lambda: pairs_needed(-1.0), "spread must be finite and >= 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
