"""The queue under two sliders of chapter 16, on the built page, where no Python runs.

What it says is compared with a queue that is worked out here, one request at a time.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from site_kit import MAX_DATA, Visit, Widget, pair, widget_size

import specdec_lib as sd

pytestmark = pytest.mark.browser

PAGE = "notebooks/16_an_engine_behind_http.html"
WORKERS, RATE = "Workers", "Requests in 100 calls"
STOPS = {WORKERS: (1, 2, 3), RATE: (4, 8, 16, 24)}
REQUESTS, PLACES = 16, 2
START = (1, 8)
BUSY, REFUSED = "#0072b2", "#d55e00"


@cache
def work() -> tuple[int, ...]:
    """Calls of the target for each request, by the loop itself."""
    lengths = np.random.default_rng(16).integers(8, 65, size=120)[:REQUESTS]
    sampler, tokenizer = sd.Sampler(temperature=0.7), pair().tokenizer
    return tuple(
        sd.generate(
            pair().target,
            [tokenizer.bos_id, *tokenizer.encode("The").tolist()],
            draft=sd.ModelDraft(pair().draft, sampler),
            k=4,
            max_new_tokens=int(length),
            sampler=sampler,
            seed=seed,
        ).metrics.target_calls
        for seed, length in enumerate(lengths)
    )


def waits(workers: int, rate: int) -> list[float]:
    """How long those wait that are not refused."""
    gaps = np.random.default_rng(3).exponential(size=REQUESTS)
    taken: list[tuple[float, float]] = []  # when each starts and ends
    found = []
    for at, takes in zip(100 / rate * gaps.cumsum(), work(), strict=True):
        if sum(start > at for start, _ in taken) == PLACES:
            continue
        ends = sorted((end for _, end in taken), reverse=True)[:workers]
        start = max(at, ends[-1]) if len(ends) == workers else at
        taken.append((start, start + takes))
        found.append(start - at)
    return found


class Queue(Widget):
    def __init__(self, visit: Visit) -> None:
        super().__init__(visit.page, STOPS)

    def drawn(self, colour: str) -> int:
        """How many bars or crosses have this colour."""
        return int(
            self.page.evaluate(
                """([box, colour]) => [...box.querySelectorAll('svg #axes_1 > g')]
                    .filter((part) => /^(patch|line2d)_/.test(part.id))
                    .filter((part) => part.outerHTML.toLowerCase().includes(colour))
                    .length""",
                [self.box.element_handle(), colour],
            )
        )


@pytest.fixture
def shown(chapter: Visit) -> Queue:
    return Queue(chapter)


def says(workers: int, rate: int) -> str:
    found = waits(workers, rate)
    return (
        f"{workers} worker{'s' * (workers > 1)}, {rate} requests in 100 calls: "
        f"{len(found)} answered, {REQUESTS - len(found)} refused, "
        f"mean wait {np.mean(found):.1f} calls."
    )


def test_it_starts_where_it_was_told(fresh: Visit) -> None:
    assert Queue(fresh).caption() == says(*START)


def test_arrow_keys_reach_every_queue_and_its_figures_are_right(shown: Queue) -> None:
    for values, caption in shown.everywhere():
        assert caption == says(*values)


def test_each_request_is_drawn_as_answered_or_refused(shown: Queue) -> None:
    for values, _ in shown.everywhere():
        answered = len(waits(*values))
        assert shown.drawn(BUSY) == answered
        assert shown.drawn(REFUSED) == REQUESTS - answered


def test_more_workers_never_answer_fewer(shown: Queue) -> None:
    said = dict(shown.everywhere())
    for rate in STOPS[RATE]:
        answered = [
            int(re.search(r"(\d+) answered", said[workers, rate])[1])  # type: ignore[index]
            for workers in STOPS[WORKERS]
        ]
        assert answered == sorted(answered)


def test_it_is_light(site: Path) -> None:
    assert 0 < widget_size(site / PAGE) <= MAX_DATA
