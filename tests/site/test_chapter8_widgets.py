"""The explorer and the grid of chapter 8, on the built page, where no Python runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from site_kit import NARROW, WIDE, Visit, place

import specdec_lib as sd
from specdec_lib import experiments as ex
from specdec_lib import theory
from specdec_lib.pair import Pair, book_pair
from specdec_lib.text import load_corpus

pytestmark = pytest.mark.browser

PAGE = "notebooks/08_speedup_against_k.html"
KS, TEMPERATURES = (1, 2, 3, 4, 6, 8), (0.6, 0.8, 1.0, 1.2)
DRAFT_COST = 0.1
EXPLORER = ("Draft length k", "Acceptance rate α", "Draft cost c", "Verification slope")


@pytest.fixture(scope="module")
def open_chapter(open_page: Callable[..., Visit]) -> Callable[..., Visit]:
    def open_(viewport: dict[str, int] = WIDE) -> Visit:
        visit = open_page(PAGE, viewport)
        for name, count in (("explorer", 4), ("grid", 2)):
            widget(visit, name).locator("input").nth(count - 1).wait_for(timeout=10_000)
        return visit

    return open_


@pytest.fixture(scope="module")
def visit(open_chapter: Callable[..., Visit]) -> Iterator[Visit]:
    opened = open_chapter()
    yield opened
    assert (opened.errors, opened.foreign, opened.missing) == ([], [], [])
    opened.page.close()


def widget(visit: Visit, name: str) -> Any:
    """The explorer, which lists its figures, or the grid, which does not."""
    listed = visit.page.locator("dl")
    every = visit.page.locator(".specdec-widget")
    return (
        every.filter(has=listed) if name == "explorer" else every.filter(has_not=listed)
    )


def control(visit: Visit, name: str, label: str) -> Any:
    return widget(visit, name).get_by_role("slider", name=label, exact=True)


def stand(slider: Any, index: int) -> None:
    """Move it by keyboard from where it is."""
    slider.focus()
    now = int(slider.input_value())
    for _ in range(abs(index - now)):
        slider.press("ArrowRight" if index > now else "ArrowLeft")
    assert slider.input_value() == str(index)


class TestExplorer:
    def check(self, visit: Visit, k: int, alpha: float, c: float, slope: float) -> None:
        def verify(n: int) -> float:
            return 1 + slope * (n - 1)

        curve = [theory.speedup(alpha, i, c, verify) for i in range(17)]
        tokens = theory.expected_tokens(alpha, k)
        best = theory.best_k(alpha, c, verify, max_k=16)
        box = widget(visit, "explorer")
        shown = {
            each.get_attribute("data-name"): json.loads(
                each.get_attribute("data-values")
            )
            for each in box.locator("dd").all()
        }
        assert shown["Tokens per call"] == pytest.approx([tokens], rel=0, abs=1e-9)
        assert shown["Speedup"] == pytest.approx([curve[k]], rel=0, abs=1e-9)
        assert shown["Best k"] == pytest.approx([best, max(curve)], rel=0, abs=1e-9)
        caption = box.locator("figcaption").inner_text()
        assert f"{tokens:.2f} tokens per call, speedup {curve[k]:.2f}." in caption
        assert f"best k is {best}, with speedup {max(curve):.2f}" in caption
        svg = box.locator("svg")
        assert svg.get_attribute("aria-label").endswith(caption)
        assert f"best k = {best}" in svg.text_content()
        points = svg.locator(".specdec-curve").get_attribute("points").split()
        _, y = np.array([p.split(",") for p in points], dtype=float).T
        floor = float(svg.locator(".specdec-now").get_attribute("y1"))
        heights = (floor - y) / (floor - y[0])  # the speedup at k = 0 is 1
        assert heights == pytest.approx(np.array(curve), rel=2e-3)

    def test_it_starts_at_the_books_pair(
        self, open_chapter: Callable[..., Visit]
    ) -> None:
        fresh = open_chapter()
        self.check(fresh, 4, 0.77, 0.1, 0.0)
        fresh.page.close()

    def test_keyboard_moves_each_slider(self, visit: Visit) -> None:
        sliders = [control(visit, "explorer", label) for label in EXPLORER]
        for at in ((4, 77, 0, 10), (4, 77, 10, 0), (7, 70, 12, 3), (1, 78, 6, 1)):
            for slider, index in zip(sliders, at, strict=True):
                stand(slider, index)
            k, *rest = at
            self.check(visit, k, *(index / 100 for index in rest))

    def test_what_the_chapter_says_to_try(self, visit: Visit) -> None:
        """c and s count by their sum; where it reaches alpha, guessing never pays."""
        sliders = [control(visit, "explorer", label) for label in EXPLORER]
        curves = []
        for cost, slope in ((0, 10), (10, 0)):
            for slider, index in zip(sliders, (4, 77, cost, slope), strict=True):
                stand(slider, index)
            curve = widget(visit, "explorer").locator(".specdec-curve")
            curves.append(curve.get_attribute("points"))
        assert curves[0] == curves[1]
        for cost, pays in ((76, True), (77, False)):
            stand(sliders[2], cost)
            caption = widget(visit, "explorer").locator("figcaption").inner_text()
            assert caption.endswith("guessing does not pay.") != pays

    def test_mouse_moves_it(self, visit: Visit) -> None:
        for label, index in zip(EXPLORER, (5, 77, 10, 0), strict=True):
            stand(control(visit, "explorer", label), index)
        slider, mouse = control(visit, "explorer", EXPLORER[1]), visit.page.mouse
        mouse.move(*place(slider, 77, 101))
        mouse.down()
        for index in (90, 30, 60):
            mouse.move(*place(slider, index, 101), steps=4)
            now = int(slider.input_value())
            assert abs(now - index) <= 2
            self.check(visit, 5, now / 100, 0.1, 0.0)
        mouse.up()


@pytest.fixture(scope="module")
def pair() -> Pair:
    return book_pair()


@pytest.fixture(scope="module")
def documents(pair: Pair) -> dict[str, Any]:
    held_out = load_corpus().held_out.documents
    return {each.name: pair.tokenizer.encode(each.text) for each in held_out}


@pytest.fixture(scope="module")
def captions(pair: Pair, documents: dict[str, Any]) -> dict[tuple[int, float], str]:
    """What must stand below each figure of the outer temperatures, decoded anew."""
    prompts = ex.cut_prompts(documents, count=20, length=16)
    start = documents["15_school_essays"][277 : 277 + 16]
    found = {}
    for temperature in (TEMPERATURES[0], TEMPERATURES[-1]):
        sampler = sd.Sampler(temperature=temperature)
        draft = sd.ModelDraft(pair.draft, sampler)
        records = ex.Sweep(
            pair.target, {"order 2": pair.draft}, prompts, ks=KS,
            temperatures=(temperature,), max_new_tokens=80,
        ).run()  # fmt: skip
        alpha = sum(r["overlap"] for r in records) / sum(r["tested"] for r in records)
        for k in KS:
            run = sd.generate(
                pair.target, start, draft=draft, k=k, sampler=sampler,
                max_new_tokens=60, seed=1,
            )  # fmt: skip
            calls, drafted = len(run.rounds), run.metrics.drafted
            some = [r for r in records if r["k"] == k]
            units = sum(r["target_calls"] + DRAFT_COST * r["drafted"] for r in some)
            measured = sum(r["emitted"] for r in some) / units
            coin = theory.expected_tokens(alpha, k) / (1 + k * DRAFT_COST)
            found[k, temperature] = (
                f"60 tokens in {calls} calls and {calls + DRAFT_COST * drafted:.1f} "
                f"units of time. Over 20 texts the speedup is {measured:.2f} "
                f"(…), by formula {coin:.2f}."
            )
    return found


class TestGrid:
    def check(self, visit: Visit, k: int, temperature: float) -> str:
        """The caption, once it is that of the two settings."""
        box = widget(visit, "grid")
        visit.page.wait_for_function(
            """wanted => [...document.querySelectorAll('.specdec-widget figcaption')]
                .some(caption => caption.innerText.startsWith(wanted))""",
            arg=f"Draft length {k}, temperature {temperature:g}: ",
            timeout=5000,
        )
        svg = box.locator("svg:visible")
        assert svg.count() == 1
        caption: str = box.locator("figcaption").inner_text()
        assert svg.get_attribute("aria-label") == caption
        assert f"k = {k}" in svg.text_content()
        numbers = [float(x) for x in re.findall(r"\d+\.\d\d", caption)]
        measured, low, high, _ = numbers
        assert low <= measured <= high
        return caption

    def test_keyboard_reaches_every_figure(
        self, visit: Visit, captions: dict[tuple[int, float], str]
    ) -> None:
        seen = set()
        for i, temperature in enumerate(TEMPERATURES):
            stand(control(visit, "grid", "Temperature T"), i)
            for j, k in enumerate(KS):
                stand(control(visit, "grid", "Draft length k"), j)
                caption = self.check(visit, k, temperature)
                seen.add(widget(visit, "grid").locator("svg:visible").inner_html())
                wanted = captions.get((k, temperature))
                if wanted is not None:
                    said = re.sub(r"\(.*?\)", "(…)", caption)
                    assert said.endswith(wanted)
        assert len(seen) == len(KS) * len(TEMPERATURES)

    def test_mouse_drags_and_clicks(self, visit: Visit) -> None:
        k_slider = control(visit, "grid", "Draft length k")
        t_slider = control(visit, "grid", "Temperature T")
        stand(k_slider, 0)
        stand(t_slider, 0)
        mouse = visit.page.mouse
        mouse.move(*place(k_slider, 0, len(KS)))
        mouse.down()
        for index in (2, 5, 3):
            mouse.move(*place(k_slider, index, len(KS)), steps=3)
            self.check(visit, KS[index], TEMPERATURES[0])
        mouse.up()
        mouse.click(*place(t_slider, 2, len(TEMPERATURES)))
        self.check(visit, KS[3], TEMPERATURES[2])


def test_it_fits_a_telephone(open_chapter: Callable[..., Visit]) -> None:
    visit = open_chapter(NARROW)
    for part in ("input[type=range]", "svg:visible"):
        for each in visit.page.locator(f".specdec-widget {part}").all():
            box = each.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= NARROW["width"]
    assert (visit.errors, visit.foreign, visit.missing) == ([], [], [])
    visit.page.close()
