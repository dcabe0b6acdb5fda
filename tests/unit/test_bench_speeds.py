"""The table of speeds: its arithmetic under a clock that the test moves."""

import numpy as np
import pytest
from clock_kit import Clock, Guess, SlowModel, SlowState

import specdec_lib as sd
from specdec_lib import decoding
from specdec_lib.bench import Setting, measure_speeds

GREEDY = sd.Sampler(temperature=0)
PROMPTS = {"a": [0], "b": [7, 8]}


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(decoding, "perf_counter", clock)
    return clock


def speeds(clock, settings, model=None, prompts=PROMPTS, **options):
    defaults = {"max_new_tokens": 40, "sampler": GREEDY, "repeats": 3, "clock": clock}
    return measure_speeds(
        model or SlowModel(clock), settings, prompts, **defaults | options
    )


def test_times_costs_and_speedup_by_hand(clock):
    plain, row = speeds(clock, [Setting("guess", Guess(clock), 4)], prompts={"a": [0]})
    # Plain: 40 calls of 1 s. Speculative: 8 rounds of 4 * 0.05 + 1.4 s, 5 tokens each.
    assert (plain["draft"], plain["k"], plain["speedup"]) == ("", 0, None)
    assert plain["seconds"] == pytest.approx(40.0)
    assert plain["tokens_per_second"] == pytest.approx(1.0)
    assert (plain["tokens"], plain["calls"]) == (40, 40)
    assert (row["draft"], row["k"], row["tokens"], row["calls"]) == ("guess", 4, 40, 8)
    assert row["acceptance_rate"] == 1.0
    assert row["tokens_per_call"] == pytest.approx(5.0)
    assert row["seconds"] == pytest.approx(12.8)
    assert row["draft_seconds"] == pytest.approx(1.6)
    assert row["target_seconds"] == pytest.approx(11.2)
    assert row["speedup"] == pytest.approx(3.125)
    assert row["verify_cost"] == pytest.approx(1.4)
    assert row["draft_cost"] == pytest.approx(0.05)
    # Predicted with a prompt that plain decoding reads: 40 s, and 1 + 7 * 1.4 + 1.6.
    assert row["predicted_speedup"] == pytest.approx(40 / 12.4)
    assert (row["low"], row["high"]) == (None, None)  # one prompt alone
    assert row["spread"] == pytest.approx(0, abs=1e-9)


def test_both_prompts_count_and_the_interval_is_over_them(clock):
    wrong = set(range(3, 50, 7))
    plain, row = speeds(clock, [Setting("guess", Guess(clock, wrong), 3)])
    assert plain["tokens"] == row["tokens"] == 80
    assert plain["prompts"] == row["prompts"] == 2
    assert plain["seconds"] == pytest.approx(80 + 0.1)  # the second has two tokens
    assert 0 < row["acceptance_rate"] < 1
    assert row["speedup"] == pytest.approx(plain["seconds"] / row["seconds"])
    one = [
        speeds(
            clock, [Setting("guess", Guess(clock, wrong), 3)], prompts={name: tokens}
        )[1]["speedup"]
        for name, tokens in PROMPTS.items()
    ]
    assert row["low"] == pytest.approx(min(one))
    assert row["high"] == pytest.approx(max(one))
    # Nothing but the model's calls takes time here, so the cost model is all but right.
    assert row["predicted_speedup"] == pytest.approx(row["speedup"], rel=0.02)


def test_another_order_every_time_after_one_warm_up(clock):
    log = []
    settings = [Setting("guess", Guess(clock), k) for k in (1, 2)]
    speeds(clock, settings, SlowModel(clock, log=log), repeats=12)
    # What a text reads first: the prompt, and the guesses (0, 1 or 2) after it.
    assert log[:3] == [(0,), (0, 1), (0, 1, 2)]
    turns = [log[i : i + 3] for i in range(3, len(log), 3)]
    assert len(turns) == 24
    for i, turn in enumerate(turns):
        start = ((0,), (7, 8))[i % 2]
        texts = {start, (*start, start[-1] + 1), (*start, start[-1] + 1, start[-1] + 2)}
        assert set(turn) == texts
    assert len({tuple(map(len, turn)) for turn in turns[::2]}) > 3


def test_one_slow_repeat_changes_nothing_but_the_spread(clock):
    def run(slow):
        model, count = SlowModel(clock), [0]

        def progress(what):
            count[0] += 1
            model.slow_down = 9.0 if slow and count[0] in (3, 4) else 0.0

        return speeds(
            clock, [Setting("g", Guess(clock), 4)], model, progress=progress, repeats=5
        )

    for quiet, loud in zip(run(False), run(True), strict=True):
        same = {"speedup", "seconds", "verify_cost", "draft_cost", "predicted_speedup"}
        assert {n: quiet[n] for n in same} == pytest.approx({n: loud[n] for n in same})


def test_no_speedup_for_another_text(clock):
    class Wrong(SlowModel):
        """Says something else where it reads more than one token at a time."""

        def start(self):
            state = SlowState(self)
            whole = state.extend
            state.extend = lambda tokens: np.roll(whole(tokens), len(tokens) - 1, 1)
            return state

    setting = [Setting("guess", Guess(clock), 2)]
    row = speeds(clock, setting, Wrong(clock), prompts={"a": [0]})[1]
    assert row["same_tokens"] is False
    assert (row["speedup"], row["low"], row["high"]) == (None, None, None)
    warm = speeds(
        clock, setting, Wrong(clock), prompts={"a": [0]}, sampler=sd.Sampler()
    )
    assert warm[1]["speedup"] is not None  # two samples need not agree


def test_a_length_that_is_chosen_has_no_k(clock):
    setting = Setting("guess", Guess(clock), sd.UpAndDown(2, most=4))
    row = speeds(clock, [setting])[1]
    assert (row["k"], row["verify_cost"]) == (None, None)
    assert row["predicted_speedup"] == pytest.approx(row["speedup"], rel=0.05)


def test_bad_input_is_named(clock):
    for options, message in [
        ({"repeats": 0}, "repeats must be 1 or more"),
        ({"max_new_tokens": 0}, "max_new_tokens must be 1 or more"),
        ({"prompts": {}}, "prompts must be one or more"),
    ]:
        with pytest.raises(ValueError, match=message):
            speeds(clock, [], **options)
    with pytest.raises(ValueError, match="settings must have drafts"):
        speeds(clock, [Setting("plain")])
    full = SlowModel(clock)
    full.context_window = 1
    with pytest.raises(ValueError, match="must leave room"):
        speeds(clock, [], full, prompts={"a": [0]})
