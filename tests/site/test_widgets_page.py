"""The widgets on a page of the book, where no Python runs.

The page is made here, from one that was built: the same frame, styles and scripts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bs4 import BeautifulSoup
from bs4.element import Script
from serve import SITE
from site_kit import (
    HUNDREDTHS,
    MAX_DATA,
    NARROW,
    STATE,
    WIDE,
    Explorer,
    Visit,
    Widget,
    check_no_scroll,
    check_within,
    pair,
    served,
    widget_size,
)

import specdec_lib as sd
from specdec_lib import theory

pytestmark = pytest.mark.browser

FRAME = "notebooks/05_exact_sampling.html"  # a built page with a widget
VIEW = "application/vnd.jupyter.widget-view+json"
KS, TEMPERATURES = (1, 2, 3, 4, 6), (0.5, 1.0, 2.0)
MEASURED = {0.0: 0.41, 0.5: 0.5678, 1.0: 0.7, 2.0: 0.93}
K, TEMPERATURE, ALPHA = "Draft length k", "Temperature T", "Acceptance rate α"
COSTS = {"Draft cost c": HUNDREDTHS, "Verification slope": HUNDREDTHS}
STOPS = {
    "grid": {K: KS, TEMPERATURE: TEMPERATURES},
    "explorer": {K: range(17), ALPHA: HUNDREDTHS, **COSTS},
    "measured": {K: range(9), TEMPERATURE: tuple(MEASURED), **COSTS},
}
LABELS = {**STOPS, "live": (K, TEMPERATURE)}
PROMPT = "The harbour"


def rate(temperature: float) -> float:
    return 1 - temperature / 4


def describe(k: int, temperature: float) -> str:
    tokens = theory.expected_tokens(rate(temperature), k)
    return f"Length {k}, temperature {temperature:g}: {tokens:.4f} tokens per call."


def draw(k: int, temperature: float) -> Any:
    """One bar, as high as the number of tokens per call, on an axis up to 7."""
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(6, 3))
    ax.bar([0], [theory.expected_tokens(rate(temperature), k)], color="#009e73")
    ax.set(ylim=(0, 7), ylabel="tokens per call", xticks=[])
    return fig


@pytest.fixture(scope="module")
def widget_page(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with the one page of widgets on it."""
    from ipywidgets.embed import embed_data

    from specdec_lib.widgets import SpeedupExplorer, figure_grid, live

    widgets = {
        "grid": figure_grid(draw, KS, TEMPERATURES, describe, start=(2, 1.0)),
        "explorer": SpeedupExplorer(),
        "measured": SpeedupExplorer(measured=MEASURED, temperature=1.0, max_k=8),
        "live": live(pair(), PROMPT),
    }
    data = embed_data(views=list(widgets.values()), drop_defaults=False)
    page = BeautifulSoup((SITE / FRAME).read_text(encoding="utf-8"), "html.parser")
    (state,) = page.find_all("script", type=STATE)
    state.string = Script(json.dumps(data["manager_state"]))
    article = page.select_one("article.bd-article")
    for cell in article.select(".cell"):
        cell.decompose()
    state.extract()
    for name, view in zip(widgets, data["view_specs"], strict=True):
        box = page.new_tag("div", id=name, attrs={"class": "cell_output docutils"})
        script = page.new_tag("script", type=VIEW)
        script.string = Script(json.dumps(view))
        box.append(script)
        article.h1.insert_before(box)
    article.append(state)

    folder = tmp_path_factory.mktemp("site")
    for part in site.iterdir():
        if part.name != "notebooks":
            (folder / part.name).symlink_to(part)
    (folder / "notebooks").mkdir()
    (folder / "notebooks" / "widgets.html").write_text(str(page), encoding="utf-8")
    yield from served(folder)


@pytest.fixture(scope="module")
def open_widgets(
    open_page: Callable[..., Visit], widget_page: str
) -> Callable[..., Visit]:
    def open_(viewport: dict[str, int] = WIDE, **options: Any) -> Visit:
        visit = open_page(
            "notebooks/widgets.html", viewport, address=widget_page, **options
        )
        for name in LABELS:
            inputs = visit.page.locator(f"#{name} input")
            inputs.first.wait_for(timeout=10_000)
        return visit

    return open_


