"""The temperature slider of chapter 5, on the built page, where no Python runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from site_kit import NARROW, Visit, place

import specdec_lib as sd

pytestmark = pytest.mark.browser

PAGE = "notebooks/05_exact_sampling.html"
TEMPERATURES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
START = TEMPERATURES.index(1.0)
P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])


@pytest.fixture(scope="module")
def chapter(open_page: Callable[..., Visit]) -> Iterator[Visit]:
    visit = open_page(PAGE)
    yield visit
    visit.page.close()


class Slider:
    """The slider and the figure it moves, as a reader meets them."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.handle = page.get_by_role("slider", name="Temperature T")
        self.handle.wait_for()
        self.handle.scroll_into_view_if_needed()

    @property
    def captions(self) -> list[str]:
        """Every caption that can be seen; there should be one."""
        return [
            caption.inner_text()
            for caption in self.page.locator(".specdec-figure figcaption").all()
            if caption.is_visible()
        ]

    def press(self, key: str) -> None:
        self.handle.focus()
        self.page.keyboard.press(key)

    def go_to_start(self) -> None:
        """To temperature 0, whatever a test before has left."""
        self.press("Home")
        self.shows(0)

    def shows(self, index: int) -> str:
        """The caption at ``index``, once it is the one that is shown."""
        wanted = f"Temperature {TEMPERATURES[index]:g}:"
        self.page.wait_for_function(
            """wanted => [...document.querySelectorAll('.specdec-figure figcaption')]
                .some(c => c.offsetParent && c.innerText.startsWith(wanted))""",
            arg=wanted,
            timeout=5000,
        )
        captions = self.captions
        assert len(captions) == 1, captions
        return captions[0]


@pytest.fixture
def slider(chapter: Visit) -> Slider:
    return Slider(chapter.page)


def numbers(caption: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.\d{3}", caption)]


def expected(temperature: float) -> list[float]:
    """p, q, accepted and rejected, straight from the definitions."""
    if temperature == 0:
        p, q = np.array([1.0, 0, 0]), np.array([0, 1.0, 0])
    else:
        p, q = P ** (1 / temperature), Q ** (1 / temperature)
        p, q = p / p.sum(), q / q.sum()
    overlap = np.minimum(p, q).sum()
    library = sd.Sampler(temperature=temperature)
    with np.errstate(divide="ignore"):
        assert np.allclose(library(np.log(P)), p)
        assert np.isclose(
            sd.theory.acceptance(library(np.log(P)), library(np.log(Q))), overlap
        )
    return [*p, *q, overlap, 1 - overlap]


def test_it_starts_at_temperature_one(chapter: Visit) -> None:
    """Before anything is touched."""
    text = Slider(chapter.page).shows(START)
    assert numbers(text) == pytest.approx([*P, *Q, 0.7, 0.3], abs=5e-4)


def test_arrow_keys_walk_through_all_temperatures(slider: Slider) -> None:
    slider.go_to_start()
    for index, temperature in enumerate(TEMPERATURES):
        if index:
            slider.press("ArrowRight")
        text = slider.shows(index)
        assert numbers(text) == pytest.approx(expected(temperature), abs=5.1e-4)
    slider.press("ArrowRight")  # it ends there
    slider.shows(len(TEMPERATURES) - 1)
    slider.press("ArrowLeft")
    slider.shows(len(TEMPERATURES) - 2)


def test_the_focus_stays_on_the_slider(slider: Slider) -> None:
    slider.go_to_start()
    for index in (1, 2, 3):
        slider.page.keyboard.press("ArrowRight")  # without focusing again
        slider.shows(index)


def test_the_mouse_drags_it(slider: Slider) -> None:
    slider.go_to_start()
    mouse = slider.page.mouse
    mouse.move(*place(slider.handle, 0, len(TEMPERATURES)))
    mouse.down()
    for index in (2, 5, 8, 4):
        mouse.move(*place(slider.handle, index, len(TEMPERATURES)), steps=5)
        text = slider.shows(index)
        wanted = expected(TEMPERATURES[index])
        assert numbers(text) == pytest.approx(wanted, abs=5.1e-4)
    mouse.up()
    slider.shows(4)


def test_a_click_on_the_track_moves_it(slider: Slider) -> None:
    slider.go_to_start()
    slider.page.mouse.click(*place(slider.handle, 6, len(TEMPERATURES)))
    slider.shows(6)


def test_the_figure_changes_with_its_caption(slider: Slider) -> None:
    """The bars themselves: their heights in the drawing, in the ratio of min(p, q)."""
    slider.go_to_start()
    drawings = []
    for index, _ in enumerate(TEMPERATURES):
        if index:
            slider.press("ArrowRight")
        text = slider.shows(index)
        svg = slider.page.locator(".specdec-figure svg:visible")
        assert svg.count() == 1
        assert svg.get_attribute("role") == "img"
        assert svg.get_attribute("aria-label") == text
        box = svg.bounding_box()
        assert box["width"] > 300
        assert box["height"] > 100
        drawings.append(svg.inner_html())
    assert len(set(drawings)) == len(TEMPERATURES)


def test_green_bars_have_the_height_of_the_overlap(slider: Slider) -> None:
    """Read from the picture: all three bars as drawn, against min(p, q)."""
    slider.go_to_start()
    for index, temperature in enumerate(TEMPERATURES):
        if index:
            slider.press("ArrowRight")
        slider.shows(index)
        heights = slider.page.evaluate(
            """() => {
                const svg = [...document.querySelectorAll('.specdec-figure svg')]
                    .find((s) => s.getBoundingClientRect().width > 0);
                const axis = svg.querySelector('#axes_1 #patch_2 path').getBBox();
                return [...svg.querySelectorAll('#axes_1 > g > path')]
                    .filter((b) => /fill: #009e73/i.test(b.getAttribute('style')))
                    .map((b) => b.getBBox())
                    .map((b) => b.height / axis.height);
            }"""
        )
        p, q = np.split(np.array(expected(temperature)[:6]), 2)
        bars = [height * 1.02 for height in heights[:3]]  # the axis ends at 1.02
        assert bars == pytest.approx(list(np.minimum(p, q)), abs=0.005)


def test_it_fits_a_telephone(open_page: Callable[..., Visit]) -> None:
    visit = open_page(PAGE, NARROW)
    slider = Slider(visit.page)
    slider.press("ArrowRight")
    slider.shows(START + 1)
    box = visit.page.locator(".specdec-figure svg:visible").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= NARROW["width"]
    visit.page.close()


def test_it_is_light(site: Any) -> None:
    """Nine figures, under 300 kB on the page."""
    html = (site / PAGE).read_text(encoding="utf-8")
    state = re.search(
        r'<script type="application/vnd.jupyter.widget-state\+json">(.*?)</script>',
        html,
        re.DOTALL,
    )
    assert state is not None
    assert len(state[1]) < 300_000


def test_nothing_failed_on_the_way(chapter: Visit, slider: Slider) -> None:
    slider.go_to_start()
    assert chapter.errors == []
    assert chapter.foreign == []
    assert chapter.missing == []
