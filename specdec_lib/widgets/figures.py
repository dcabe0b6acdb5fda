"""A slider over figures that are drawn beforehand, so that it needs no kernel.

The slider and the figure are linked in the page itself: on the published page, where no
Python runs, the same widget moves in the same way.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

Value = Any


def figure_slider(
    draw: Callable[[Value], Figure],
    values: Sequence[Value],
    *,
    label: str,
    describe: Callable[[Value], str],
    start: Value | None = None,
    show: Callable[[Value], str] = str,
) -> ipywidgets.Widget:
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
    if len(values) < 2:
        raise ValueError(f"values must be at least two, got {len(values)}")
    if start is not None and start not in values:
        raise ValueError(f"start must be one of values, got {start!r}")
    index = 0 if start is None else values.index(start)
    pages = []
    for value in values:
        text = describe(value)
        pages.append(
            ipywidgets.HTML(
                f'<figure class="specdec-figure" style="margin:0">'
                f"{_svg(draw(value), text)}"
                # The colour of the widget, which is readable in dark pages too.
                f'<figcaption aria-live="polite" style="color:inherit">'
                f"{html.escape(text)}</figcaption>"
                "</figure>"
            )
        )
    stack = ipywidgets.Stack(children=pages, selected_index=index)
    slider = ipywidgets.SelectionSlider(
        options=[(show(value), i) for i, value in enumerate(values)],
        index=index,
        description=label,
        continuous_update=True,
        style={"description_width": "initial"},
        layout={"width": "min(100%, 32rem)"},
    )
    ipywidgets.jslink((slider, "index"), (stack, "selected_index"))
    return ipywidgets.VBox([slider, stack])


def _svg(figure: Figure, text: str) -> str:
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
