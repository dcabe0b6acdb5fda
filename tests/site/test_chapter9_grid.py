"""The two sliders of chapter 9, on the built page, where no Python runs.

What the page shows is compared with a sweep and with texts that are made here, by the
library, in the settings that the chapter prints.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from site_kit import MAX_DATA, Visit, Widget, pair, prompts, widget_size

import specdec_lib as sd
from specdec_lib import experiments as ex
from specdec_lib import theory

pytestmark = pytest.mark.browser

PAGE = "notebooks/09_speedup_against_temperature.html"
K, TEMPERATURE = "Draft length k", "Temperature T"
KS = (1, 2, 3, 4, 6, 8)
EVERY_K = (*KS, 12)
TEMPERATURES = (0, 0.4, 0.6, 0.8, 1, 1.2, 1.5)
START = (4, 1)
TOKENS, DRAFT_COST, SEED, CALLS = 80, 0.1, 4, 6
COMPARED = ((1, 0), (8, 0), (4, 1), (2, 1.2), (8, 1.5))
ACCEPTED, CORRECTION, BONUS = "#009e73", "#d55e00", "#0072b2"


@cache
def measured(k: int, temperature: float) -> ex.Interval:
    """The speedup of one cell of the map, decoded again."""
    records = ex.Sweep(
        pair().target,
        {"order 2": pair().draft},
        prompts(20),
        ks=(k,),
        temperatures=(temperature,),
        max_new_tokens=TOKENS,
    ).run()
    interval = ex.bootstrap_interval(
        records, "emitted", lambda record: ex.call_cost(record, DRAFT_COST)
    )
    assert interval is not None
    return interval


@cache
def predicted(k: int, temperature: float) -> float:
    """The closed form, at 1 - TV along the target's own text."""
    target, sampler = pair().target, sd.Sampler(temperature=temperature)
    overlaps = []
    for seed, prompt in enumerate(prompts(20).values()):
        run = sd.generate(
            target, prompt, max_new_tokens=TOKENS, sampler=sampler, seed=seed
        )
        overlaps.append(
            ex.acceptance_along(
                target, pair().draft, prompt, run.tokens, sampler=sampler
            ).overlap
        )
    return theory.speedup(float(np.mean(overlaps)), k, DRAFT_COST)


@cache
def rounds(k: int, temperature: float) -> tuple[sd.Round, ...]:
    """The first target calls of the text that is shown."""
    sampler = sd.Sampler(temperature=temperature)
    return tuple(
        islice(
            sd.stream(
                pair().target,
                pair().tokenizer.encode("The harbour").tolist(),
                draft=sd.ModelDraft(pair().draft, sampler),
                k=k,
                max_new_tokens=TOKENS,
                sampler=sampler,
                seed=SEED,
            ),
            CALLS,
        )
    )


def written(k: int, temperature: float) -> tuple[int, str]:
    """How many tokens these calls wrote, and the text, its white space joined."""
    tokens = [token for each in rounds(k, temperature) for token in each.emitted]
    return len(tokens), " ".join("".join(pair().tokenizer.pieces(tokens)).split())


class Grid(Widget):
    """The sliders and the figure they move."""

    def __init__(self, visit: Visit) -> None:
        super().__init__(visit.page, {K: KS, TEMPERATURE: TEMPERATURES})

    def stand(self, *values: float) -> str:
        caption = super().stand(*values)
        self.check(*values)
        return caption

    def check(self, k: float, temperature: float) -> None:
        """The caption is of this k and T."""
        assert self.caption().startswith(f"k = {k}, T = {temperature:g}: ")

    def speedup_drawn(self) -> tuple[float, float]:
        """k and speedup where the square stands, read off the axis by its ticks."""
        return tuple(
            self.page.evaluate(
                """() => {
                const svg = document.querySelector('.specdec-figure svg');
                const middle = (part) => {
                    const box = part.getBoundingClientRect();
                    return [box.x + box.width / 2, box.y + box.height / 2];
                };
                const ticks = (name, axis) => [...svg.querySelectorAll(
                    `#axes_1 [id^="${name}tick_"]`)]
                    .map((tick) => [
                        middle(tick.querySelector('use'))[axis],
                        Number(tick.querySelector('text').textContent),
                    ]);
                const read = (at, [[a, x], ...rest]) => {
                    const [b, y] = rest.at(-1);
                    return x + (at - a) / (b - a) * (y - x);
                };
                const square = [...svg.querySelectorAll('#axes_1 use')].find((use) =>
                    /fill: none|fill-opacity: 0/.test(use.getAttribute('style') + (
                        svg.querySelector(use.getAttribute('xlink:href'))
                            .getAttribute('style') ?? '')) &&
                    /#d55e00/i.test(use.getAttribute('style') + (
                        svg.querySelector(use.getAttribute('xlink:href'))
                            .getAttribute('style') ?? '')));
                const [x, y] = middle(square);
                return [read(x, ticks('x', 0)), read(y, ticks('y', 1))];
            }"""
            )
        )

    def boxes(self) -> list[list[str]]:
        """The strip of text: the edge colours of the boxes, row by row."""
        found = self.page.evaluate(
            """() => [...document.querySelectorAll(
                    '.specdec-figure svg #axes_2 > g > path')]
                .map((path) => [path.getBoundingClientRect(),
                                path.getAttribute('style')])
                .filter(([, style]) => /stroke: #/.test(style))
                .filter(([box]) => box.height > 8 && box.width > 8 && box.height < 60)
                .map(([box, style]) => [
                    Math.round(box.y), box.x, style.match(/stroke: (#\\w+)/)[1]])"""
        )
        rows: dict[int, list[tuple[float, str]]] = {}
        for y, x, colour in found:
            rows.setdefault(y, []).append((x, colour.lower()))
        return [[colour for _, colour in sorted(rows[y])] for y in sorted(rows)]


