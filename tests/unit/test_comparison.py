"""The comparison's arithmetic, under a clock that the test moves."""

import pytest
from clock_kit import Clock, Guess, SlowModel, SlowState

import specdec_lib as sd
from specdec_lib import comparison, decoding
from specdec_lib.comparison import compare


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(decoding, "perf_counter", clock)
    monkeypatch.setattr(comparison, "perf_counter", clock)
    return clock


GREEDY = sd.Sampler(temperature=0)


def test_costs_and_speedup_by_hand(clock):
    result = compare(
        SlowModel(clock),
        [0],
        draft=Guess(clock),
        k=4,
        max_new_tokens=40,
        sampler=GREEDY,
    )
    # Plain: 40 calls of 1 s. Speculative: 8 rounds of 4 * 0.05 + 1.4 s, 5 tokens each.
    assert result.plain_seconds == pytest.approx(1.0)
    assert result.speculative_seconds == pytest.approx(8 * 1.6 / 40)
    assert result.speedup == pytest.approx(3.125)
    assert result.verify_cost == pytest.approx(1.4)
    assert result.draft_cost == pytest.approx(0.05)
    assert result.predicted_speedup == pytest.approx(5 / 1.6)
    assert result.same_tokens


def test_the_prediction_uses_the_acceptance_that_was_seen(clock):
    wrong = set(range(3, 50, 7))
    draft = Guess(clock, wrong)
    result = compare(
        SlowModel(clock), [0], draft=draft, k=3, max_new_tokens=42, sampler=GREEDY
    )
    alpha = result.speculative.metrics.acceptance_rate
    assert 0 < alpha < 1
    expected = sum(alpha**i for i in range(4)) / (3 * 0.05 + 1.3)
    assert result.predicted_speedup == pytest.approx(expected)
    assert result.same_tokens


def test_a_slow_first_call_changes_nothing(clock):
    def run(first_call):
        model = SlowModel(clock, first_call=first_call)
        return compare(
            model, [0], draft=Guess(clock), k=2, max_new_tokens=30, sampler=GREEDY
        )

    quick, slow = run(0.0), run(500.0)
    assert slow.speedup == pytest.approx(quick.speedup)
    assert slow.verify_cost == pytest.approx(quick.verify_cost)


def test_no_speedup_for_a_wrong_answer(clock, monkeypatch):
    plain = compare(
        SlowModel(clock), [0], draft=Guess(clock), max_new_tokens=9, sampler=GREEDY
    )
    assert plain.speedup is not None
    wrong = sd.Generation((1, 2), plain.speculative.rounds, "length")
    spoilt = comparison.Comparison(**{**plain.__dict__, "speculative": wrong})
    assert spoilt.speedup is None
    assert not spoilt.same_tokens


def test_no_prediction_where_nothing_was_tested(clock):
    class Silent(Guess):
        def start(self, prompt):
            return Silent(self.clock)

        def propose(self, k, rng):
            return sd.Proposal(())

        def commit(self, tokens):
            pass

    result = compare(
        SlowModel(clock), [0], draft=Silent(clock), max_new_tokens=5, sampler=GREEDY
    )
    assert result.predicted_speedup is None
    assert result.speedup == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["k", "max_new_tokens", "repeats"])
def test_bad_numbers_are_named(clock, name):
    arguments = {"k": 2, "max_new_tokens": 5, "repeats": 2, name: 0}
    with pytest.raises(ValueError, match=name):
        compare(SlowModel(clock), [0], draft=Guess(clock), **arguments)


def test_a_full_context_is_an_error(clock):
    model = SlowModel(clock)
    model.context_window = 3
    with pytest.raises(ValueError, match="context window"):
        compare(model, [0, 1, 2], draft=Guess(clock), max_new_tokens=5)


def test_trees_are_refused():
    model = sd.FunctionModel(lambda seq: [0.0, 0.0], 2)
    with pytest.raises(ValueError, match="must be a chain .* verify_tree takes trees"):
        compare(model, [0], draft=sd.TreeDraft(model), max_new_tokens=8, repeats=1)


# What a call for n tokens costs


class Noted(SlowModel):
    """Notes how many tokens each call was for, and how many lay before it."""

    def __init__(self, clock, slow_turn=None):
        super().__init__(clock)
        self.sizes, self.slow_turn = [], slow_turn

    def start(self):
        return NotedState(self)


class NotedState(SlowState):
    def extend(self, tokens):
        self.model.sizes.append((self.length, len(tokens)))
        if self.model.slow_turn is not None and len(self.model.sizes) in range(
            *self.model.slow_turn
        ):
            self.model.clock.now += 100.0
        return super().extend(tokens)

    def rewind(self, length):
        self.model.clock.now += 0.5  # belongs to the call
        super().rewind(length)


def test_the_curve_is_that_of_the_calls(clock):
    model = Noted(clock)
    curve = comparison.measure_cost_curve(model, (1, 2, 5), context=7, repeats=3)
    assert curve.ns == (1, 2, 5)
    assert curve.ratios == pytest.approx((1.0, 1.6 / 1.5, 1.9 / 1.5))
    assert model.sizes == [(0, 7)] + [(7, 1), (7, 2), (7, 5)] * 4


@pytest.mark.parametrize("slow_turn", [(2, 5), (5, 8), (5, 11), (11, 14)])
def test_slow_turns_change_nothing(clock, slow_turn):
    """The first, which is not counted, or one or two of the three that are."""
    model = Noted(clock, slow_turn)
    curve = comparison.measure_cost_curve(model, (1, 2, 5), context=7, repeats=3)
    assert curve.ratios == pytest.approx((1.0, 1.6 / 1.5, 1.9 / 1.5))


def test_no_context_and_a_window_that_just_fits(clock):
    model = Noted(clock)
    model.context_window = 5
    curve = comparison.measure_cost_curve(model, (1, 5), context=0, repeats=1)
    assert model.sizes == [(0, 1), (0, 5)] * 2
    assert curve(3) == pytest.approx((1 + 1.9 / 1.5) / 2)
    with pytest.raises(ValueError, match="must fit the context window of 5, got 1"):
        comparison.measure_cost_curve(model, (1, 5), context=1)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"ns": (2, 4)}, "ns must increase and start with 1"),
        ({"ns": (1, 4, 3)}, "ns must increase and start with 1"),
        ({"ns": ()}, "ns must increase and start with 1"),
        ({"context": -1}, "context must be 0 or more"),
        ({"repeats": 0}, "repeats must be 1 or more"),
    ],
)
def test_a_curve_that_cannot_be_measured(clock, options, message):
    with pytest.raises(ValueError, match=message):
        comparison.measure_cost_curve(SlowModel(clock), **options)
