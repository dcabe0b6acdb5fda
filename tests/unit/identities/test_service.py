"""Chapters 16 and 17: waiting and noise, beside a chain of states and integrals."""

from fractions import Fraction
from itertools import product
from math import log, log1p, sqrt
from statistics import NormalDist, mean, stdev

import numpy as np
import pytest
from identities_kit import close, identity

from specdec_lib import bench

stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")


# -- `eq-16-wait`


def wait(rate, work, work2):
    load = rate * work
    return rate * work2 / (2 * (1 - load))


def wait_by_states(rate, law, most=160):
    """The mean wait by the chain of how many are left behind by each that leaves.

    `law` is {work: probability}. While one of work s is served, a Poisson number with
    mean rate * s arrives. Who leaves sees what who arrives sees, so the mean of the
    chain is that of the whole; Little's law makes a time of it.
    """
    n = np.arange(most)
    arrive = sum(p * stats.poisson.pmf(n, rate * work) for work, p in law.items())
    step = np.zeros((most, most))
    for left in range(most):
        first = max(left - 1, 0)
        step[left, first:] = arrive[: most - first]
        step[left, -1] += 1 - step[left].sum()
    equations = step.T - np.eye(most)
    equations[-1] = 1  # the shares sum to 1
    still = np.linalg.solve(equations, np.eye(most)[-1])
    return still @ n / rate - sum(work * p for work, p in law.items())


@identity(
    "eq-16-wait",
    wait,
    wrong={
        "no half": lambda rate, work, work2: 2 * wait(rate, work, work2),
        "the square of the mean": lambda rate, work, work2: wait(rate, work, work**2),
        "no idle share": lambda rate, work, work2: rate * work2 / 2,
        "the load above": lambda rate, work, work2: (
            rate * work * work2 / (2 * (1 - rate * work))
        ),
    },
)
def test_the_mean_wait(formula):
    laws = ({1.0: 1.0}, {0.5: 0.5, 3.0: 0.5}, {0.25: 0.9, 4.0: 0.1})
    for law, load in product(laws, (0.1, 0.5, 0.75)):
        work = sum(s * weight for s, weight in law.items())
        work2 = sum(s * s * weight for s, weight in law.items())
        rate = load / work
        assert close(formula(rate, work, work2), wait_by_states(rate, law), 1e-6)
    # Work that is exponential: rho / (mu - rate), as every table has it.
    assert close(formula(0.5, 1, 2), 0.5 / (1 - 0.5))
    assert formula(Fraction(1, 2), 1, 2) == 1


# -- `eq-17-bounds`


def bounds(x):
    half = stats.t.ppf(0.95, len(x) - 1) * stdev(x) / sqrt(len(x))
    return mean(x) - half, mean(x) + half


def with_quantile(quantile, freedom=0, root=True):
    def other(x):
        n = len(x)
        half = quantile(n) * stdev(x) / (sqrt(n) if root else 1)
        return mean(x) - half, mean(x) + half

    return other


def missed(formula, n, draws=1_500):
    """How often the truth, 0, is below and above, over normal noise."""
    noise = np.random.default_rng(n).normal(size=(draws, n))
    low, high = np.array([formula(each.tolist()) for each in noise]).T
    return (low > 0).mean(), (high < 0).mean()


@identity(
    "eq-17-bounds",
    bounds,
    wrong={
        "the normal quantile": with_quantile(lambda n: NormalDist().inv_cdf(0.95)),
        "n degrees of freedom": with_quantile(lambda n: stats.t.ppf(0.95, n)),
        "both sides together": with_quantile(lambda n: stats.t.ppf(0.975, n - 1)),
        "the spread of one": with_quantile(
            lambda n: stats.t.ppf(0.95, n - 1), root=False
        ),
    },
)
def test_each_bound_is_missed_once_in_twenty(formula):
    """SciPy's interval of 90 %, the gate's own bounds, and how often the truth is
    outside: by Cauchy's law for two, and by drawing for more."""
    samples = [[0.02, 0.04, 0.06], [0.01, -0.03], [0.05, 0.06, 0.055, 0.045, 0.07]]
    for x in samples:
        low, high = formula(x)
        theirs = stats.ttest_1samp(x, 0).confidence_interval(0.9)
        assert close((low, high), theirs, 1e-9)
        found = bench.judge(x)
        assert close((log1p(found.low), log1p(found.high)), (low, high), 1e-5)
    # Of x = m - d and m + d the lower bound is m - t d, and m / d is Cauchy's if the
    # truth is 0: it is above t with this chance.
    low, high = formula([0.9, 1.1])
    assert close(0.5 - np.arctan((1 - low) / 0.1) / np.pi, 0.05, 1e-6)
    assert close(1 - low, high - 1)
    for n in (3, 8):
        for share in missed(formula, n):
            assert abs(share - 0.05) < 0.015


# -- `eq-17-power`


def power(e, sigma, n):
    h = 1.645 * sigma / sqrt(n)
    b = max(log(1.01) + h, log(1.05) - h)
    return NormalDist().cdf((log(1 + e) - b) / (sigma / sqrt(n)))


def power_with(second, error=lambda sigma, n: sigma / sqrt(n)):
    def other(e, sigma, n):
        h = 1.645 * sigma / sqrt(n)
        b = second(h)
        return NormalDist().cdf((log(1 + e) - b) / error(sigma, n))

    return other


@identity(
    "eq-17-power",
    power,
    wrong={
        "the bound below alone": power_with(lambda h: log(1.01) + h),
        "the smaller of the two": power_with(
            lambda h: min(log(1.01) + h, log(1.05) - h)
        ),
        "five per cent alone": power_with(lambda h: log(1.05)),
        "the spread of one": power_with(
            lambda h: max(log(1.01) + h, log(1.05) - h), lambda sigma, n: sigma
        ),
    },
)
def test_how_often_the_gate_says_slower(formula):
    """Both conditions asked of a fine grid of means; and the library's power, which
    does not know the spread, comes to it with many pairs."""
    for e, sigma, n in product((-0.02, 0.0, 0.03, 0.05, 0.12), (0.01, 0.05), (3, 12)):
        error = sigma / sqrt(n)
        x = np.linspace(-9, 9, 40_001) * error + log(1 + e)
        h = 1.645 * error
        slower = (x - h > log(1.01)) & (x + h >= log(1.05))
        weight = np.exp(-(((x - log(1 + e)) / error) ** 2) / 2)
        assert close(formula(e, sigma, n), weight[slower].sum() / weight.sum(), 3e-4)
    for e, sigma in product((0.0, 0.03, 0.05, 0.08), (0.1, 0.3)):
        library = bench.power(e, sigma, 400)
        assert close(library, formula(e, sigma, 400), 5e-3)
