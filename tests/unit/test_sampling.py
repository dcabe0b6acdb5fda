"""From logits to probabilities: temperature, filters, processors."""

import dataclasses

import numpy as np
import pytest

import specdec_lib as sd

P = np.array([0.6, 0.3, 0.1])
LOGITS = np.log(P)


def close(a, b):
    return np.abs(np.asarray(a) - np.asarray(b)).max() < 1e-12


def test_temperature_one_is_the_softmax():
    assert close(sd.Sampler()(LOGITS), P)
    assert close(sd.Sampler()(LOGITS + 1000), P)  # a constant changes nothing


def test_temperature_by_hand():
    # p^(1/T), normalised: at T = 1/2 .36, .09, .01; at T = 2 their square roots.
    assert close(sd.Sampler(0.5)(LOGITS), np.array([0.36, 0.09, 0.01]) / 0.46)
    assert close(sd.Sampler(2)(LOGITS), np.sqrt(P) / np.sqrt(P).sum())


def test_temperature_zero_takes_the_lowest_id_among_equals():
    assert sd.Sampler(0)([2.0, 2.0, 1.0]).tolist() == [1, 0, 0]
    assert sd.Sampler(0)([1.0, 2.0, 2.0]).tolist() == [0, 1, 0]
    assert sd.Sampler(0)([-np.inf, -np.inf, -5.0]).tolist() == [0, 0, 1]
    assert sd.Sampler(0, top_k=2, top_p=0.5)(LOGITS).tolist() == [1, 0, 0]


@pytest.mark.parametrize("dtype", (np.float16, np.float32, np.float64, np.int32))
@pytest.mark.parametrize("temperature", (1e-6, 1e-300, 5e-324))
def test_a_tiny_temperature(dtype, temperature):
    p = sd.Sampler(temperature)(np.array([300, 299], dtype=dtype))
    assert p.tolist() == [1, 0]


def test_a_tiny_temperature_splits_ties():
    assert sd.Sampler(1e-300)([300.0, 300.0, 299.0]).tolist() == [0.5, 0.5, 0]


def test_a_huge_temperature_is_uniform_over_what_is_possible():
    p = sd.Sampler(1e300)([5.0, -np.inf, -5.0])
    assert close(p, [0.5, 0, 0.5])


def test_extreme_logits():
    assert sd.Sampler()([1e308, -1e308]).tolist() == [1, 0]
    assert sd.Sampler(0.5)([1e308, 1e308, -1e308]).tolist() == [0.5, 0.5, 0]
    assert sd.Sampler()([-np.inf, 0.0]).tolist() == [0, 1]


def test_float32_logits_sum_to_one_in_float64():
    logits = (np.random.default_rng(0).normal(size=49_152) * 4).astype(np.float32)
    p = sd.Sampler()(logits)
    assert p.dtype == np.float64
    assert abs(p.sum() - 1) < 1e-12
    rng = sd.SeededRandom(0)
    for _ in range(1000):
        rng.categorical(p)


@pytest.mark.parametrize("k", (1, 2, 3, 99))
def test_top_k_keeps_exactly_k(k):
    p = sd.Sampler(top_k=k)(LOGITS)
    expected = {
        1: [1, 0, 0],
        2: [2 / 3, 1 / 3, 0],
        3: P,
        99: P,
    }[k]
    assert close(p, expected)


def test_top_k_among_equals_keeps_the_lowest_ids():
    assert close(sd.Sampler(top_k=2)(np.zeros(4)), [0.5, 0.5, 0, 0])
    assert close(sd.Sampler(top_k=2)([0.0, 1.0, 0.0, 1.0]), [0, 0.5, 0, 0.5])
    p = sd.Sampler(top_k=3)(np.log([0.2, 0.4, 0.2, 0.2]))
    assert close(p, [0.25, 0.5, 0.25, 0])


def test_top_k_over_fewer_possible_tokens():
    assert close(sd.Sampler(top_k=2)([-np.inf, 0.0, -np.inf]), [0, 1, 0])


def test_top_p_keeps_the_token_that_crosses():
    assert close(sd.Sampler(top_p=0.8)(LOGITS), [2 / 3, 1 / 3, 0])


