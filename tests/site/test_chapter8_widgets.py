"""The explorer and the grid of chapter 8, on the built page, where no Python runs."""

from __future__ import annotations

import re

import pytest
from site_kit import HUNDREDTHS, Explorer, Visit, Widget, held_out, pair, prompts

import specdec_lib as sd
from specdec_lib import experiments as ex
from specdec_lib import theory

pytestmark = pytest.mark.browser

PAGE = "notebooks/08_speedup_against_k.html"
KS, TEMPERATURES = (1, 2, 3, 4, 6, 8), (0.6, 0.8, 1.0, 1.2)
DRAFT_COST = 0.1
K, TEMPERATURE, ALPHA = "Draft length k", "Temperature T", "Acceptance rate α"
EXPLORER = {
    K: range(17),
    ALPHA: HUNDREDTHS,
    "Draft cost c": HUNDREDTHS,
    "Verification slope": HUNDREDTHS,
}
GRID = {K: KS, TEMPERATURE: TEMPERATURES}


@pytest.fixture
def explorer(chapter: Visit) -> Explorer:
    return Explorer(chapter.page, EXPLORER)


@pytest.fixture
def grid(chapter: Visit) -> Widget:
    return Widget(chapter.page, GRID)


class TestExplorer:
    def test_it_starts_at_the_books_pair(self, fresh: Visit) -> None:
        Explorer(fresh.page, EXPLORER).check(4, 0.77, 0.1, 0.0)

    def test_keyboard_moves_each_slider(self, explorer: Explorer) -> None:
        for values in (
            (4, 0.77, 0, 0.1), (4, 0.77, 0.1, 0), (7, 0.7, 0.12, 0.03),
            (1, 0.78, 0.06, 0.01),
        ):  # fmt: skip
            explorer.stand(*values)
            explorer.check(*values)

    def test_what_the_chapter_says_to_try(self, explorer: Explorer) -> None:
        """c and s count by their sum; where it reaches alpha, guessing never pays."""
        curves = []
        for cost, slope in ((0, 0.1), (0.1, 0)):
            explorer.stand(4, 0.77, cost, slope)
            curves.append(
                explorer.svg.locator(".specdec-curve").get_attribute("points")
            )
        assert curves[0] == curves[1]
        for cost, pays in ((0.76, True), (0.77, False)):
            caption = explorer.stand(4, 0.77, cost, 0)
            assert caption.endswith("guessing does not pay.") != pays

    def test_mouse_moves_it(self, explorer: Explorer) -> None:
        explorer.stand(5, 0.77, 0.1, 0)
        for alpha in explorer.drag(ALPHA, 0.77, 0.9, 0.3, 0.6):
            now = explorer.value(ALPHA)
            assert now == pytest.approx(alpha, abs=0.021)
            explorer.check(5, now, 0.1, 0.0)


@pytest.fixture(scope="module")
def captions() -> dict[tuple[int, float], str]:
    """What must stand below each figure of the outer temperatures, decoded anew."""
    start = held_out()["15_school_essays"][277 : 277 + 16]
    found = {}
    for temperature in (TEMPERATURES[0], TEMPERATURES[-1]):
        sampler = sd.Sampler(temperature=temperature)
        draft = sd.ModelDraft(pair().draft, sampler)
        records = ex.Sweep(
            pair().target, {"order 2": pair().draft}, prompts(20), ks=KS,
            temperatures=(temperature,), max_new_tokens=80,
        ).run()  # fmt: skip
        alpha = sum(r["overlap"] for r in records) / sum(r["tested"] for r in records)
        for k in KS:
            run = sd.generate(
                pair().target, start, draft=draft, k=k, sampler=sampler,
                max_new_tokens=60, seed=1,
            )  # fmt: skip
            calls, drafted = len(run.rounds), run.metrics.drafted
            some = [r for r in records if r["k"] == k]
            units = sum(r["target_calls"] + DRAFT_COST * r["drafted"] for r in some)
            measured = sum(r["emitted"] for r in some) / units
            coin = theory.expected_tokens(alpha, k) / (1 + k * DRAFT_COST)
            found[k, temperature] = (
                f"60 tokens in {calls} calls and {calls + DRAFT_COST * drafted:.1f} "
                f"units of time. Over 20 texts the speedup is {measured:.2f} "
                f"(…), by formula {coin:.2f}."
            )
    return found


class TestGrid:
    def check(self, grid: Widget, k: int, temperature: float) -> str:
        """The caption, which must be that of the two settings."""
        caption = grid.caption()
        assert caption.startswith(f"Draft length {k}, temperature {temperature:g}: ")
        assert f"k = {k}" in grid.svg.text_content()
        numbers = [float(x) for x in re.findall(r"\d+\.\d\d", caption)]
        measured, low, high, _ = numbers
        assert low <= measured <= high
        return caption

    def test_keyboard_reaches_every_figure(
        self, grid: Widget, captions: dict[tuple[int, float], str]
    ) -> None:
        for (k, temperature), _ in grid.everywhere():
            caption = self.check(grid, k, temperature)
            wanted = captions.get((k, temperature))
            if wanted is not None:
                said = re.sub(r"\(.*?\)", "(…)", caption)
                assert said.endswith(wanted)

    def test_mouse_drags_and_clicks(self, grid: Widget) -> None:
        grid.stand(KS[0], TEMPERATURES[0])
        for k in grid.drag(K, 1, 3, 8, 4):
            self.check(grid, k, TEMPERATURES[0])
        grid.click(TEMPERATURE, 1.0)
        self.check(grid, 4, 1.0)


def test_it_fits_a_telephone(telephone: Visit) -> None:
    Explorer(telephone.page, EXPLORER).check_fits()
    Widget(telephone.page, GRID).check_fits()
