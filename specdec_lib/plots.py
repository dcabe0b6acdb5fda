"""How figures look: one palette through the whole book.

Colours are those of Okabe and Ito, told apart with every kind of colour vision. The
target is always blue, the draft always orange; whatever colour says, a marker, a dash
or a hatch says too.
"""

from __future__ import annotations

from typing import Any

TARGET = "#0072B2"  # blue
DRAFT = "#E69F00"  # orange
ACCEPTED = "#009E73"  # green
REJECTED = "#D55E00"  # vermilion
RESIDUAL = "#CC79A7"  # purple
OTHER = "#56B4E9"  # sky blue
NEUTRAL = "#555555"

STYLE: dict[Any, Any] = {
    "figure.figsize": (7.0, 3.6),
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "savefig.facecolor": "white",
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    # SVG that is text, and the same every time.
    "svg.fonttype": "none",
    "svg.hashsalt": "specdec",
}


def use_style() -> None:
    """Set matplotlib to the book's style, and notebooks to sharp pictures."""
    import matplotlib
    from cycler import cycler

    colours = [TARGET, DRAFT, ACCEPTED, REJECTED, RESIDUAL, OTHER]
    matplotlib.rcParams.update(STYLE | {"axes.prop_cycle": cycler(color=colours)})
    try:
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:  # not in a notebook
        return
    set_matplotlib_formats("retina")  # type: ignore[no-untyped-call]