@pytest.fixture
def grid(chapter: Visit) -> Grid:
    return Grid(chapter)


def test_it_starts_where_it_was_told(fresh: Visit) -> None:
    Grid(fresh).check(*START)


def test_sliders_have_labels_names_and_readouts(grid: Grid) -> None:
    for label, stops in grid.stops.items():
        assert grid.box.get_by_text(label, exact=True).first.is_visible()
        for key, stop in (("End", stops[-1]), ("Home", stops[0])):
            grid.slider(label).press(key)
            assert grid.readout(label) == f"{stop:g}"


def test_keyboard_reaches_every_figure(grid: Grid) -> None:
    """All 42 by arrow keys: its k and T, what its text says, and no two alike."""
    for (k, temperature), caption in grid.everywhere():
        count, text = written(k, temperature)
        assert f"Six calls wrote {count} tokens: “{text}”" in caption


@pytest.mark.parametrize(("k", "temperature"), COMPARED)
def test_numbers_are_those_of_the_library(
    grid: Grid, k: int, temperature: float
) -> None:
    caption = grid.stand(k, temperature)
    number = r"(\d+\.\d\d)"
    found = re.search(
        rf"speedup {number}, interval {number} to {number}, predicted {number}\.",
        caption,
    )
    assert found, caption
    said = [float(value) for value in found.groups()]
    wanted = [*measured(k, temperature), predicted(k, temperature)]
    assert said == pytest.approx(wanted, abs=0.0051)


@pytest.mark.parametrize(("k", "temperature"), COMPARED)
def test_the_square_stands_at_the_measured_speedup(
    grid: Grid, k: int, temperature: float
) -> None:
    grid.stand(k, temperature)
    x, y = grid.speedup_drawn()
    assert x == pytest.approx(k, abs=0.05)
    assert y == pytest.approx(measured(k, temperature).estimate, abs=0.03)


@pytest.mark.parametrize(("k", "temperature"), [*COMPARED, (3, 0.8)])
def test_the_strip_shows_the_rounds(grid: Grid, k: int, temperature: float) -> None:
    """A row for each call: accepted guesses, what the target added, what was lost."""
    grid.stand(k, temperature)
    wanted = []
    for each in rounds(k, temperature):
        last = BONUS if each.accepted == k else CORRECTION
        kept = [ACCEPTED] * each.accepted + [last]
        wanted.append(kept + ["#555555"] * (k + 1 - len(kept)))
    assert grid.boxes() == wanted
    words = grid.svg.text_content()
    for each in rounds(k, temperature):
        for piece in pair().tokenizer.pieces(each.emitted):
            assert piece.strip() in words


def test_mouse_moves_both(grid: Grid) -> None:
    grid.stand(1, 0)
    for k in grid.drag(K, 1, 2, 4, 8, 3):
        grid.check(k, 0)
    for temperature in (1.5, 0.6, 1):
        grid.click(TEMPERATURE, temperature)
        grid.check(3, temperature)


def test_live_says_that_it_needs_a_kernel(grid: Grid) -> None:
    """Its sliders are there, disabled, with a note and what was decoded beforehand."""
    box = grid.page.locator(".specdec-widget").filter(
        has=grid.page.locator(".specdec-note")
    )
    assert box.count() == 1
    assert box.get_by_role("slider").count() == 2
    for slider in box.get_by_role("slider").all():
        assert slider.is_disabled()
    assert "need Python" in box.locator(".specdec-note").inner_text()
    run = sd.generate(
        pair().target,
        pair().tokenizer.encode("The harbour"),
        draft=sd.ModelDraft(pair().draft),
        k=START[0],
        max_new_tokens=200,
        seed=1,
    )
    text = "The harbour" + "".join(pair().tokenizer.pieces(run.tokens))
    assert box.locator(".specdec-text").text_content() == text


def test_it_fits_a_telephone(telephone: Visit) -> None:
    grid = Grid(telephone)
    grid.stand(8, 1.5)
    grid.check_fits()


def test_it_is_light(site: Path) -> None:
    assert 0 < widget_size(site / PAGE) <= MAX_DATA
