"""The sliders of chapter 12, on the built page, where no Python runs.

What the page shows is compared with texts that are decoded here, by the library, in the
settings that the chapter prints.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from site_kit import MAX_DATA, Visit, Widget, pair, prompts, widget_size

import specdec_lib as sd
from specdec_lib import experiments as ex
from specdec_lib import theory
from specdec_lib.draft_length import break_even, judged_guesses

pytestmark = pytest.mark.browser

PAGE = "notebooks/12_choosing_k_as_you_go.html"
LEASTS, COSTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8), (0.05, 0.1, 0.2, 0.3)
DECAYS = (0.5, 0.8, 0.9, 0.95, 0.98)
TEMPERATURES = (0.6, 1.0)
COMPARED = ((0.3, 0.1), (0.8, 0.3), (0.1, 0.05))
GREEN = "#009e73"
LEAST, COST = "Stop below (least)", "Draft cost c"
THRESHOLDS = {LEAST: LEASTS, COST: COSTS}
MEMORY = {"Memory (decay)": DECAYS}


@cache
def halves() -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    items = list(prompts(40).items())
    return dict(items[::2]), dict(items[1::2])


@cache
def fitted(temperature: float) -> tuple[sd.Calibration, float]:
    """The table of the first half of the prompts, and the share that was accepted."""
    sampler = sd.Sampler(temperature=temperature)
    confidences, accepted = judged_guesses(
        pair().target,
        sd.ModelDraft(pair().draft, sampler),
        list(halves()[0].values()),
        sampler=sampler,
        max_new_tokens=120,
    )
    return sd.Calibration.fit(confidences, accepted), float(accepted.mean())


def records(name: str, draft: Any, k: int, temperature: float, tokens: int) -> Any:
    return ex.policy_records(
        pair().target,
        pair().draft,
        {name: (draft, k)},
        halves()[1],
        temperatures=(temperature,),
        max_new_tokens=tokens,
    )


@cache
def calibrated(least: float, temperature: float) -> list[ex.Record]:
    table, _ = fitted(temperature)

    def draft(model: Any, sampler: sd.Sampler) -> sd.ModelDraft:
        return sd.ModelDraft(model, sampler, least=least, chance=table)

    return records(str(least), draft, 16, temperature, 120)


@cache
def fixed(k: int, temperature: float) -> list[ex.Record]:
    return records(f"k = {k}", sd.ModelDraft, k, temperature, 120)


@cache
def clairvoyant(temperature: float) -> list[ex.Record]:
    some = records("clairvoyant", sd.ModelDraft, 12, temperature, 120)
    return [record | {"draft_calls": record["accepted"]} for record in some]


def speedup(some: list[ex.Record], cost: float) -> float:
    found = ex.ratio(some, "emitted", lambda record: ex.call_cost(record, cost))
    assert found is not None
    return found


def expected(least: float, cost: float, temperature: float) -> list[float]:
    """Calibrated, fixed length, its speedup, clairvoyant, and where the rule stops."""
    _, alpha = fitted(temperature)
    k = theory.best_k(alpha, cost)
    return [
        speedup(calibrated(least, temperature), cost),
        k,
        speedup(fixed(k, temperature), cost),
        speedup(clairvoyant(temperature), cost),
        break_even(theory.speedup(alpha, k, cost), cost) / alpha,
    ]


class Curves(Widget):
    """Sliders and a figure of curves."""

    def curve(
        self, axes: int, colour: str, *, below: int | None = None
    ) -> list[tuple[float, float]]:
        """The corners of the line of this colour, read off the axes by their ticks.

        below
            the axes that have the ticks of x, where they are shared.
        """
        return [
            (x, y)
            for x, y in self.svg.evaluate(
                """(svg, [axes, below, colour]) => {
                const part = svg.querySelector(`#axes_${axes}`);
                const ticks = (name, axes) => [...svg.querySelectorAll(
                    `#axes_${axes} [id^="${name}tick_"]`)].map((tick) => [
                        Number(tick.querySelector('use').getAttribute(name)),
                        Number(tick.querySelector('text').textContent
                            .replace('\\u2212', '-'))]);
                const read = (at, [[a, x], ...rest]) => {
                    const [b, y] = rest.at(-1);
                    return x + (at - a) / (b - a) * (y - x);
                };
                const line = [...part.querySelectorAll(
                    ':scope > g[id^="line2d"] > path')].find((path) =>
                    (path.getAttribute('style') ?? '').toLowerCase()
                        .includes(`stroke: ${colour}`));
                const numbers = line.getAttribute('d').match(/-?[\\d.]+/g).map(Number);
                const [xs, ys] = [ticks('x', below), ticks('y', axes)];
                return numbers.flatMap((_, i) => i % 2 ? [] : [[
                    read(numbers[i], xs), read(numbers[i + 1], ys)]]);
            }""",
                [axes, below or axes, colour],
            )
        ]


@pytest.fixture
def thresholds(chapter: Visit) -> Curves:
    return Curves(chapter.page, THRESHOLDS)


@pytest.fixture
def memory(chapter: Visit) -> Curves:
    return Curves(chapter.page, MEMORY)


class TestThresholds:
    def test_it_starts_where_it_was_told(self, fresh: Visit) -> None:
        caption = Curves(fresh.page, THRESHOLDS).caption()
        assert caption.startswith("Draft cost 0.1, least 0.3. ")

    def test_keyboard_reaches_every_figure(self, thresholds: Curves) -> None:
        for (least, cost), caption in thresholds.everywhere():
            assert caption.startswith(f"Draft cost {cost}, least {least}. ")

    @pytest.mark.parametrize(("least", "cost"), COMPARED)
    def test_numbers_are_those_of_the_library(
        self, thresholds: Curves, least: float, cost: float
    ) -> None:
        caption = thresholds.stand(least, cost)
        for temperature in TEMPERATURES:
            found = re.search(
                rf"T = {temperature}: calibrated (\S+), fixed k = (\d+) (\S+), "
                r"clairvoyant (\S+); the rule stops below (\d\.\d\d)\.",
                caption,
            )
            assert found, caption
            said = [float(value) for value in found.groups()]
            assert said == pytest.approx(expected(least, cost, temperature), abs=0.0051)

    def test_the_curve_has_the_heights_of_the_captions(
        self, thresholds: Curves
    ) -> None:
        for cost in (0.1, 0.3):
            said = [
                [float(x) for x in re.findall(r"calibrated (\S+),", caption)]
                for caption in (thresholds.stand(least, cost) for least in LEASTS)
            ]
            for axes in (1, 2):
                x, y = np.transpose(thresholds.curve(axes, GREEN))
                assert x == pytest.approx(LEASTS, abs=0.005)
                assert y == pytest.approx([row[axes - 1] for row in said], abs=0.02)

    def test_mouse_moves_both(self, thresholds: Curves) -> None:
        thresholds.stand(LEASTS[0], COSTS[0])
        thresholds.click(LEAST, 0.5)
        caption = thresholds.click(COST, 0.3)
        assert caption.startswith("Draft cost 0.3, least 0.5. ")


class TestMemory:
    def test_it_starts_where_it_was_told(self, fresh: Visit) -> None:
        assert Curves(fresh.page, MEMORY).caption().startswith("Decay 0.95: ")

    def test_captions_are_those_of_the_library(self, memory: Curves) -> None:
        """k over the rounds, decoded again with a draft that fails in the middle."""
        for (decay,), caption in memory.everywhere():
            at, k = chosen(decay)
            good, bad = k[at < 120], k[(at >= 120) & (at < 240)]
            back = at[(at >= 240) & (k >= 3)][0] - 240
            assert caption == (
                f"Decay {decay}: k from {good.min()} to {good.max()} at first; "
                f"0 in {(bad == 0).sum()} of {len(bad)} rounds while the draft fails; "
                f"3 again after {back} tokens."
            )

    @pytest.mark.parametrize("decay", (0.5, 0.95))
    def test_the_steps_are_the_lengths_chosen(
        self, memory: Curves, decay: float
    ) -> None:
        memory.stand(decay)
        at, k = chosen(decay)
        x, y = np.transpose(memory.curve(1, GREEN, below=2))
        ends = np.array([y[x <= token + 0.3][-1] for token in at[:-1]])
        assert ends == pytest.approx(k[:-1], abs=0.1)


@cache
def chosen(decay: float) -> tuple[Any, Any]:
    """Tokens written before each round, and the length chosen for it."""
    size = pair().target.vocab_size

    def logits(sequence: tuple[int, ...]) -> Any:
        row = pair().draft.probabilities(sequence[-1:])
        fails = 136 <= len(sequence) < 256
        return np.log((np.roll(row, 500) if fails else row) + 1e-12)

    lengths: list[int] = []

    class Noted(sd.RecentAcceptance):
        def next_k(self) -> int:
            lengths.append(super().next_k())
            return lengths[-1]

    rounds = sd.generate(
        pair().target,
        next(iter(halves()[1].values())),
        draft=sd.ModelDraft(sd.FunctionModel(logits, size)),
        k=Noted(0.1, decay=decay),
        max_new_tokens=360,
        seed=1,
    ).rounds
    at = np.cumsum([0, *(len(each.emitted) for each in rounds[:-1])])
    return at, np.array(lengths[: len(at)])


def test_they_fit_a_telephone(telephone: Visit) -> None:
    for stops, values in ((THRESHOLDS, (0.6, 0.2)), (MEMORY, (0.8,))):
        widget = Widget(telephone.page, stops)
        widget.stand(*values)
        widget.check_fits()


def test_they_are_light(site: Path) -> None:
    assert 0 < widget_size(site / PAGE) <= MAX_DATA
