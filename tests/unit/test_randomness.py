"""The two random acts, and the source that follows all of them."""

import math

import numpy as np
import pytest

import specdec_lib as sd


def source_of(*uniforms):
    """A seeded source whose uniform numbers are given."""
    rng = sd.SeededRandom(0)
    rng._uniform = iter(uniforms).__next__
    return rng


def test_bernoulli_is_true_below_p():
    rng = source_of(0.0, 0.2999, 0.3, 0.9999)
    assert [rng.bernoulli(0.3) for _ in range(4)] == [True, True, False, False]


@pytest.mark.parametrize("u", (0.0, 0.5, 1 - 2**-53))
def test_bernoulli_at_its_ends(u):
    assert source_of(u).bernoulli(0.0) is False
    assert source_of(u).bernoulli(1.0) is True


def test_categorical_by_hand():
    rng = source_of(0.0, 0.4999, 0.5, 0.7499, 0.75, 1 - 2**-53)
    drawn = [rng.categorical([0.5, 0.25, 0.25]) for _ in range(6)]
    assert drawn == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("u", (0.0, 0.5, 1 - 2**-53, 1.0))
def test_categorical_never_gives_an_impossible_token(u):
    """Impossible tokens first, last and between; a uniform lifted to the very end."""
    assert source_of(u).categorical([0.0, 0.5, 0.0, 0.5, 0.0]) in (1, 3)
    assert source_of(u).categorical([0.0, 1.0, 0.0]) == 1
    thirds = np.array([0.0, 1 / 3, 1 / 3, 1 / 3, 0.0])
    assert source_of(u).categorical(thirds) in (1, 2, 3)


def test_categorical_follows_the_distribution():
    rng = sd.SeededRandom(5)
    p = np.array([0.5, 0.3, 0.2])
    counts = np.bincount([rng.categorical(p) for _ in range(20_000)], minlength=3)
    # Five standard deviations of each count.
    assert (np.abs(counts - 20_000 * p) < 5 * np.sqrt(20_000 * p * (1 - p))).all()


def test_one_uniform_number_per_call():
    rng, plain = sd.SeededRandom(7), np.random.Generator(np.random.PCG64(7))
    for _ in range(5):
        assert rng.bernoulli(0.5) == (plain.random() < 0.5)
        assert rng.categorical([0.25] * 4) == int(plain.random() * 4)


def test_the_same_seed_gives_the_same_decisions():
    def decisions(seed):
        rng = sd.SeededRandom(seed)
        return [rng.bernoulli(0.5) for _ in range(64)]

    assert decisions(3) == decisions(3) == decisions(np.int64(3))
    assert decisions(3) != decisions(4)
    assert decisions(None) != decisions(None)


def test_sources_do_not_share_their_state():
    a, b = sd.SeededRandom(1), sd.SeededRandom(1)
    first = [a.bernoulli(0.5) for _ in range(10)]
    np.random.default_rng(0).random(10)
    assert [b.bernoulli(0.5) for _ in range(10)] == first


@pytest.mark.parametrize("dtype", (np.float16, np.float32))
def test_coarse_distributions_of_a_large_vocabulary(dtype):
    """49,152 probabilities in a coarse type never sum to exactly 1."""
    g = np.random.default_rng(0)
    logits = (g.normal(size=49_152) * 3).astype(np.float32)
    p = np.exp(logits - logits.max())
    p = (p / p.sum()).astype(dtype)
    rng = sd.SeededRandom(0)
    for _ in range(100):
        assert p[rng.categorical(p)] > 0


def followed_categorical(distribution):
    return sd.exact_distribution(lambda rng: rng.categorical(distribution))


@pytest.mark.parametrize("rng", (sd.SeededRandom(0), None), ids=("seeded", "following"))
@pytest.mark.parametrize(
    "bad, message",
    [
        ([0.5, 0.4], "distribution must sum to 1, got 0.9"),
        ([0.5, 0.500002], "distribution must sum to 1"),
        ([0.6, 0.6, -0.2], "distribution must have no negative and no NaN"),
        ([0.5, np.nan], "distribution must have no negative and no NaN"),
        ([np.inf, 0.0], "distribution must sum to 1, got inf"),
        ([], r"distribution must have shape \(V,\) with V >= 1, got shape \(0,\)"),
        ([[1.0]], r"distribution must have shape \(V,\).* got shape \(1, 1\)"),
        (1.0, r"distribution must have shape \(V,\).* got shape \(\)"),
        (np.array([0.5, 0.4], np.float32), "distribution must sum to 1"),
    ],
)
def test_what_is_no_distribution(rng, bad, message):
    draw = rng.categorical if rng is not None else followed_categorical
    with pytest.raises(ValueError, match=message):
        draw(bad)


