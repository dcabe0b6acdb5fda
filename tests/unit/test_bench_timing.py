"""Workloads in turn, under a clock that the test moves."""

import copy
import math

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib.bench import machine, measure, measure_pairs, planted


class Clock:
    """Each look at it takes a thousandth."""

    now = 0.0

    def __call__(self):
        self.now += 1e-3
        return self.now


def spends(clock, seconds, log=None, name=None):
    def work():
        if log is not None:
            log.append(name)
        clock.now += seconds

    return work


def test_each_block_runs_each_workload_once_in_an_order_that_varies():
    clock, log = Clock(), []
    works = {name: spends(clock, 1.0, log, name) for name in "abc"}
    times = measure(works, 40, clock=clock)
    blocks = [tuple(log[i : i + 3]) for i in range(0, len(log), 3)]
    assert len(blocks) == 41  # one to warm up
    assert all(sorted(block) == ["a", "b", "c"] for block in blocks)
    assert len(set(blocks)) == 6  # every order comes
    assert {name: len(seconds) for name, seconds in times.items()} == dict.fromkeys(
        "abc", 40
    )
    again = []
    measure({n: spends(clock, 1.0, again, n) for n in "abc"}, 40, clock=clock)
    assert again == log
    other = []
    works = {n: spends(clock, 1.0, other, n) for n in "abc"}
    measure(works, 40, seed=1, clock=clock)
    assert other != log


def test_the_first_block_is_not_counted():
    clock = Clock()
    lasts = iter([100.0, 1.0, 2.0, 3.0])
    times = measure(
        {"a": lambda: setattr(clock, "now", clock.now + next(lasts))}, 3, clock=clock
    )
    assert times["a"] == pytest.approx([1.001, 2.001, 3.001])


def test_drift_and_outliers_do_not_reach_the_ratio():
    """A machine that becomes three times slower, and stops now and then."""
    clock, calls = Clock(), [0]

    def work(seconds):
        def spend():
            calls[0] += 1
            drift = 1 + calls[0] / 100
            stop = 50.0 if calls[0] % 9 == 0 else 0.0
            clock.now += seconds * drift + stop

        return spend

    logs = measure_pairs(work(11.0), work(10.0), pairs=20, clock=clock)
    assert logs.shape == (20,)
    # Within a block the second comes 1 % of drift later; which that is, is drawn.
    assert logs == pytest.approx(math.log(1.1), abs=0.03)


def test_a_work_that_takes_no_time_is_refused():
    with pytest.raises(ValueError, match="must take time"):
        measure_pairs(lambda: 0, lambda: 0, pairs=2, clock=lambda: 1.0)


@pytest.mark.parametrize("fraction", [0.0, 0.01, 0.05, 1.5])
def test_planted_slowness_is_that_share(fraction):
    clock = Clock()
    work = planted(spends(clock, 10.0), fraction, clock=clock)
    before = clock.now
    work()
    assert clock.now - before == pytest.approx(10 * (1 + fraction), abs=0.02)


def test_planted_is_found_where_it_was_put():
    clock = Clock()
    work = spends(clock, 10.0)
    logs = measure_pairs(planted(work, 0.05, clock=clock), work, pairs=3, clock=clock)
    assert logs == pytest.approx(math.log(1.05), abs=1e-3)


def test_a_planted_function_does_what_it_did():
    slow = planted(sd.verify_tokens, 0.5)
    assert slow.__name__ == "verify_tokens"
    p = np.array([[0.5, 0.5], [1.0, 0.0]])
    proposal = sd.Proposal((0,), p[:1])
    expected = sd.verify_tokens(p, proposal, sd.SeededRandom(0))
    assert slow(p, proposal, sd.SeededRandom(0)) == expected


def test_a_planted_draft_guesses_the_same_and_only_takes_longer():
    clock = Clock()
    model = sd.FunctionModel(lambda seq: [0.0, 0.5, 1.0], 3, bos_id=0)

    class Timed:
        """A draft whose proposals take 2 s and whose commits take 1 s."""

        vocab_size = 3

        def start(self, prompt):
            session = sd.ModelDraft(model).start(prompt)
            timed = Timed()
            timed.propose = lambda k, rng: (tick(2.0), session.propose(k, rng))[1]
            timed.commit = lambda tokens: (tick(1.0), session.commit(tokens))[1]
            return timed

    def tick(seconds):
        clock.now += seconds

    def run(draft):
        before = clock.now
        done = sd.generate(model, [0], draft=draft, k=2, max_new_tokens=20, seed=3)
        return done, clock.now - before

    slow = planted(Timed(), 0.1, clock=clock)
    assert slow.vocab_size == 3
    assert copy.deepcopy(slow).vocab_size == 3
    plain, seconds = run(Timed())
    planted_run, longer = run(slow)
    assert planted_run.tokens == plain.tokens
    looks = 0.02 * len(plain.rounds)
    assert longer == pytest.approx(1.1 * seconds, abs=looks)


@pytest.mark.parametrize("fraction", [-0.1, math.inf, math.nan])
def test_a_bad_share_is_named(fraction):
    with pytest.raises(ValueError, match="fraction must be finite and >= 0"):
        planted(max, fraction)


def test_bad_workloads_are_named():
    with pytest.raises(TypeError, match="work must be a function or a draft, got 3"):
        planted(3, 0.1)
    with pytest.raises(ValueError, match="blocks must be 1 or more"):
        measure({"a": int}, 0)
    with pytest.raises(ValueError, match="workloads must be one or more"):
        measure({}, 1)
    with pytest.raises(ValueError, match="pairs must be 1 or more"):
        measure_pairs(int, int, pairs=0)


def test_the_machine_is_named():
    found = machine()
    assert found["numpy"] == np.__version__
    assert found["cores"] >= 1
    assert found["processor"]