@pytest.mark.parametrize(
    "top_p, expected",
    [
        (1e-9, [1, 0, 0]),
        (0.6, [1, 0, 0]),  # exactly reached: the next one is not needed
        (0.61, [2 / 3, 1 / 3, 0]),
        (0.9, [2 / 3, 1 / 3, 0]),  # reached in spite of the rounding of .6 + .3
        (0.91, P),
        (1, P),
    ],
)
def test_top_p_by_hand(top_p, expected):
    assert close(sd.Sampler(top_p=top_p)(LOGITS), expected)


def test_top_p_of_unsorted_and_equal_tokens():
    p = sd.Sampler(top_p=0.5)(np.log([0.1, 0.3, 0.3, 0.3]))
    assert close(p, [0, 0.5, 0.5, 0])


def test_top_k_comes_before_top_p():
    # top_k leaves .75, .25, of which .7 needs one; of the whole .6, .2, ... two.
    p = sd.Sampler(top_k=2, top_p=0.7)(np.log([0.6, 0.2, 0.1, 0.1]))
    assert close(p, [1, 0, 0, 0])


def test_temperature_comes_before_top_p():
    # At T = 1/2 the largest has .36/.46 = .78.
    assert close(sd.Sampler(0.5, top_p=0.7)(LOGITS), [1, 0, 0])


def test_many_rows_equal_single_rows():
    rows = np.random.default_rng(1).normal(size=(5, 7))
    for sampler in (
        sd.Sampler(),
        sd.Sampler(0),
        sd.Sampler(0.7, top_k=3),
        sd.Sampler(1.3, top_p=0.6),
        sd.Sampler(top_k=4, top_p=0.6, processors=(sd.LogitBias({1: 2.0}),)),
    ):
        together = sampler(rows, (0,), (1, 2, 3, 4))
        assert together.shape == rows.shape
        for i, row in enumerate(rows):
            alone = sampler(row, (0, 1, 2, 3, 4)[: i + 1])
            assert alone.shape == row.shape
            assert close(alone, together[i])


@pytest.mark.parametrize("sampler", (sd.Sampler(), sd.Sampler(0), sd.Sampler(top_k=1)))
def test_no_rows(sampler):
    assert sampler(np.zeros((0, 3))).shape == (0, 3)


def test_input_is_left_alone():
    logits = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    before = logits.copy()

    def spoil(row, prefix):
        row[:] = 0
        return row

    for sampler in (
        sd.Sampler(0.5, top_k=2, top_p=0.9),
        sd.Sampler(processors=(sd.LogitBias({0: 5.0}), sd.RepetitionPenalty(2.0))),
        sd.Sampler(processors=(spoil,)),
    ):
        sampler(logits, (1,), (0,))
        assert (logits == before).all()


@pytest.mark.parametrize(
    "bad, message",
    [
        ([], r"logits must have shape \(V,\) or \(n, V\).*got \(0,\)"),
        (1.0, r"logits must have shape.*got \(\)"),
        (np.zeros((1, 2, 3)), r"logits must have shape.*got \(1, 2, 3\)"),
        (np.zeros((2, 0)), r"logits must have shape.*got \(2, 0\)"),
        ([0.0, np.nan], "logits must be finite or -inf"),
        ([0.0, np.inf], "logits must be finite or -inf"),
        ([-np.inf, -np.inf], "not -inf for every token"),
        ([[0.0, 1.0], [-np.inf, -np.inf]], "not -inf for every token"),
    ],
)
@pytest.mark.parametrize("temperature", (0, 1))
def test_bad_logits(bad, message, temperature):
    with pytest.raises(ValueError, match=message):
        sd.Sampler(temperature)(bad)


@pytest.mark.parametrize(
    "name, bad",
    [
        *(("temperature", t) for t in (-0.1, np.nan, np.inf, "1", None, True)),
        *(("top_k", k) for k in (0, -1, 1.0, "2", True)),
        *(("top_p", p) for p in (0, -0.5, 1.01, np.nan, "1", True)),
    ],
)
def test_bad_settings(name, bad):
    with pytest.raises(ValueError, match=f"{name} must be .*got {bad!r}"):
        sd.Sampler(**{name: bad})