@pytest.mark.parametrize("bad", (-0.1, 1.0000001, math.nan, math.inf))
def test_what_is_no_probability(bad):
    with pytest.raises(ValueError, match=f"p must be a probability.*got {bad}"):
        sd.SeededRandom(0).bernoulli(bad)
    with pytest.raises(ValueError, match="p must be a probability"):
        sd.exact_distribution(lambda rng: rng.bernoulli(bad))


@pytest.mark.parametrize("bad", (1.5, "7", True, [1]))
def test_what_is_no_seed(bad):
    with pytest.raises(TypeError, match="seed must be an integer or None, got"):
        sd.SeededRandom(bad)


def test_a_negative_seed():
    with pytest.raises(ValueError, match="seed must be 0 or more, got -1"):
        sd.SeededRandom(-1)


def test_exact_distribution_by_hand():
    def run(rng):
        if rng.bernoulli(0.25):
            return "yes"
        return "no", rng.categorical([0.5, 0.0, 0.5])

    assert sd.exact_distribution(run) == {
        "yes": 0.25,
        ("no", 0): 0.375,
        ("no", 2): 0.375,
    }


def test_exact_distribution_adds_up_equal_outcomes():
    def throws(rng):
        return sum(rng.categorical([1 / 6] * 6) + 1 for _ in range(3))

    exact = sd.exact_distribution(throws)
    assert exact[3] == pytest.approx(1 / 216, abs=1e-15)
    assert exact[10] == pytest.approx(27 / 216, abs=1e-15)
    assert math.fsum(exact.values()) == pytest.approx(1, abs=1e-14)


def test_exact_distribution_without_a_choice():
    assert sd.exact_distribution(lambda rng: 7) == {7: 1.0}
    assert sd.exact_distribution(lambda rng: rng.bernoulli(1.0)) == {True: 1.0}
    assert sd.exact_distribution(lambda rng: rng.bernoulli(0)) == {False: 1.0}


def test_exact_distribution_follows_only_what_is_possible():
    calls = []

    def run(rng):
        calls.append(rng.categorical([0.0, 0.5, 0.0, 0.5]))
        return calls[-1]

    assert sd.exact_distribution(run) == {1: 0.5, 3: 0.5}
    assert calls == [1, 3]


def test_exact_distribution_renormalises_coarse_types():
    p = np.full(3, 1 / 3, dtype=np.float16)
    exact = sd.exact_distribution(lambda rng: rng.categorical(p))
    assert list(exact.values()) == [pytest.approx(1 / 3, abs=1e-15)] * 3


def test_exact_distribution_keeps_sums_of_many_small_paths():
    exact = sd.exact_distribution(
        lambda rng: sum(rng.bernoulli(0.5) for _ in range(14)) % 2
    )
    assert exact == {0: 0.5, 1: 0.5}


def test_max_paths():
    def run(rng):
        return rng.categorical([0.25] * 4)

    assert len(sd.exact_distribution(run, max_paths=4)) == 4
    with pytest.raises(RuntimeError, match="more than max_paths=3 paths"):
        sd.exact_distribution(run, max_paths=3)


def test_outcomes_must_be_hashable():
    with pytest.raises(
        TypeError, match=r"run must return something hashable.*got list"
    ):
        sd.exact_distribution(lambda rng: [rng.bernoulli(0.5)])


def remembering(choices):
    """A run that does something else each time it is called."""
    calls = iter(choices)
    return lambda rng: next(calls)(rng)


@pytest.mark.parametrize(
    "choices, message",
    [
        (
            [lambda rng: rng.bernoulli(0.5), lambda rng: True],
            "fewer random choices",
        ),
        (
            [lambda rng: rng.bernoulli(0.5), lambda rng: rng.bernoulli(1.0)],
            "another random choice",
        ),
        # As many options as before, but with other probabilities: the sum would lie.
        (
            [lambda rng: rng.bernoulli(0.5), lambda rng: rng.bernoulli(0.9)],
            "another random choice",
        ),
        (
            [lambda rng: rng.bernoulli(0.5), lambda rng: rng.categorical([0.5, 0.5])],
            "another random choice",
        ),
    ],
)
def test_a_run_that_keeps_state_is_refused(choices, message):
    with pytest.raises(RuntimeError, match=f"not deterministic.*{message}"):
        sd.exact_distribution(remembering(choices))


def test_a_draft_that_learns_between_calls_is_refused():
    class Learning:
        seen = 0

        def start(self, prompt):
            return self

        def propose(self, k, rng):
            row = np.array([0.5, 0.5]) if self.seen < 3 else np.array([0.9, 0.1])
            return sd.Proposal((rng.categorical(row),), row[np.newaxis])

        def commit(self, tokens):
            type(self).seen += 1

    target, draft = sd.FunctionModel(lambda seq: [0.0, 1.0], 2), Learning()
    with pytest.raises(RuntimeError, match="not deterministic"):
        sd.exact_distribution(
            lambda rng: (
                sd.generate(
                    target, [0], draft=draft, k=1, max_new_tokens=4, rng=rng
                ).tokens
            )
        )
