"""Softmax and filters beside SciPy's."""

from itertools import product

import numpy as np
import pytest

import specdec_lib as sd

special = pytest.importorskip("scipy.special", reason="SciPy is not installed")
stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")


@pytest.mark.parametrize("dtype", (np.float16, np.float32, np.float64))
@pytest.mark.parametrize("temperature", (1e-8, 1e-3, 0.3, 1.0, 7.0, 1e8))
def test_softmax(dtype, temperature):
    g = np.random.default_rng(0)
    for scale, size in product((1e-3, 1.0, 30.0, 1e4), (1, 2, 1000)):
        logits = (g.normal(size=(5, size)) * scale).astype(dtype)
        logits[0, : size // 3] = -np.inf
        found = sd.Sampler(temperature)(logits)
        rows = logits.astype(np.float64) / temperature
        expected = special.softmax(rows, axis=1)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-13)
        assert ((found > 0) == (expected > 0)).all()


def test_acceptance_is_one_less_half_the_city_block_distance():
    """What is accepted and what replaces the rest make the target, and the residual
    gives nothing that the target does not."""
    distance = pytest.importorskip("scipy.spatial.distance", reason="it is SciPy's")
    g = np.random.default_rng(1)
    for size in (2, 5, 300):
        for _ in range(50):
            p, q = g.dirichlet(np.ones(size), 2)
            accepted = 1 - distance.cityblock(p, q) / 2
            assert sd.theory.acceptance(p, q) == pytest.approx(accepted, abs=1e-12)
            left = sd.residual(p, q)
            whole = np.minimum(p, q) + (1 - accepted) * left
            np.testing.assert_allclose(whole, p, rtol=0, atol=1e-12)
            assert np.isfinite(stats.entropy(left, p))


@pytest.mark.parametrize("seed", range(3))
def test_draws(seed):
    """Of 20,000 draws the counts are no further from what was asked for than one in
    a million such tests would be."""
    g = np.random.default_rng(seed)
    p = sd.Sampler(0.8, top_p=0.95)(g.normal(size=30) * 2)
    rng = sd.SeededRandom(seed)
    counts = np.bincount([rng.categorical(p) for _ in range(20_000)], minlength=30)
    able = p > 0
    assert counts[~able].sum() == 0
    assert stats.chisquare(counts[able], p[able] * counts.sum()).pvalue > 1e-6
