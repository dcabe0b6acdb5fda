"""Figures show the numbers of the records, and the lines of the theory."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest

from specdec_lib import plots, theory
from specdec_lib import records as rec

mpl.use("Agg")
import matplotlib.pyplot as plt

ALPHA = {0.6: 0.5, 1.0: 0.8}
CURVE = theory.cost_curve([1, 9], [1.0, 1.4])


def text(temperature, k, seed, draft="d"):
    """A record with given counts: 100 rounds, a few more or less accepted."""
    alpha = ALPHA[temperature]
    tested = [round(100 * alpha**i) for i in range(k)]
    accepted = [round(n * alpha) + seed % 3 - 1 for n in tested]
    columns = {"draft": draft, "temperature": temperature, "k": k, "seed": seed}
    record = columns | {
        "prompt": "p",
        "drafted": 100 * k,
        "tested": sum(tested),
        "accepted": sum(accepted),
        "overlap": alpha * sum(tested),
        "emitted": 100 + sum(accepted),
        "target_calls": 100,
    }
    for i in range(k):
        record[f"drafted_{i + 1}"] = 100
        record[f"tested_{i + 1}"] = tested[i]
        record[f"accepted_{i + 1}"] = accepted[i]
        record[f"overlap_{i + 1}"] = alpha * tested[i] + i / 10
    return record


RECORDS = [text(t, k, s) for t in ALPHA for k in (1, 2, 4) for s in range(6)]


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def measured(ax):
    """Label -> (x, y, low, high) arrays of the markers with bars."""
    found = {}
    for container in ax.containers:
        line, _, (bars,) = container.lines
        ends = np.array(bars.get_segments())
        found[container.get_label()] = (
            np.array(line.get_xdata(), dtype=float),
            np.array(line.get_ydata(), dtype=float),
            ends[:, 0, 1],
            ends[:, 1, 1],
        )
    return found


def lines(ax):
    """Colour -> (x, y) of lines without markers, longer than two points."""
    return {
        line.get_color(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in ax.lines
        if line.get_marker() in ("", "None") and len(line.get_xdata()) > 2
    }


@pytest.mark.parametrize("curve", (None, CURVE))
def test_speedup_against_k(curve):
    figure = plots.speedup_against_k(RECORDS, draft_cost=0.1, verify_cost=curve)
    (ax,) = figure.axes
    points = measured(ax)
    assert set(points) == {"T = 0.6", "T = 1"}
    for i, (temperature, alpha) in enumerate(ALPHA.items()):
        x, y, low, high = points[f"T = {temperature:g}"]
        assert np.round(x).tolist() == [1, 2, 4]
        for j, k in enumerate((1, 2, 4)):
            group = [
                r for r in RECORDS if (r["temperature"], r["k"]) == (temperature, k)
            ]
            call = 1 if curve is None else 1 + 0.05 * k
            speed = sum(r["emitted"] for r in group) / (600 * (call + 0.1 * k))
            assert y[j] == pytest.approx(speed)
            interval = rec.bootstrap_interval(
                group, "emitted", lambda r, call=call, k=k: 100 * (call + 0.1 * k)
            )
            assert (low[j], high[j]) == pytest.approx(interval[1:])
        ks, speeds = lines(ax)[plots.SERIES[i][0]]
        assert ks == [1, 2, 3, 4]
        right = [theory.speedup(alpha, k, 0.1, curve) for k in ks]
        assert speeds == pytest.approx(right)
    rings = [line for line in ax.lines if line.get_markersize() == 14]
    best = [np.argmax(points[label][1]) for label in points]
    assert [ring.get_ydata()[0] for ring in rings] == [
        points[label][1][at] for label, at in zip(points, best, strict=True)
    ]
    assert (ax.get_xlabel(), ax.get_ylabel()) == (
        "draft length k (tokens)",
        "speedup (times)",
    )


def test_tokens_against_k():
    (ax,) = plots.tokens_against_k(RECORDS).axes
    y = measured(ax)["T = 1"][1]
    group = [r for r in RECORDS if r["temperature"] == 1 and r["k"] == 4]
    assert y[2] == pytest.approx(np.mean([r["emitted"] for r in group]) / 100)
    _, tokens = lines(ax)[plots.SERIES[1][0]]
    assert tokens == pytest.approx(
        [theory.expected_tokens(0.8, k) for k in range(1, 5)]
    )


def test_acceptance_by_position():
    records = [r for r in RECORDS if r["k"] == 4]
    (ax,) = plots.acceptance_by_position(records).axes
    group = [r for r in records if r["temperature"] == 0.6]
    x, y, low, high = measured(ax)["T = 0.6"]
    assert np.round(x).tolist() == [1, 2, 3, 4]
    _, predicted = lines(ax)[plots.SERIES[0][0]]
    for i in range(4):
        tested = sum(r[f"tested_{i + 1}"] for r in group)
        assert y[i] == sum(r[f"accepted_{i + 1}"] for r in group) / tested
        overlap = sum(r[f"overlap_{i + 1}"] for r in group)
        assert predicted[i] == pytest.approx(overlap / tested)
        assert low[i] <= y[i] <= high[i]


def test_places_where_nothing_was_tested_are_left_out():
    records = [r | {"tested_4": 0, "accepted_4": 0} for r in RECORDS if r["k"] == 4]
    (ax,) = plots.acceptance_by_position(records).axes
    assert len(measured(ax)["T = 1"][0]) == 3


def test_acceptance_against_temperature():
    records = [*RECORDS, *(text(0.6, 2, s, draft="e") for s in range(4))]
    (ax,) = plots.acceptance_against_temperature(records).axes
    points = measured(ax)
    assert set(points) == {"d", "e"}
    assert points["d"][0].tolist() == [0.6, 1.0]
    for temperature, y in zip((0.6, 1.0), points["d"][1], strict=True):
        group = [r for r in RECORDS if r["temperature"] == temperature]
        assert y == rec.ratio(group, "accepted", "tested")


def test_predicted_against_observed():
    (ax,) = plots.predicted_against_observed(RECORDS).axes
    x, y, *_ = measured(ax)["T = 1"]
    assert x == pytest.approx([0.8] * 3)
    groups = [[r for r in RECORDS if r["temperature"] == 1 and r["k"] == k]
              for k in (1, 2, 4)]  # fmt: skip
    assert y == pytest.approx([rec.ratio(g, "accepted", "tested") for g in groups])
    (diagonal,) = [line for line in ax.lines if len(line.get_xdata()) == 2]
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())
    assert list(diagonal.get_xdata()) == pytest.approx([0.5, 0.8])


def test_k_temperature_map():
    figure = plots.k_temperature_map(RECORDS, draft_cost=0.25)
    ax = figure.axes[0]
    table = ax.images[0].get_array()
    assert table.shape == (2, 3)
    said = [t.get_text() for t in ax.texts]
    best = []
    for i, temperature in enumerate(ALPHA):
        for j, k in enumerate((1, 2, 4)):
            group = [
                r for r in RECORDS if (r["temperature"], r["k"]) == (temperature, k)
            ]
            speed = rec.ratio(group, "emitted", lambda r: rec.call_cost(r, 0.25))
            assert table[i, j] == pytest.approx(speed)
            assert said[3 * i + j] == f"{speed:.2f}"
        best.append(int(np.argmax(table[i])))
    rings = [line for line in ax.lines if line.get_markersize() == 27]
    assert [int(ring.get_xdata()[0]) for ring in rings] == best
    ridge = next(line for line in ax.lines if line.get_color() == plots.REJECTED)
    assert [(1, 2, 4)[at] for at in ridge.get_xdata()] == [
        max((1, 2, 4), key=lambda k, a=alpha: theory.speedup(a, k, 0.25))
        for alpha in ALPHA.values()
    ]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["0.6", "1"]
    for container in ax.containers:  # the bars of best ks lie inside the map
        (segment,) = container.lines[2][0].get_segments()
        assert segment[:, 0].min() >= 0
        assert segment[:, 0].max() <= 2


def test_the_map_is_of_one_draft_and_a_whole_grid():
    more = [*RECORDS, text(1.0, 1, 0, draft="e")]
    with pytest.raises(ValueError, match=r"must be of one draft, got \['d', 'e'\]"):
        plots.k_temperature_map(more, draft_cost=0.1)
    holed = [r for r in RECORDS if (r["temperature"], r["k"]) != (1.0, 4)]
    with pytest.raises(ValueError, match="must have the same ks at every temperature"):
        plots.k_temperature_map(holed, draft_cost=0.1)


def test_figures_go_where_they_are_told():
    figure, (left, right) = plt.subplots(1, 2)
    assert plots.tokens_against_k(RECORDS, ax=left) is figure
    assert plots.k_temperature_map(RECORDS, draft_cost=0.1, ax=right) is figure
    assert left.containers
    assert right.images
    assert plots.tokens_against_k(RECORDS, series="draft").axes[0].containers


def test_one_text_has_no_interval_and_no_bar():
    (ax,) = plots.tokens_against_k([text(1.0, k, 0) for k in (1, 2, 4)]).axes
    _, y, low, high = measured(ax)["T = 1"]
    assert low.tolist() == high.tolist() == y.tolist()


def test_more_series_than_marks():
    records = [r | {"draft": str(r["seed"])} for r in RECORDS]
    with pytest.raises(ValueError, match="at most 5 values of 'draft' .*, got 6"):
        plots.tokens_against_k(records, series="draft")
    with pytest.raises(ValueError, match="records must not be empty"):
        plots.tokens_against_k([])


def test_series_differ_by_more_than_colour():
    for i in range(3):
        assert len({str(mark[i]) for mark in plots.SERIES}) == len(plots.SERIES)
    assert not {plots.TARGET, plots.DRAFT} & {mark[0] for mark in plots.SERIES}


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys, specdec_lib.plots; print('matplotlib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