def test_bad_processors():
    with pytest.raises(TypeError, match="processors must be callable, got 3"):
        sd.Sampler(processors=(3,))
    with pytest.raises(TypeError, match=r"processors must be a tuple.*Repetition"):
        sd.Sampler(processors=sd.RepetitionPenalty(1.2))
    with pytest.raises(ValueError, match=r"processors must keep the shape \(3,\)"):
        sd.Sampler(processors=(lambda logits, prefix: logits[:2],))(LOGITS)
    with pytest.raises(ValueError, match="logits must be finite"):
        sd.Sampler(processors=(lambda logits, prefix: logits * np.nan,))(LOGITS)


def test_too_few_drafted_tokens_for_the_rows():
    sampler = sd.Sampler(processors=(sd.RepetitionPenalty(1.2),))
    with pytest.raises(ValueError, match=r"drafted must have at least 2 tokens.*got 1"):
        sampler(np.zeros((3, 4)), (0,), (1,))


def test_a_sampler_is_frozen_and_comparable():
    sampler = sd.Sampler(0.5, processors=[sd.RepetitionPenalty(1.2)])
    assert sampler == sd.Sampler(0.5, processors=(sd.RepetitionPenalty(1.2),))
    assert hash(sampler) == hash(dataclasses.replace(sampler))
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampler.temperature = 1.0


def test_processors_see_the_prefix_of_each_row_in_turn():
    seen = []

    def first(logits, prefix):
        seen.append(("first", tuple(prefix)))
        return logits + 1

    def second(logits, prefix):
        seen.append(("second", tuple(prefix)))
        assert (logits == 1).all()
        return logits

    sd.Sampler(processors=(first, second))(np.zeros((3, 2)), (9, 8), (7, 6))
    assert seen == [
        (name, prefix)
        for prefix in ((9, 8), (9, 8, 7), (9, 8, 7, 6))
        for name in ("first", "second")
    ]


def test_processors_come_before_temperature():
    # A bias of log 2 at T = 1/2 multiplies by 4.
    sampler = sd.Sampler(0.5, processors=(sd.LogitBias({1: np.log(2)}),))
    assert close(sampler([0.0, 0.0]), [0.2, 0.8])


def test_repetition_penalty_by_hand():
    logits = np.array([3.0, -3.0, 0.0, 3.0, -np.inf])
    penalised = sd.RepetitionPenalty(1.5)(logits, [0, 1, 1, 2, 4])
    assert penalised.tolist() == [2.0, -4.5, 0.0, 3.0, -np.inf]
    assert sd.RepetitionPenalty(1.5)(logits, ()).tolist() == logits.tolist()
    assert sd.RepetitionPenalty(0.5)(logits, [0]).tolist()[0] == 6.0


def test_repetition_penalty_of_a_token_outside():
    for bad in (5, -1):
        with pytest.raises(
            ValueError, match=rf"prefix must be inside 0 .. 2, got {bad}"
        ):
            sd.RepetitionPenalty(1.5)(np.zeros(3), [0, bad])


@pytest.mark.parametrize("bad", (0, -1, np.nan, np.inf, "1.2", None))
def test_bad_penalty(bad):
    with pytest.raises(ValueError, match=f"penalty must be .*got {bad!r}"):
        sd.RepetitionPenalty(bad)


def test_logit_bias_by_hand():
    biased = sd.LogitBias({0: -np.inf, 2: 1.5})(np.array([1.0, 1.0, 1.0]), ())
    assert biased.tolist() == [-np.inf, 1.0, 2.5]
    assert sd.LogitBias({})(LOGITS, ()).tolist() == LOGITS.tolist()


@pytest.mark.parametrize(
    "bad, error, message",
    [
        ({-1: 1.0}, ValueError, "biases must map token ids >= 0, got -1"),
        ({1.5: 1.0}, ValueError, "biases must map token ids >= 0, got 1.5"),
        ({1: np.inf}, ValueError, "bias of token 1 must be < inf, got inf"),
        ({1: np.nan}, ValueError, "bias of token 1 must be < inf, got nan"),
        ({1: "x"}, ValueError, "bias of token 1 must be < inf, got 'x'"),
        ([1, 2], TypeError, r"biases must map token ids to numbers, got \[1, 2\]"),
    ],
)
def test_bad_biases(bad, error, message):
    with pytest.raises(error, match=message):
        sd.LogitBias(bad)


def test_a_bias_outside_the_vocabulary():
    with pytest.raises(ValueError, match=r"biases has token 3, outside a vocab.* of 3"):
        sd.LogitBias({3: 1.0})(LOGITS, ())
