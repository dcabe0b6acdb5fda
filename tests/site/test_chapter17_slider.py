"""The slider of chapter 17, on the built page, where no Python runs.

The verdicts are counted again from the stored times, with the quantiles of a printed
table; what theory says is held to a simulation.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from site_kit import MAX_DATA, Visit, Widget, widget_size

pytestmark = pytest.mark.browser

PAGE = "notebooks/17_measuring_at_scale.html"
DATA = Path(__file__).parents[2] / "notebooks" / "data" / "measured_at_scale.json"
# Pairs, and the 0.95 quantile of Student's t with one degree of freedom less.
TABLE = {3: 2.920, 4: 2.353, 6: 2.015, 8: 1.895, 12: 1.796, 24: 1.714, 48: 1.678}
STOPS = {"Pairs": tuple(TABLE)}
START = 6


@cache
def logs() -> dict[str, np.ndarray]:
    """Planted slowness, as the file says it -> log-ratios of the pairs."""
    pairs = json.loads(DATA.read_text(encoding="utf-8"))["pairs"]
    times = {
        name: np.array(row, dtype=float) for name, row in pairs["microseconds"].items()
    }
    reference = times.pop("reference")
    return {
        name: np.median(np.log(row / reference).reshape(-1, pairs["per_pair"]), axis=1)
        for name, row in times.items()
    }


def slower(x: np.ndarray, n: int) -> float:
    """Share of rows (.., n) whose mean is called slower."""
    half = TABLE[n] * x.std(axis=1, ddof=1) / math.sqrt(n)
    low, high = x.mean(axis=1) - half, x.mean(axis=1) + half
    return float(((low > math.log(1.01)) & (high >= math.log(1.05))).mean())


def simulated(spread: float, n: int) -> float:
    noise = np.random.default_rng(n).normal(0, spread, (20_000, n))
    return slower(math.log(1.05) + noise, n)


@pytest.fixture
def power(chapter: Visit) -> Widget:
    return Widget(chapter.page, STOPS)


def test_it_starts_where_it_was_told(fresh: Visit) -> None:
    assert Widget(fresh.page, STOPS).caption().startswith(f"{START} pairs, ")


def test_every_stop_says_what_the_stored_pairs_say(power: Widget) -> None:
    for (n,), caption in power.everywhere():
        groups = len(logs()["0 %"]) // n
        assert caption.startswith(f"{n} pairs, {groups} repeats. Called slower at ")
        told = {
            f"{x} %": float(y)
            for x, y in re.findall(r"(\d) %: (\d\.\d\d)[,.]", caption)
        }
        for name, x in logs().items():
            # The table ends at three decimals: one group may fall to the other side.
            share = slower(x[: groups * n].reshape(groups, n), n)
            assert told[name] == pytest.approx(share, abs=0.0051 + 1 / groups)


def test_the_theory_is_what_a_simulation_finds(power: Widget) -> None:
    x = logs()["0 %"]
    middle = np.subtract(*np.quantile(x, [0.75, 0.25])) / 1.349
    low, high = sorted((float(middle), float(x.std(ddof=1))), reverse=True)
    for n in (3, 6, 12, 48):
        caption = power.stand(n)
        found = re.search(r"By theory at 5 %: (\S+) to (\S+)\.$", caption)
        assert found, caption
        said = [float(value) for value in found.groups()]
        expected = [simulated(low, n), simulated(high, n)]
        assert said == pytest.approx(expected, abs=0.02)


def test_the_mouse_moves_it(power: Widget) -> None:
    power.stand(3)
    assert power.click("Pairs", 24).startswith("24 pairs, ")


def test_it_fits_a_telephone(telephone: Visit) -> None:
    widget = Widget(telephone.page, STOPS)
    widget.stand(48)
    widget.check_fits()


def test_it_is_light(site: Path) -> None:
    assert 0 < widget_size(site / PAGE) <= MAX_DATA
