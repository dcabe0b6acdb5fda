"""The sliders of chapter 12, on the built page, where no Python runs.

What the page shows is compared with texts that are decoded here, by the library, in the
settings that the chapter prints.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from site_kit import NARROW, Visit, place

import specdec_lib as sd
from specdec_lib import experiments as ex
from specdec_lib import theory
from specdec_lib.draft_length import break_even, judged_guesses
from specdec_lib.pair import Pair, book_pair
from specdec_lib.text import load_corpus

pytestmark = pytest.mark.browser

PAGE = "notebooks/12_choosing_k_as_you_go.html"
LEASTS, COSTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8), (0.05, 0.1, 0.2, 0.3)
START = (0.3, 0.1)
DECAYS = (0.5, 0.8, 0.9, 0.95, 0.98)
TEMPERATURES = (0.6, 1.0)
COMPARED = ((0.3, 0.1), (0.8, 0.3), (0.1, 0.05))
GREEN = "#009e73"
MAX_DATA = 150_000  # bytes, compressed


@cache
def pair() -> Pair:
    return book_pair()


@cache
def halves() -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    documents = {
        document.name: pair().tokenizer.encode(document.text)
        for document in load_corpus().held_out.documents
    }
    prompts = list(ex.cut_prompts(documents, count=40, length=16).items())
    return dict(prompts[::2]), dict(prompts[1::2])


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


class Sliders:
    """One widget of the page: its sliders and the figure they move."""

    def __init__(self, page: Any, stops: dict[str, tuple[float, ...]]) -> None:
        self.page, self.stops = page, stops
        first = page.get_by_role("slider", name=next(iter(stops)), exact=True)
        first.wait_for()
        self.box = page.locator(".specdec-widget").filter(has=first)
        assert self.box.count() == 1

    def slider(self, name: str) -> Any:
        return self.box.get_by_role("slider", name=name, exact=True)

    def stand(self, *values: float) -> str:
        """Move them by keyboard from where they are; the caption shown then."""
        for (name, stops), value in zip(self.stops.items(), values, strict=True):
            slider, index = self.slider(name), stops.index(value)
            slider.focus()
            now = int(slider.input_value())
            for _ in range(abs(index - now)):
                self.page.keyboard.press("ArrowRight" if index > now else "ArrowLeft")
            assert slider.input_value() == str(index)
        return self.caption()

    def caption(self) -> str:
        """The one that is seen, which is also the name of the figure."""
        caption, svg = self.box.locator("figcaption"), self.box.locator("svg")
        assert caption.is_visible()
        assert svg.count() == 1
        assert svg.is_visible()
        assert svg.get_attribute("role") == "img"
        text = str(caption.inner_text())
        assert svg.get_attribute("aria-label") == text
        return text

    def curve(
        self, axes: int, colour: str, *, below: int | None = None
    ) -> list[tuple[float, float]]:
        """The corners of the line of this colour, read off the axes by their ticks.

        below
            the axes that have the ticks of x, where they are shared.
        """
        return [
            (x, y)
            for x, y in self.page.evaluate(
                """([box, axes, below, colour]) => {
                const svg = box.querySelector('svg');
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
                [self.box.element_handle(), axes, below or axes, colour],
            )
        ]


@pytest.fixture(scope="module")
def visit(open_page: Callable[..., Visit]) -> Iterator[Visit]:
    opened = open_page(PAGE)
    yield opened
    assert (opened.errors, opened.foreign, opened.missing) == ([], [], [])
    opened.page.close()


def thresholds(page: Any) -> Sliders:
    return Sliders(page, {"Stop below (least)": LEASTS, "Draft cost c": COSTS})


def memory(page: Any) -> Sliders:
    return Sliders(page, {"Memory (decay)": DECAYS})


