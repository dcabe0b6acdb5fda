"""What the loop adds to a round, with the target's and the draft's time taken out.

    python bench/bench_loop.py [--quick]

The target's logits and the draft's guesses lie ready, so that what is left is the
library's own work: the target's sampler over k + 1 rows, the checks of the contract,
the acceptance rule with its random draws, and the bookkeeping. What the target and the
draft do cost is measured by replaying their calls alone, and taken off. Microseconds of
CPU time, medians of several runs after one that is not counted; the least of the runs
stands beside, since other work on the machine only ever adds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import specdec_lib as sd

VOCAB_SIZE = 1_000
PERIOD = 64
Row = dict[str, Any]


class Ready:
    """A target whose logits were computed beforehand, and its own state."""

    bos_id = context_window = None

    def __init__(self, logits: np.ndarray) -> None:
        self.logits = np.concatenate([logits, logits])
        self.vocab_size = logits.shape[1]
        self.length = 0

    def start(self) -> Ready:
        return Ready(self.logits[:PERIOD])

    def extend(self, tokens: Sequence[int]) -> np.ndarray:
        start = self.length % PERIOD
        self.length += len(tokens)
        return self.logits[start : start + len(tokens)]

    def rewind(self, length: int) -> None:
        self.length = length


class Guesses:
    """A draft whose guesses were drawn beforehand from rows close to the target's."""

    def __init__(self, logits: np.ndarray, noise: float) -> None:
        g = np.random.default_rng(1)
        self.rows = sd.Sampler()(logits + noise * g.normal(size=logits.shape))
        self.rows = np.concatenate([self.rows, self.rows])
        rng = sd.SeededRandom(2)
        self.tokens = [
            [rng.categorical(row) for row in self.rows] for _ in range(PERIOD)
        ]
        self.turn = 0

    def start(self, prompt: Sequence[int]) -> Guesses:
        self.at = len(prompt) - 1
        return self

    def propose(self, k: int, rng: Any) -> sd.Proposal:
        self.turn = (self.turn + 1) % PERIOD
        start = self.at % PERIOD
        tokens = self.tokens[self.turn][start : start + k]
        return sd.Proposal(tuple(tokens), self.rows[start : start + k])

    def commit(self, tokens: Sequence[int]) -> None:
        self.at += len(tokens)


def microseconds(work: Callable[[], Any], calls: int, runs: int) -> list[float]:
    """Of one call of ``work``, in each run."""
    work()
    times = []
    for _ in range(runs):
        started = time.process_time()
        for _ in range(calls):
            work()
        times.append((time.process_time() - started) / calls * 1e6)
    return times


def row(what: str, times: list[float], target: str = "") -> Row:
    return {
        "what": what,
        "value": statistics.median(times),
        "least": min(times),
        "unit": "µs",
        "target": target,
    }


def replay(target: Ready, draft: Guesses, rounds: Sequence[sd.Round], k: int) -> None:
    """The calls of target and draft that the loop made, and nothing else."""
    state, session, length = target.start(), draft.start([0]), 1
    for r in rounds:
        if k:
            session.propose(k, None)
        state.extend(r.drafted if r is not rounds[0] else (0, *r.drafted))
        state.rewind(length + r.accepted)
        session.commit(r.emitted)
        length += len(r.emitted)


def round_times(
    target: Ready, draft: Guesses, k: int, runs: int
) -> tuple[list[float], float | None]:
    """Time of one round less the target's and the draft's, and the acceptance rate."""
    times = []
    for seed in range(runs + 1):
        started = time.process_time()
        generation = sd.generate(
            target, [0], draft=draft, k=k, max_new_tokens=600, seed=seed
        )
        decoded = time.process_time()
        replay(target, draft, generation.rounds, k)
        own = (decoded - started) - (time.process_time() - decoded)
        times.append(own / len(generation.rounds) * 1e6)
    return times[1:], generation.metrics.acceptance_rate


def run(quick: bool = False) -> list[Row]:
    """All figures, one record each: what, value, least, unit, target."""
    runs = 7 if quick else 25
    g = np.random.default_rng(0)
    logits = 2.0 * g.normal(size=(PERIOD, VOCAB_SIZE))
    target, draft = Ready(logits), Guesses(logits, noise=0.5)
    rows = []
    for k in (0, 1, 4, 8):
        times, rate = round_times(target, draft, k, runs)
        accepted = "" if rate is None else f", acceptance {rate:.2f}"
        rows.append(
            row(
                f"one round, V = {VOCAB_SIZE:,}, k = {k}{accepted}",
                times,
                "at most 50" if k == 4 else "",
            )
        )
    p, q = sd.Sampler()(logits[:5]), draft.rows[:4]
    proposal = sd.Proposal(tuple(draft.tokens[0][:4]), q)
    rng = sd.SeededRandom(0)
    sampler, checked = sd.Sampler(), sd.verification.exact.checked
    parts: list[tuple[str, Callable[[], Any]]] = [
        ("its sampler, 5 rows", lambda: sampler(logits[:5])),
        ("its rule, 4 guesses", lambda: sd.verify_tokens(p, proposal, rng)),
        ("of which the checks", lambda: checked(p, proposal)),
    ]
    calls = 200 if quick else 500
    for what, work in parts:
        rows.append(row(f"    {what}", microseconds(work, calls, runs)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    for r in run(parser.parse_args().quick):
        print(
            f"{r['what']:<52}{r['value']:>8.1f} {r['unit']}, least {r['least']:.1f}"
            f"    {r['target']}"
        )


if __name__ == "__main__":
    main()
