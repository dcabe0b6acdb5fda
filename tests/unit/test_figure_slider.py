"""The slider over figures: what it holds, before any page shows it."""

import ipywidgets
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


def parts(widget):
    """The slider and the pages that it turns."""
    control, stack = widget.children
    return control, stack, [page.value for page in stack.children]


def test_one_page_for_each_value_each_with_its_text():
    control, stack, pages = parts(slider())
    assert len(pages) == len(VALUES)
    for page, value in zip(pages, VALUES, strict=True):
        text = f"value {value} &lt; &quot;3&quot;"
        assert page.count(text) == 2  # the name of the drawing, and below it
        assert f'role="img" aria-label="{text}"' in page
        assert page.count("<svg") == 1
    assert len(set(pages)) == len(VALUES)
    assert (control.index, stack.selected_index) == (0, 0)


def test_control_shows_label_values_and_start():
    control, stack, _ = parts(slider(start=2, show="T = {}".format))
    assert control.description == "Value"
    assert [label for label, _ in control.options] == ["T = 0", "T = 0.5", "T = 2"]
    assert (control.index, stack.selected_index) == (2, 2)


def test_slider_and_pages_are_linked_in_the_page_itself(monkeypatch):
    """A link of the browser's, not of the kernel's: the page has no kernel."""
    links = []
    monkeypatch.setattr(ipywidgets, "jslink", lambda a, b: links.append((a, b)))
    control, stack, _ = parts(slider())
    assert links == [((control, "index"), (stack, "selected_index"))]


def test_same_drawing_every_time_and_nothing_of_its_maker():
    first, second = parts(slider())[2], parts(slider())[2]
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
        ((1, 2), {"start": 3}, "start must be one of values, got 3"),
    ),
)
def test_errors_come_before_any_drawing(values, options, message):
    def never(value) -> Figure:
        raise AssertionError("drawn")

    with pytest.raises(ValueError, match=message):
        figure_slider(never, values, label="Value", describe=str, **options)