class TestThresholds:
    def test_it_starts_where_it_was_told(self, open_page: Callable[..., Visit]) -> None:
        fresh = open_page(PAGE)
        caption = thresholds(fresh.page).caption()
        assert caption.startswith("Draft cost 0.1, least 0.3. ")
        fresh.page.close()

    def test_keyboard_reaches_every_figure(self, visit: Visit) -> None:
        sliders, seen = thresholds(visit.page), set()
        for least, cost in product(LEASTS, COSTS):
            caption = sliders.stand(least, cost)
            assert caption.startswith(f"Draft cost {cost}, least {least}. ")
            seen.add((caption, sliders.box.locator("svg").inner_html()))
        assert len(seen) == len(LEASTS) * len(COSTS)

    @pytest.mark.parametrize(("least", "cost"), COMPARED)
    def test_numbers_are_those_of_the_library(
        self, visit: Visit, least: float, cost: float
    ) -> None:
        caption = thresholds(visit.page).stand(least, cost)
        for temperature in TEMPERATURES:
            found = re.search(
                rf"T = {temperature}: calibrated (\S+), fixed k = (\d+) (\S+), "
                r"clairvoyant (\S+); the rule stops below (\d\.\d\d)\.",
                caption,
            )
            assert found, caption
            said = [float(value) for value in found.groups()]
            assert said == pytest.approx(expected(least, cost, temperature), abs=0.0051)

    def test_the_curve_has_the_heights_of_the_captions(self, visit: Visit) -> None:
        sliders = thresholds(visit.page)
        for cost in (0.1, 0.3):
            said = [
                [float(x) for x in re.findall(r"calibrated (\S+),", caption)]
                for caption in (sliders.stand(least, cost) for least in LEASTS)
            ]
            for axes in (1, 2):
                x, y = np.transpose(sliders.curve(axes, GREEN))
                assert x == pytest.approx(LEASTS, abs=0.005)
                assert y == pytest.approx([row[axes - 1] for row in said], abs=0.02)

    def test_mouse_moves_both(self, visit: Visit) -> None:
        sliders = thresholds(visit.page)
        sliders.stand(LEASTS[0], COSTS[0])
        mouse = visit.page.mouse
        mouse.click(*place(sliders.slider("Stop below (least)"), 4, len(LEASTS)))
        mouse.click(*place(sliders.slider("Draft cost c"), 3, len(COSTS)))
        assert sliders.caption().startswith("Draft cost 0.3, least 0.5. ")


class TestMemory:
    def test_captions_are_those_of_the_library(self, visit: Visit) -> None:
        """k over the rounds, decoded again with a draft that fails in the middle."""
        sliders = memory(visit.page)
        assert sliders.caption().startswith("Decay 0.95: ")
        for decay in DECAYS:
            at, k = chosen(decay)
            good, bad = k[at < 120], k[(at >= 120) & (at < 240)]
            back = at[(at >= 240) & (k >= 3)][0] - 240
            assert sliders.stand(decay) == (
                f"Decay {decay}: k from {good.min()} to {good.max()} at first; "
                f"0 in {(bad == 0).sum()} of {len(bad)} rounds while the draft fails; "
                f"3 again after {back} tokens."
            )

    @pytest.mark.parametrize("decay", (0.5, 0.95))
    def test_the_steps_are_the_lengths_chosen(self, visit: Visit, decay: float) -> None:
        sliders = memory(visit.page)
        sliders.stand(decay)
        at, k = chosen(decay)
        x, y = np.transpose(sliders.curve(1, GREEN, below=2))
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


def test_they_fit_a_telephone(open_page: Callable[..., Visit]) -> None:
    narrow = open_page(PAGE, NARROW)
    for sliders, values in (
        (thresholds(narrow.page), (0.6, 0.2)),
        (memory(narrow.page), (0.8,)),
    ):
        sliders.stand(*values)
        box = sliders.box.locator("svg").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= NARROW["width"]
    width = narrow.page.evaluate("document.documentElement.scrollWidth")
    assert width <= NARROW["width"]
    assert narrow.foreign == []
    narrow.page.close()


def test_they_are_light(site: Path) -> None:
    html = (site / PAGE).read_text(encoding="utf-8")
    state = re.search(
        r'<script type="application/vnd.jupyter.widget-state\+json">(.*?)</script>',
        html,
        re.DOTALL,
    )
    assert state is not None
    assert len(gzip.compress(state[1].encode())) <= MAX_DATA
