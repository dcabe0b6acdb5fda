"""Faulty code beside the right one, and a figure of what it does; no kernel needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import traitlets
from matplotlib.figure import Figure

from ._base import Sliders, Value, page_file, page_script, position, slider
from .figures import as_svg


class Exhibit(NamedTuple):
    """One piece of a gallery.

    right, wrong
        lines of code as they are, and as they are with a fault.
    figure, text
        a matplotlib figure of what the fault does, and what it shows, with its numbers;
        the text is also shown below the figure.
    """

    right: str
    wrong: str
    figure: Figure
    text: str


class Gallery(Sliders):
    """Exhibits to choose from by their names, which are those of one slider's stops."""

    _esm = page_script("gallery.js")
    _css = page_file("widgets.css") + page_file("gallery.css")
    codes = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    figures = traitlets.List(traitlets.Unicode()).tag(sync=True)
    descriptions = traitlets.List(traitlets.Unicode()).tag(sync=True)


def gallery(
    tell: Callable[[Value], Exhibit],
    values: Sequence[Value],
    *,
    label: str,
    start: Value | None = None,
    show: Callable[[Value], str] = str,
) -> Gallery:
    """A list to choose from that shows ``tell(value)`` for each of ``values``.

    tell
        called once for each value, here and now.
    values
        at least two, in the order of the list; ``start`` is the one shown first.
    label
        what is chosen; the visible and the spoken name of the list.
    show
        how a value reads in the list.
    """
    values = list(values)
    index = position("values", values, start)
    exhibits = list(map(tell, values))
    return Gallery(
        sliders=[slider(label, values, show)],
        indices=[index],
        codes=[[exhibit.right, exhibit.wrong] for exhibit in exhibits],
        figures=[as_svg(exhibit.figure, exhibit.text) for exhibit in exhibits],
        descriptions=[exhibit.text for exhibit in exhibits],
    )
