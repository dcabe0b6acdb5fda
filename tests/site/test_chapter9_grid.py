"""The two sliders of chapter 9, on the built page, where no Python runs.

What the page shows is compared with a sweep and with texts that are made here, by the
library, in the settings that the chapter prints.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from site_kit import NARROW, Visit, place

import specdec_lib as sd
from specdec_lib import experiments as ex
from specdec_lib import theory
from specdec_lib.pair import Pair, book_pair
from specdec_lib.text import load_corpus

pytestmark = pytest.mark.browser

PAGE = "notebooks/09_speedup_against_temperature.html"
KS = (1, 2, 3, 4, 6, 8)
EVERY_K = (*KS, 12)
TEMPERATURES = (0, 0.4, 0.6, 0.8, 1, 1.2, 1.5)
START = (4, 1)
TOKENS, DRAFT_COST, SEED, CALLS = 80, 0.1, 4, 6
COMPARED = ((1, 0), (8, 0), (4, 1), (2, 1.2), (8, 1.5))
MAX_DATA = 150_000  # bytes, compressed
ACCEPTED, CORRECTION, BONUS = "#009e73", "#d55e00", "#0072b2"


@cache
def pair() -> Pair:
    return book_pair()


@cache
def prompts() -> dict[str, tuple[int, ...]]:
    documents = {
        document.name: pair().tokenizer.encode(document.text)
        for document in load_corpus().held_out.documents
    }
    return ex.cut_prompts(documents, count=20, length=16)


@cache
def measured(k: int, temperature: float) -> ex.Interval:
    """The speedup of one cell of the map, decoded again."""
    records = ex.Sweep(
        pair().target,
        {"order 2": pair().draft},
        prompts(),
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
    for seed, prompt in enumerate(prompts().values()):
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


class Grid:
    """The sliders and the figure they move, as a reader meets them."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.box = page.locator(".specdec-widget").filter(
            has=page.locator(".specdec-figure")
        )
        assert self.box.count() == 1
        self.k = self.box.get_by_role("slider", name="Draft length k", exact=True)
        self.temperature = self.box.get_by_role(
            "slider", name="Temperature T", exact=True
        )
        self.k.wait_for()

    def stand(self, k: int, temperature: float) -> str:
        """Move both by keyboard from where they are; the caption shown then."""
        for slider, index in (
            (self.k, KS.index(k)),
            (self.temperature, TEMPERATURES.index(temperature)),
        ):
            slider.focus()
            now = int(slider.input_value())
            for _ in range(abs(index - now)):
                self.page.keyboard.press("ArrowRight" if index > now else "ArrowLeft")
            assert slider.input_value() == str(index)
        return self.shown(k, temperature)

    def shown(self, k: int, temperature: float) -> str:
        """The caption, which must be of this k and T and the name of the figure."""
        caption = self.box.locator("figcaption")
        assert caption.is_visible()
        text = caption.inner_text()
        assert text.startswith(f"k = {k}, T = {temperature:g}: ")
        svg = self.box.locator("svg")
        assert svg.count() == 1
        assert svg.is_visible()
        assert svg.get_attribute("role") == "img"
        assert svg.get_attribute("aria-label") == text
        return text

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


@pytest.fixture(scope="module")
def visit(open_page: Callable[..., Visit]) -> Iterator[Visit]:
    opened = open_page(PAGE)
    yield opened
    assert (opened.errors, opened.foreign, opened.missing) == ([], [], [])
    opened.page.close()


@pytest.fixture
def grid(visit: Visit) -> Grid:
    return Grid(visit.page)


def test_it_starts_where_it_was_told(open_page: Callable[..., Visit]) -> None:
    fresh = open_page(PAGE)
    Grid(fresh.page).shown(*START)
    fresh.page.close()


def test_sliders_have_labels_names_and_readouts(grid: Grid) -> None:
    for slider, label, stops in (
        (grid.k, "Draft length k", KS),
        (grid.temperature, "Temperature T", TEMPERATURES),
    ):
        assert grid.box.get_by_text(label, exact=True).first.is_visible()
        slider.focus()
        for key, stop in (("End", stops[-1]), ("Home", stops[0])):
            slider.press(key)
            assert slider.get_attribute("aria-valuetext") == f"{stop:g}"
            readout = slider.locator("xpath=..").locator(".specdec-readout")
            assert readout.inner_text() == f"{stop:g}"


def test_keyboard_reaches_every_figure(grid: Grid) -> None:
    """All 42 by arrow keys: its k and T, what its text says, and no two alike."""
    drawings, captions = set(), set()
    for k, temperature in product(KS, TEMPERATURES):
        caption = grid.stand(k, temperature)
        count, text = written(k, temperature)
        assert f"Six calls wrote {count} tokens: “{text}”" in caption
        captions.add(caption)
        drawings.add(grid.box.locator("svg").inner_html())
    assert len(captions) == len(drawings) == len(KS) * len(TEMPERATURES)


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
    words = grid.box.locator("svg").text_content()
    for each in rounds(k, temperature):
        for piece in pair().tokenizer.pieces(each.emitted):
            assert piece.strip() in words


def test_mouse_moves_both(grid: Grid) -> None:
    grid.stand(1, 0)
    mouse = grid.page.mouse
    mouse.move(*place(grid.k, 0, len(KS)))
    mouse.down()
    for index in (1, 3, 5, 2):
        mouse.move(*place(grid.k, index, len(KS)), steps=4)
        grid.shown(KS[index], 0)
    mouse.up()
    for index in (6, 2, 4):
        mouse.click(*place(grid.temperature, index, len(TEMPERATURES)))
        grid.shown(3, TEMPERATURES[index])


def test_the_caption_is_announced(grid: Grid) -> None:
    caption = grid.box.locator("figcaption").element_handle()
    assert caption.get_attribute("aria-live") == "polite"
    grid.stand(6, 0.8)
    assert caption.inner_text().startswith("k = 6, T = 0.8: ")


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


def test_it_fits_a_telephone(open_page: Callable[..., Visit]) -> None:
    narrow = open_page(PAGE, NARROW)
    grid = Grid(narrow.page)
    grid.stand(8, 1.5)
    box = grid.box.locator("svg").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= NARROW["width"]
    width = narrow.page.evaluate("document.documentElement.scrollWidth")
    assert width <= NARROW["width"]
    assert narrow.foreign == []
    narrow.page.close()


def test_it_is_light(site: Path) -> None:
    html = (site / PAGE).read_text(encoding="utf-8")
    state = re.search(
        r'<script type="application/vnd.jupyter.widget-state\+json">(.*?)</script>',
        html,
        re.DOTALL,
    )
    assert state is not None
    assert len(gzip.compress(state[1].encode())) <= MAX_DATA