@pytest.fixture(scope="module")
def visit(open_widgets: Callable[..., Visit]) -> Iterator[Visit]:
    opened = open_widgets()
    yield opened
    opened.check_quiet()
    opened.page.close()


def control(visit: Visit, widget: str, name: str) -> Any:
    """A slider by the name that a screen reader speaks, the whole of it."""
    return visit.page.locator(f"#{widget}").get_by_role("slider", name=name, exact=True)


def grid_of(visit: Visit) -> Widget:
    return Widget(visit.page, STOPS["grid"], inside="#grid")


def explorer_of(visit: Visit, name: str = "explorer") -> Explorer:
    return Explorer(visit.page, STOPS[name], inside=f"#{name}")


@pytest.fixture
def grid(visit: Visit) -> Widget:
    return grid_of(visit)


@pytest.fixture
def explorer(visit: Visit) -> Explorer:
    return explorer_of(visit)


def test_every_slider_has_a_visible_label_a_name_and_a_readout(visit: Visit) -> None:
    for widget, labels in LABELS.items():
        box = visit.page.locator(f"#{widget}")
        assert box.get_by_role("slider").count() == len(labels)
        for name in labels:
            slider = control(visit, widget, name)
            assert slider.count() == 1
            assert slider.get_attribute("data-lm-suppress-shortcuts") == "true"
            assert box.get_by_text(name, exact=True).first.is_visible()
            readout = slider.locator("xpath=..").locator(".specdec-readout")
            assert readout.is_visible()
            assert readout.inner_text() == slider.get_attribute("aria-valuetext")


class TestGrid:
    def check(self, grid: Widget, k: int, temperature: float) -> None:
        """Caption, name of the drawing, and height of its bar on the axis."""
        assert grid.caption() == describe(k, temperature)
        height = grid.svg.evaluate(
            """svg => {
                const axis = svg.querySelector('#axes_1 #patch_2 path').getBBox();
                const bar = [...svg.querySelectorAll('#axes_1 path')].find((path) =>
                    /#009e73/i.test(path.getAttribute('style')));
                return 7 * bar.getBBox().height / axis.height;
            }"""
        )
        tokens = theory.expected_tokens(rate(temperature), k)
        assert height == pytest.approx(tokens, abs=0.01)

    def test_it_starts_where_it_was_told(self, open_widgets: Any) -> None:
        fresh = open_widgets()
        self.check(grid_of(fresh), 2, 1.0)
        fresh.page.close()

    def test_keyboard_reaches_every_figure(self, grid: Widget) -> None:
        for k, temperature in product(KS, TEMPERATURES):  # some bars are alike
            grid.stand(k, temperature)
            self.check(grid, k, temperature)

    def test_home_end_up_and_down(self, grid: Widget) -> None:
        grid.stand(6, 0.5)
        for key, k in (
            ("Home", 1), ("ArrowUp", 2), ("ArrowDown", 1), ("ArrowLeft", 1),
            ("End", 6), ("ArrowRight", 6),
        ):  # fmt: skip
            grid.slider(K).press(key)
            self.check(grid, k, 0.5)

    def test_mouse_drags_and_clicks(self, grid: Widget) -> None:
        grid.stand(1, 0.5)
        for k in grid.drag(K, 1, 2, 4, 6, 3):
            self.check(grid, k, 0.5)
        grid.click(TEMPERATURE, 2.0)
        self.check(grid, 3, 2.0)

    def test_the_caption_is_announced(self, visit: Visit, grid: Widget) -> None:
        """The same element all the time: a new one would not be read out."""
        caption = visit.page.locator("#grid figcaption").element_handle()
        assert caption.get_attribute("aria-live") == "polite"
        grid.stand(1, 1.0)
        assert caption.is_visible()
        assert "temperature 1:" in caption.inner_text()


