"""How figures look: one palette through the whole book.

Colours are those of Okabe and Ito, told apart with every kind of colour vision. The
target is always blue, the draft always orange; whatever colour says, a marker, a dash
or a hatch says too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import theory
from .records import (
    Amount,
    Record,
    best_k_interval,
    call_cost,
    group_records,
    ratio,
    summarise,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TARGET = "#0072B2"  # blue
DRAFT = "#E69F00"  # orange
ACCEPTED = "#009E73"  # green
REJECTED = "#D55E00"  # vermilion
RESIDUAL = "#CC79A7"  # purple
OTHER = "#56B4E9"  # sky blue
NEUTRAL = "#555555"

# For several drafts, temperatures or rules in one figure: colour, marker and dash.
SERIES = (
    (ACCEPTED, "o", "-"),
    (RESIDUAL, "s", "--"),
    (OTHER, "^", "-."),
    (REJECTED, "D", ":"),
    (NEUTRAL, "v", (0, (5, 1, 1, 1, 1, 1))),
)

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


# Figures from the records of a sweep (specdec_lib.experiments). Markers with bars are
# measured, with the interval of a bootstrap over texts; lines are what theory says.

VerifyCost = Callable[[int], float] | None


def speedup_against_k(
    records: Sequence[Record],
    *,
    draft_cost: float,
    verify_cost: VerifyCost = None,
    series: str = "temperature",
    level: float = 0.95,
    ax: Axes | None = None,
) -> Figure:
    """Speedup by the cost model against draft length, one series for each ``series``.

    Markers: emitted tokens over :func:`specdec_lib.records.call_cost`. Lines:
    :func:`specdec_lib.theory.speedup` at one acceptance rate, the mean of 1 - TV over
    all contexts that the series judged. A ring marks the best measured k.
    """
    figure, ax = _figure(ax)

    def line(alpha: float, k: int) -> float:
        return theory.speedup(alpha, k, draft_cost, verify_cost)

    def cost(record: Record) -> float:
        return call_cost(record, draft_cost, verify_cost)

    _against_k(ax, records, "emitted", cost, line, series, level, ring=True)
    ax.axhline(1.0, color=NEUTRAL, linewidth=1.0)
    ax.set(xlabel="draft length k (tokens)", ylabel="speedup (times)")
    return figure


def tokens_against_k(
    records: Sequence[Record],
    *,
    series: str = "temperature",
    level: float = 0.95,
    ax: Axes | None = None,
) -> Figure:
    """Tokens per target call against draft length, one series for each ``series``.

    Lines: :func:`specdec_lib.theory.expected_tokens`, as in :func:`speedup_against_k`.
    """
    figure, ax = _figure(ax)
    line = theory.expected_tokens
    _against_k(ax, records, "emitted", "target_calls", line, series, level)
    ax.set(xlabel="draft length k (tokens)", ylabel="tokens per target call")
    return figure


def acceptance_by_position(
    records: Sequence[Record],
    *,
    series: str = "temperature",
    level: float = 0.95,
    ax: Axes | None = None,
) -> Figure:
    """Acceptance at each place in the draft, given that all before were accepted.

    One series for each value of the column ``series``.

    Markers: accepted / tested there. Lines: the mean of 1 - TV over the contexts that
    were judged there.
    """
    figure, ax = _figure(ax)
    most = max(record["k"] for record in records)
    for group, mark, shift in _series(records, series):
        places, rows, predicted = [], [], []
        for place in range(1, most + 1):
            if not any(record.get(f"tested_{place}") for record in group):
                break
            names = f"accepted_{place}", f"tested_{place}"
            rows += summarise(group, *names, by=(series,), level=level)
            predicted.append(_some(group, f"overlap_{place}", f"tested_{place}"))
            places.append(place)
        _bars(ax, places, rows, mark, shift)
        ax.plot(places, predicted, color=mark[0], linestyle=mark[2], marker="")
    ax.set(xlabel="place in the draft", ylabel="acceptance rate there")
    _finish(ax, range(1, most + 1))
    return figure


def acceptance_against_temperature(
    records: Sequence[Record],
    *,
    series: str = "draft",
    level: float = 0.95,
    ax: Axes | None = None,
) -> Figure:
    """Acceptance rate against temperature, one series for each ``series``.

    Markers: accepted / tested. Lines: the mean of 1 - TV over the contexts judged.
    """
    figure, ax = _figure(ax)
    for group, mark, _ in _series(records, series):
        by = (series, "temperature")
        rows = summarise(group, "accepted", "tested", by=by, level=level)
        predicted = summarise(group, "overlap", "tested", by=by, level=level)
        _bars(ax, [row["temperature"] for row in rows], rows, mark, 0.0)
        ax.plot(
            [row["temperature"] for row in predicted],
            [row["estimate"] for row in predicted],
            color=mark[0],
            linestyle=mark[2],
            marker="",
        )
    ax.set(xlabel="temperature", ylabel="acceptance rate")
    _finish(ax, None)
    return figure


def predicted_against_observed(
    records: Sequence[Record],
    *,
    by: Sequence[str] = ("draft", "temperature", "k"),
    series: str = "temperature",
    level: float = 0.95,
    ax: Axes | None = None,
) -> Figure:
    """Acceptance as measured against the mean of 1 - TV, a marker for each group.

    Where the prediction is right, bars cross the diagonal. ``by`` names the groups and
    must contain ``series``.
    """
    figure, ax = _figure(ax)
    ends: list[float] = []
    for group, mark, _ in _series(records, series):
        observed = summarise(group, "accepted", "tested", by=by, level=level)
        overlap = summarise(group, "overlap", "tested", by=by, level=level)
        predicted = [row["estimate"] for row in overlap]
        _bars(ax, predicted, observed, mark, 0.0)
        ends += [x for x in predicted if x is not None]
    ax.plot([min(ends), max(ends)], [min(ends), max(ends)], color=NEUTRAL, marker="")
    ax.set(
        xlabel="predicted: mean of 1 − TV where guesses were judged",
        ylabel="measured acceptance rate",
    )
    _finish(ax, None)
    return figure


def k_temperature_map(
    records: Sequence[Record],
    *,
    draft_cost: float,
    verify_cost: VerifyCost = None,
    level: float = 0.95,
    ax: Axes | None = None,
) -> Figure:
    """Measured speedup for each draft length and temperature, and its ridge.

    Each cell says its number. A ring marks the best measured k of each temperature; the
    bar below it spans the ks that are best in ``level`` of all draws of a bootstrap.
    The dashed line is the best k by theory, of those measured, at the mean of 1 - TV.
    ``records`` are of one draft: ValueError otherwise.
    """
    drafts = sorted({record["draft"] for record in records})
    if len(drafts) != 1:
        raise ValueError(f"records must be of one draft, got {drafts}")
    figure, ax = _figure(ax)
    ks = sorted({record["k"] for record in records})
    groups = group_records(records, ("temperature",))

    def cost(record: Record) -> float:
        return call_cost(record, draft_cost, verify_cost)

    from matplotlib.patheffects import withStroke

    edge = [withStroke(linewidth=3.5, foreground="black")]
    table, ridge = [], []
    for row, group in enumerate(groups.values()):
        speedups = {
            k: _some(each, "emitted", cost)
            for (k,), each in group_records(group, ("k",)).items()
        }
        if list(speedups) != ks:
            raise ValueError("records must have the same ks at every temperature")
        table.append([speedups[k] for k in ks])
        best = best_k_interval(group, draft_cost, verify_cost, level=level)
        at, low, high = (ks.index(int(k)) for k in best)
        kept = "measured best k, and its interval" if row == 0 else None
        ax.plot(
            at,
            row,
            "o",
            markersize=27,
            markerfacecolor="none",
            color="white",
            path_effects=edge,
        )
        ax.errorbar(
            at,
            row - 0.36,
            xerr=[[at - low], [high - at]],
            color="white",
            marker="o",
            markersize=4,
            capsize=3,
            path_effects=edge,
            label=kept,
        )
        alpha = ratio(group, "overlap", "tested")
        if alpha is not None:
            tokens = {k: theory.expected_tokens(min(alpha, 1.0), k) for k in ks}
            ridge.append(
                (theory.best_k_from_tokens(tokens, draft_cost, verify_cost), row)
            )
    lowest, highest = min(map(min, table)), max(map(max, table))
    image = ax.imshow(table, cmap="cividis", aspect="auto", origin="lower")
    for row, speeds in enumerate(table):
        for column, speed in enumerate(speeds):
            dark = speed < lowest + 0.5 * (highest - lowest)
            ax.text(
                column,
                row,
                f"{speed:.2f}",
                ha="center",
                va="center",
                color="white" if dark else "black",
                fontsize="small",
                zorder=4,
            )
    ax.plot(
        [ks.index(k) for k, _ in ridge],
        [row + 0.36 for _, row in ridge],
        color=REJECTED,
        linestyle="--",
        marker="D",
        path_effects=[withStroke(linewidth=3.5, foreground="white")],
        label="best k by theory",
    )
    ax.set(xlim=(-0.5, len(ks) - 0.5), ylim=(-0.5, len(groups) - 0.5))
    ax.grid(False)
    ax.set_xticks(range(len(ks)), [str(k) for k in ks])
    ax.set_yticks(range(len(groups)), [f"{key[0]:g}" for key in groups])
    ax.set(xlabel="draft length k (tokens)", ylabel="temperature")
    figure.colorbar(image, ax=ax, label="speedup (times)")
    ax.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=2,
        facecolor="#bbbbbb",
        frameon=True,
        framealpha=1.0,
        edgecolor="none",
        fontsize="small",
    )
    return figure


def _against_k(
    ax: Axes,
    records: Sequence[Record],
    numerator: Amount,
    denominator: Amount,
    line: Callable[[float, int], float],
    series: str,
    level: float,
    ring: bool = False,
) -> None:
    """Markers for a measured ratio by k, and ``line(alpha, k)`` over them."""
    ks = sorted({record["k"] for record in records})
    for group, mark, shift in _series(records, series):
        rows = summarise(group, numerator, denominator, by=(series, "k"), level=level)
        _bars(ax, [row["k"] for row in rows], rows, mark, shift)
        if ring:
            best = max(rows, key=lambda row: row["estimate"])
            ax.plot(
                best["k"] + shift,
                best["estimate"],
                marker="o",
                markersize=14,
                markerfacecolor="none",
                color=mark[0],
            )
        alpha = ratio(group, "overlap", "tested")
        if alpha is not None:
            every = range(ks[0], ks[-1] + 1)
            values = [line(min(alpha, 1.0), k) for k in every]
            ax.plot(every, values, color=mark[0], linestyle=mark[2], marker="")
    _finish(ax, ks)


def _series(
    records: Sequence[Record], column: str
) -> list[tuple[list[Record], Any, float]]:
    """Records of each series, its mark, and how far its bars stand aside."""
    groups = list(group_records(records, (column,)).values())
    if not groups:
        raise ValueError("records must not be empty")
    if len(groups) > len(SERIES):
        raise ValueError(
            f"records must have at most {len(SERIES)} values of {column!r} to be told "
            f"apart, got {len(groups)}"
        )
    middle = (len(groups) - 1) / 2
    return [
        (group, (*SERIES[i], _name(column, group[0][column])), (i - middle) * 0.09)
        for i, group in enumerate(groups)
    ]


def _some(group: Sequence[Record], numerator: Amount, denominator: Amount) -> float:
    value = ratio(group, numerator, denominator)
    return float("nan") if value is None else value


def _name(column: str, value: Any) -> str:
    if column == "temperature":
        return f"T = {value:g}"
    return str(value) if isinstance(value, str) else f"{column} = {value}"


def _bars(
    ax: Axes, xs: Sequence[float], rows: Sequence[Record], mark: Any, shift: float
) -> None:
    """Estimates as markers, with their intervals where there are any."""
    shown = [
        (x, row) for x, row in zip(xs, rows, strict=True) if row["estimate"] is not None
    ]
    estimates = [row["estimate"] for _, row in shown]
    below, above = (
        [
            0.0 if row[bound] is None else abs(row[bound] - row["estimate"])
            for _, row in shown
        ]
        for bound in ("low", "high")
    )
    ax.errorbar(
        [x + shift for x, _ in shown],
        estimates,
        yerr=[below, above],
        color=mark[0],
        marker=mark[1],
        linestyle="none",
        capsize=3,
        elinewidth=1.2,
        label=mark[3],
    )


def _figure(ax: Axes | None) -> tuple[Figure, Axes]:
    if ax is not None:
        return ax.figure, ax  # type: ignore[return-value]
    import matplotlib.pyplot as plt

    return plt.subplots()


def _finish(ax: Axes, ticks: Sequence[int] | None) -> None:
    if ticks is not None:
        ax.set_xticks(list(ticks))
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(
        handles[::-1],
        labels[::-1],
        title="● measured\n— predicted",
        title_fontsize="small",
        alignment="left",
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
    )
