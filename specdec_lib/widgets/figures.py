"""Sliders over figures that are drawn beforehand, so that they need no kernel.

The figures and the sliders are one widget whose other half runs in the page: on the
published page, where no Python runs, it moves in the same way.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import matplotlib.pyplot as plt
import traitlets
from matplotlib.figure import Figure

from ._base import Sliders, Value, page_script, position, slider


class Figures(Sliders):
    """Figures for all combinations of the sliders' stops; the last slider runs first.

    figures, descriptions
        SVG, and the text that says what it shows.
    """

    _esm = page_script("figures.js")
    figures = traitlets.List(traitlets.Unicode()).tag(sync=True)
    descriptions = traitlets.List(traitlets.Unicode()).tag(sync=True)


def figure_slider(
    draw: Callable[[Value], Figure],
    values: Sequence[Value],
    *,
    label: str,
    describe: Callable[[Value], str],
    start: Value | None = None,
    show: Callable[[Value], str] = str,
) -> Figures:
    """A slider that shows ``draw(value)`` for each of ``values``.

    draw
        makes a matplotlib figure; it is called once for each value, here and now.
    values
        at least two, in the order of the slider; ``start`` is the first one shown.
    label
        what the slider moves; its visible and its spoken name.
    describe
        the alternative text of a figure: what it shows, with its numbers. It is also
        shown below the figure.
    show
        how a value reads beside the slider.
    """
    values = list(values)
    index = position("values", values, start)
    return _figures(draw, [values], describe, [slider(label, values, show)], [index])


def figure_grid(
    draw: Callable[[Value, Value], Figure],
    ks: Sequence[Value],
    temperatures: Sequence[Value],
    describe: Callable[[Value, Value], str],
    *,
    start: tuple[Value, Value] | None = None,
    labels: tuple[str, str] = ("Draft length k", "Temperature T"),
    show: tuple[Callable[[Value], str], Callable[[Value], str]] = (str, "{:g}".format),
) -> Figures:
    """Two sliders that show ``draw(k, temperature)`` for all of ``ks`` and
    ``temperatures``.

    As :func:`figure_slider` with two values in place of one: ``draw`` and ``describe``
    are called with both, ``start`` is the pair shown first, ``labels`` and ``show`` are
    those of the two sliders. Other quantities than k and T can stand in their places.

    Every figure is stored in the page. Some 50 of them with two panels are about 100 kB
    when compressed; a figure of thousands of points is too much.
    """
    ks, temperatures = list(ks), list(temperatures)
    first, second = (None, None) if start is None else start
    indices = [
        position("ks", ks, first),
        position("temperatures", temperatures, second),
    ]
    sliders = [
        slider(label, values, text)
        for label, values, text in zip(labels, (ks, temperatures), show, strict=True)
    ]
    return _figures(draw, [ks, temperatures], describe, sliders, indices)


def _figures(
    draw: Callable[..., Figure],
    stops: Sequence[Sequence[Value]],
    describe: Callable[..., str],
    sliders: list[dict[str, Any]],
    indices: list[int],
) -> Figures:
    descriptions, figures = [], []
    for values in product(*stops):
        descriptions.append(describe(*values))
        figures.append(as_svg(draw(*values), descriptions[-1]))
    return Figures(
        sliders=sliders, indices=indices, figures=figures, descriptions=descriptions
    )


def as_svg(figure: Figure, text: str) -> str:
    """The figure as inline SVG with ``text`` as its name; the figure is closed."""
    buffer = io.StringIO()
    # Text as text, and the same names of parts every time.
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "specdec"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    # Who drew it, and with which version, is of no use to a page.
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # A hundredth of a point is less than anybody sees, and half of the weight.
    svg = re.sub(r'(?<= )(?:d|x|y|points)="[^"]*"', _rounded, svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    width = f"{float(size[1]):.0f}pt" if size else "100%"
    svg = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", svg, count=1)
    name = html.escape(text, quote=True)
    return svg.replace(
        "<svg",
        f'<svg role="img" aria-label="{name}" style="display:block;margin:auto;'
        f"max-width:100%;height:auto;"
        f'width:{width}"',
        1,
    )


def _rounded(attribute: re.Match[str]) -> str:
    return re.sub(r"\d+\.\d{3,}", lambda n: f"{float(n[0]):.2f}", attribute[0])
