"""The temperature slider of chapter 5, on the built page, where no Python runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from site_kit import MAX_DATA, Visit, Widget, three_decimals, widget_size

import specdec_lib as sd

pytestmark = pytest.mark.browser

PAGE = "notebooks/05_exact_sampling.html"
LABEL = "Temperature T"
TEMPERATURES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])


class Slider(Widget):
    """The slider and the figure it moves."""

    def __init__(self, visit: Visit) -> None:
        super().__init__(visit.page, {LABEL: TEMPERATURES})

    def check(self, temperature: float) -> None:
        """The caption is that of the temperature, and says the right numbers."""
        caption = self.caption()
        assert caption.startswith(f"Temperature {temperature:g}:")
        wanted = expected(temperature)
        assert three_decimals(caption) == pytest.approx(wanted, abs=5.1e-4)


@pytest.fixture
def slider(chapter: Visit) -> Slider:
    return Slider(chapter)


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


def test_it_starts_at_temperature_one(fresh: Visit) -> None:
    """Before anything is touched."""
    slider = Slider(fresh)
    slider.check(1.0)
    wanted = [*P, *Q, 0.7, 0.3]
    assert three_decimals(slider.caption()) == pytest.approx(wanted, abs=5e-4)


def test_arrow_keys_walk_through_all_temperatures(slider: Slider) -> None:
    for (temperature,), _ in slider.everywhere():
        slider.check(temperature)
        box = slider.svg.bounding_box()
        assert box["width"] > 300
        assert box["height"] > 100
    slider.page.keyboard.press("ArrowRight")  # it ends there
    slider.check(TEMPERATURES[-1])
    slider.page.keyboard.press("ArrowLeft")
    slider.check(TEMPERATURES[-2])
    slider.page.keyboard.press("Home")
    slider.check(TEMPERATURES[0])


def test_the_focus_stays_on_the_slider(slider: Slider) -> None:
    slider.stand(0.0)
    for temperature in TEMPERATURES[1:4]:
        slider.page.keyboard.press("ArrowRight")  # without focusing again
        slider.check(temperature)


def test_the_mouse_drags_it(slider: Slider) -> None:
    slider.stand(0.0)
    for temperature in slider.drag(LABEL, 0.0, 0.5, 1.5, 5.0, 1.0):
        slider.check(temperature)
    slider.check(1.0)


def test_a_click_on_the_track_moves_it(slider: Slider) -> None:
    slider.stand(0.0)
    slider.click(LABEL, 2.0)
    slider.check(2.0)


def test_green_bars_have_the_height_of_the_overlap(slider: Slider) -> None:
    """Read from the picture: all three bars as drawn, against min(p, q)."""
    for temperature in TEMPERATURES:
        slider.stand(temperature)
        heights = slider.svg.evaluate(
            """svg => {
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


def test_it_fits_a_telephone(telephone: Visit) -> None:
    slider = Slider(telephone)
    slider.stand(1.5)
    slider.check(1.5)
    slider.check_fits()


def test_it_is_light(site: Path) -> None:
    """The data of this widget and of the gallery of faults, compressed."""
    assert 0 < widget_size(site / PAGE) <= MAX_DATA