class TestExplorer:
    def test_it_starts_where_it_was_told(self, open_widgets: Any) -> None:
        fresh = open_widgets()
        explorer_of(fresh).check(4, 0.8, 0.1, 0.0)
        explorer_of(fresh, "measured").check(4, MEASURED[1.0], 0.1, 0.0)
        fresh.page.close()

    def test_keyboard_moves_each_slider(self, explorer: Explorer) -> None:
        for values in (
            (4, 0.8, 0.1, 0), (7, 0.86, 0.03, 0.04), (0, 0.75, 0, 0.09),
            (16, 0.7, 0.2, 0.02),
        ):  # fmt: skip
            explorer.stand(*values)
            explorer.check(*values)

    def test_the_ends_of_the_sliders(self, explorer: Explorer) -> None:
        explorer.stand(3, 0.8, 0.1, 0)
        for keys in product(("Home", "End"), repeat=3):
            for name, key in zip((ALPHA, *COSTS), keys, strict=True):
                explorer.slider(name).press(key)
            at = [float(key == "End") for key in keys]
            explorer.check(3, *at)

    def test_mouse_moves_it(self, explorer: Explorer) -> None:
        explorer.stand(5, 0.8, 0.02, 0.02)
        explorer.slider(ALPHA).press("Home")
        for alpha in explorer.drag(ALPHA, 0, 0.3, 0.9, 0.6):
            now = explorer.value(ALPHA)
            assert now == pytest.approx(alpha, abs=0.021)
            explorer.check(5, now, 0.02, 0.02)

    def test_measured_rates(self, visit: Visit) -> None:
        explorer = explorer_of(visit, "measured")
        for temperature, alpha in MEASURED.items():
            explorer.stand(4, temperature, 0.1, 0)
            text = f"{temperature:g} (α = {alpha:.2f})"
            assert explorer.readout(TEMPERATURE) == text
            explorer.check(4, alpha, 0.1, 0.0)

    def test_the_pages_functions_equal_the_librarys_to_1e_9(self, visit: Visit) -> None:
        from specdec_lib.widgets import SpeedupExplorer

        alphas = [0.0, 0.013, 0.25, 0.5, 0.7, 0.8, 0.95, 0.999, 1.0]
        costs = [0.0, 0.01, 0.1, 0.37, 1.0]
        slopes = [0.0, 0.003, 0.05, 0.4, 1.0]
        ks = [*range(9), 16, 32]
        answer = visit.page.evaluate(
            """async ([code, alphas, costs, slopes, ks]) => {
                const blob = new Blob([code], { type: "text/javascript" });
                const m = await import(URL.createObjectURL(blob));
                const found = [];
                for (const a of alphas) for (const c of costs) for (const s of slopes) {
                    const best = m.bestK(a, c, s, 32);
                    found.push([
                        best, m.speedup(a, best, c, s),
                        ...ks.map((k) => m.expectedTokens(a, k)),
                        ...ks.map((k) => m.speedup(a, k, c, s)),
                    ]);
                }
                return found;
            }""",
            [SpeedupExplorer().get_state()["_esm"], alphas, costs, slopes, ks],
        )
        cases = list(product(alphas, costs, slopes))
        assert len(answer) == len(cases)
        for (alpha, c, slope), (best, top, *rest) in zip(cases, answer, strict=True):

            def verify(n: int, slope: float = slope) -> float:
                return 1 + slope * (n - 1)

            tokens = [theory.expected_tokens(alpha, k) for k in ks]
            speedups = [theory.speedup(alpha, k, c, verify) for k in ks]
            assert rest == pytest.approx([*tokens, *speedups], rel=0, abs=1e-9)
            wanted = theory.best_k(alpha, c, verify)
            assert top == pytest.approx(
                theory.speedup(alpha, wanted, c, verify), rel=0, abs=1e-9
            )
            curve = np.array([theory.speedup(alpha, k, c, verify) for k in range(33)])
            if (np.abs(curve - curve.max()) < 1e-12).sum() == 1:
                assert best == wanted


