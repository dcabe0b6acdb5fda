"""The slider over figures: what it holds, before any page shows it."""

import re

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure

from specdec_lib.widgets import figure_slider

VALUES = (0, 0.5, 2)


def draw(value):
    fig, ax = plt.subplots()
    ax.bar([0, 1], [value, 1], hatch="/", label="bars, as text")
    ax.legend()
    return fig


def describe(value):
    return f'value {value} < "3"'


def slider(**options):
    arguments = {"label": "Value", "describe": describe} | options
    return figure_slider(draw, VALUES, **arguments)


def test_one_page_for_each_value_each_with_its_text():
    widget = slider()
    assert len(widget.figures) == len(VALUES)
    assert widget.descriptions == [describe(value) for value in VALUES]
    for page, value in zip(widget.figures, VALUES, strict=True):
        text = f"value {value} &lt; &quot;3&quot;"
        assert page.startswith(f'<svg role="img" aria-label="{text}"')
        assert page.count("<svg") == 1
    assert len(set(widget.figures)) == len(VALUES)
    assert widget.indices == [0]


def test_control_shows_label_values_and_start():
    widget = slider(start=2, show="T = {}".format)
    assert widget.sliders == [
        {"label": "Value", "texts": ["T = 0", "T = 0.5", "T = 2"]}
    ]
    assert widget.indices == [2]


def test_all_that_the_page_needs_is_in_the_state():
    """No kernel's callback moves it: the page has no kernel."""
    widget = slider()
    state = widget.get_state()
    assert {"sliders", "indices", "figures", "descriptions"} <= set(state)
    assert "export default" in state["_esm"]
    assert not re.search(r"^\s*import\b|\bimport\(", state["_esm"], re.M)
    assert ".specdec-slider" in state["_css"]
    assert not re.search(r"https?://(?!www\.w3\.org)|url\(", state["_css"])


def test_repr_is_the_same_in_every_run():
    assert repr(slider(start=0.5)) == "<Figures Value: 0.5>"


def test_same_drawing_every_time_and_nothing_of_its_maker():
    first, second = slider().figures, slider().figures
    assert first == second
    for page in first:
        assert "matplotlib.org" not in page
        assert "<metadata" not in page
        assert "bars, as text</text>" in page


def test_figures_are_closed():
    plt.close("all")
    slider()
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    "values, options, message",
    (
        ((1,), {}, "values must be at least two, got 1"),
        ((1, 2), {"start": 3}, "start must be one of values, 1, 2, got 3"),
    ),
)
def test_errors_come_before_any_drawing(values, options, message):
    def never(value) -> Figure:
        raise AssertionError("drawn")

    with pytest.raises(ValueError, match=message):
        figure_slider(never, values, label="Value", describe=str, **options)
