"""The table of speeds as a figure: measured beside predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import plots
from .speeds import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def speeds_against_k(rows: Sequence[Row], *, ax: Axes | None = None) -> Figure:
    """Measured and predicted speedup against draft length, a series for each draft.

    Markers with bars: measured, and the interval over prompts. Lines: what the cost
    model says for the rounds that came. A draft whose length is chosen on the way is a
    marker at the right end. ``rows`` as of :func:`measure_speeds`.
    """
    figure, ax = plots._figure(ax)
    guessed = [row for row in rows if row["draft"]]
    drafts = list(dict.fromkeys(row["draft"] for row in guessed))
    ks = sorted({row["k"] for row in guessed if row["k"] is not None})
    chosen = any(row["k"] is None for row in guessed)
    places = {k: i for i, k in enumerate([*ks, None] if chosen else ks)}
    for name, mark in zip(drafts, plots.SERIES, strict=False):
        own = [r for r in guessed if r["draft"] == name and r["speedup"] is not None]
        shift = (drafts.index(name) - (len(drafts) - 1) / 2) * 0.09
        at = [places[row["k"]] + shift for row in own]
        low, high = (
            [0.0 if row[end] is None else abs(row[end] - row["speedup"]) for row in own]
            for end in ("low", "high")
        )
        ax.errorbar(
            at,
            [row["speedup"] for row in own],
            yerr=[low, high],
            color=mark[0],
            marker=mark[1],
            linestyle="none",
            capsize=3,
            elinewidth=1.2,
            label=name,
        )
        predicted = [(x, r["predicted_speedup"]) for x, r in zip(at, own, strict=True)]
        known = [(x, y) for x, y in predicted if y is not None]
        if len(known) > 1:
            xs, ys = zip(*known, strict=True)
            ax.plot(xs, ys, color=mark[0], linestyle=mark[2], marker="")
    ax.axhline(1.0, color=plots.NEUTRAL, linewidth=1.0)
    ax.set(xlabel="draft length k (tokens)", ylabel="speedup (times)")
    ax.set_ylim(bottom=0)
    plots._finish(ax, range(len(places)))
    ax.set_xticklabels(["chosen" if k is None else str(k) for k in places])
    return figure