def test_live_says_that_it_needs_a_kernel_and_shows_what_was_decoded(
    visit: Visit,
) -> None:
    box = visit.page.locator("#live")
    for name in LABELS["live"]:
        assert control(visit, "live", name).is_disabled()
    note = box.locator(".specdec-note")
    assert note.is_visible()
    assert "need Python" in note.inner_text()
    assert "k = 4 and T = 1" in note.inner_text()
    run = sd.generate(
        pair().target,
        pair().tokenizer.encode(PROMPT),
        draft=sd.ModelDraft(pair().draft, sd.Sampler()),
        k=4,
        max_new_tokens=200,
        seed=1,
    )
    text = PROMPT + "".join(pair().tokenizer.pieces(run.tokens))
    assert box.locator(".specdec-text").text_content() == text
    summary = box.get_by_role("status").inner_text()
    assert f"200 tokens by {len(run.rounds)} calls" in summary
    assert f"{run.metrics.tokens_per_call:.2f} tokens per call" in summary
    accepted = box.locator(".specdec-text .specdec-accepted").count()
    assert accepted == run.metrics.accepted
    legend = box.locator(".specdec-legend").inner_text()
    assert "accepted guess" in legend
    assert "correction" in legend


def test_it_fits_a_telephone_and_answers_to_a_finger(open_widgets: Any) -> None:
    visit = open_widgets(NARROW, has_touch=True)
    page = visit.page
    check_no_scroll(page)
    for slider in page.locator("article input[type=range]").all():
        box = slider.bounding_box()
        assert box["height"] >= 24
        assert box["width"] >= 200
        check_within(slider)
    for svg in page.locator("article svg[role=img]").all():
        check_within(svg)
    # Words of the curve can still be read.
    size = page.locator("#explorer svg").evaluate(
        "svg => 12 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width"
    )
    assert size >= 8.5
    grid = grid_of(visit)
    page.touchscreen.tap(*grid.at(K, 6))
    assert grid.value(K) == 6
    assert "Length 6," in grid.caption()
    visit.check_quiet()
    page.close()


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2) of a CSS `rgb(…)`."""
    channels = [float(c) / 255 for c in re.findall(r"[\d.]+", colour)[:3]]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    ]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(first: str, second: str) -> float:
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


# What an element is drawn with, and the ground that is seen behind it.
COLOURS = """element => {
    const style = getComputedStyle(element);
    const drawn = element instanceof SVGElement;
    const colour = !drawn ? style.color
        : style.fill !== "none" ? style.fill : style.stroke;
    let ground = "rgb(255, 255, 255)";
    for (let up = element; up; up = up.parentElement) {
        const seen = getComputedStyle(up).backgroundColor;
        if (!/rgba\\(.*, 0\\)|transparent/.test(seen)) { ground = seen; break; }
    }
    return [colour, ground];
}"""


@pytest.mark.parametrize("scheme", ("light", "dark"))
def test_it_can_be_read_in_both_themes(open_widgets: Any, scheme: str) -> None:
    visit = open_widgets(color_scheme=scheme)
    page = visit.page
    page.wait_for_timeout(400)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    texts = {
        ".specdec-slider label": 4.5,
        ".specdec-readout": 4.5,
        ".specdec-widget figcaption": 4.5,
        ".specdec-widget dd": 4.5,
        ".specdec-text": 4.5,
        ".specdec-summary": 4.5,
        ".specdec-note": 4.5,
        ".specdec-drawn text": 4.5,
        ".specdec-curve": 3,
        ".specdec-dot": 3,
        ".specdec-best": 3,
    }
    for selector, least in texts.items():
        places = page.locator(selector).all()
        assert places
        for at in places:
            colour, ground = at.evaluate(COLOURS)
            assert contrast(colour, ground) >= least, (selector, colour, ground)
    page.close()


def test_widgets_of_every_page_are_light(site: Path) -> None:
    pages = (site / "notebooks").glob("*.html")
    sizes = {page.name: widget_size(page) for page in pages if widget_size(page)}
    assert sizes, "no page has a widget"
    assert {name: size for name, size in sizes.items() if size > MAX_DATA} == {}
