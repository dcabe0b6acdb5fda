"""The widgets on a page of the book, where no Python runs.

The page is made here, from one that was built: the same frame, styles and scripts.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bs4 import BeautifulSoup
from bs4.element import Script
from serve import SITE, make_server
from site_kit import NARROW, WIDE, Visit, place

import specdec_lib as sd
from specdec_lib import theory
from specdec_lib.pair import Pair, book_pair

pytestmark = pytest.mark.browser

FRAME = "notebooks/05_exact_sampling.html"  # a built page with a widget
STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"
KS, TEMPERATURES = (1, 2, 3, 4, 6), (0.5, 1.0, 2.0)
MEASURED = {0.0: 0.41, 0.5: 0.5678, 1.0: 0.7, 2.0: 0.93}
PROMPT = "The harbour"
MAX_DATA = 150_000  # bytes, compressed


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
def pair() -> Pair:
    return book_pair()


@pytest.fixture(scope="module")
def widget_page(
    site: Path, pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a server with the one page of widgets on it."""
    from ipywidgets.embed import embed_data

    from specdec_lib.widgets import SpeedupExplorer, figure_grid, live

    widgets = {
        "grid": figure_grid(draw, KS, TEMPERATURES, describe, start=(2, 1.0)),
        "explorer": SpeedupExplorer(),
        "measured": SpeedupExplorer(measured=MEASURED, temperature=1.0, max_k=8),
        "live": live(pair, PROMPT),
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
    server = make_server(0, folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def open_widgets(
    open_page: Callable[..., Visit], widget_page: str
) -> Callable[..., Visit]:
    def open_(viewport: dict[str, int] = WIDE, **options: Any) -> Visit:
        visit = open_page(
            "notebooks/widgets.html", viewport, address=widget_page, **options
        )
        for name in ("grid", "explorer", "measured", "live"):
            inputs = visit.page.locator(f"#{name} input")
            inputs.first.wait_for(timeout=10_000)
        return visit

    return open_


@pytest.fixture(scope="module")
def visit(open_widgets: Callable[..., Visit]) -> Iterator[Visit]:
    opened = open_widgets()
    yield opened
    assert (opened.errors, opened.foreign, opened.missing) == ([], [], [])
    opened.page.close()


def control(visit: Visit, widget: str, name: str) -> Any:
    """A slider by the name that a screen reader speaks, the whole of it."""
    return visit.page.locator(f"#{widget}").get_by_role("slider", name=name, exact=True)


def stand(slider: Any, index: int) -> None:
    """Move it by keyboard from where it is."""
    slider.focus()
    now = int(slider.input_value())
    for _ in range(abs(index - now)):
        slider.press("ArrowRight" if index > now else "ArrowLeft")
    assert slider.input_value() == str(index)


def test_every_slider_has_a_visible_label_a_name_and_a_readout(visit: Visit) -> None:
    names = {
        "grid": ["Draft length k", "Temperature T"],
        "explorer": [
            "Draft length k", "Acceptance rate α", "Draft cost c", "Verification slope",
        ],
        "measured": [
            "Draft length k", "Temperature T", "Draft cost c", "Verification slope",
        ],
        "live": ["Draft length k", "Temperature T"],
    }  # fmt: skip
    for widget, expected in names.items():
        box = visit.page.locator(f"#{widget}")
        assert box.get_by_role("slider").count() == len(expected)
        for name in expected:
            slider = control(visit, widget, name)
            assert slider.count() == 1
            assert slider.get_attribute("data-lm-suppress-shortcuts") == "true"
            assert box.get_by_text(name, exact=True).first.is_visible()
            readout = slider.locator("xpath=..").locator(".specdec-readout")
            assert readout.is_visible()
            assert readout.inner_text() == slider.get_attribute("aria-valuetext")


class TestGrid:
    def shown(self, visit: Visit) -> tuple[str, str, float]:
        """Caption, name of the drawing, and height of its bar on the axis."""
        box = visit.page.locator("#grid")
        svg = box.locator("svg")
        assert svg.count() == 1
        assert svg.get_attribute("role") == "img"
        height = svg.evaluate(
            """svg => {
                const axis = svg.querySelector('#axes_1 #patch_2 path').getBBox();
                const bar = [...svg.querySelectorAll('#axes_1 path')].find((path) =>
                    /#009e73/i.test(path.getAttribute('style')));
                return 7 * bar.getBBox().height / axis.height;
            }"""
        )
        return (
            box.locator("figcaption").inner_text(),
            svg.get_attribute("aria-label") or "",
            height,
        )

    def check(self, visit: Visit, k: int, temperature: float) -> None:
        caption, name, height = self.shown(visit)
        assert caption == name == describe(k, temperature)
        tokens = theory.expected_tokens(rate(temperature), k)
        assert height == pytest.approx(tokens, abs=0.01)

    def test_it_starts_where_it_was_told(self, open_widgets: Any) -> None:
        fresh = open_widgets()
        self.check(fresh, 2, 1.0)
        fresh.page.close()

    def test_keyboard_reaches_every_figure(self, visit: Visit) -> None:
        k_slider = control(visit, "grid", "Draft length k")
        t_slider = control(visit, "grid", "Temperature T")
        for (i, k), (j, temperature) in product(enumerate(KS), enumerate(TEMPERATURES)):
            stand(k_slider, i)
            stand(t_slider, j)
            self.check(visit, k, temperature)

    def test_home_end_up_and_down(self, visit: Visit) -> None:
        slider = control(visit, "grid", "Draft length k")
        stand(control(visit, "grid", "Temperature T"), 0)
        for key, k in (
            ("Home", 1), ("ArrowUp", 2), ("ArrowDown", 1), ("ArrowLeft", 1),
            ("End", 6), ("ArrowRight", 6),
        ):  # fmt: skip
            slider.press(key)
            self.check(visit, k, 0.5)

    def test_mouse_drags_and_clicks(self, visit: Visit) -> None:
        k_slider = control(visit, "grid", "Draft length k")
        t_slider = control(visit, "grid", "Temperature T")
        stand(k_slider, 0)
        stand(t_slider, 0)
        mouse = visit.page.mouse
        mouse.move(*place(k_slider, 0, len(KS)))
        mouse.down()
        for index in (1, 3, 4, 2):
            mouse.move(*place(k_slider, index, len(KS)), steps=3)
            self.check(visit, KS[index], 0.5)
        mouse.up()
        mouse.click(*place(t_slider, 2, len(TEMPERATURES)))
        self.check(visit, 3, 2.0)

    def test_the_caption_is_announced(self, visit: Visit) -> None:
        """The same element all the time: a new one would not be read out."""
        caption = visit.page.locator("#grid figcaption").element_handle()
        assert caption.get_attribute("aria-live") == "polite"
        stand(control(visit, "grid", "Temperature T"), 1)
        assert caption.is_visible()
        assert "temperature 1:" in caption.inner_text()


class TestExplorer:
    def values(self, visit: Visit, widget: str) -> dict[str, list[float]]:
        return {
            box.get_attribute("data-name"): json.loads(box.get_attribute("data-values"))
            for box in visit.page.locator(f"#{widget} dd").all()
        }

    def check(
        self, visit: Visit, widget: str, k: int, alpha: float, c: float, slope: float,
        max_k: int = 16,
    ) -> None:  # fmt: skip
        def verify(n: int) -> float:
            return 1 + slope * (n - 1)

        curve = [theory.speedup(alpha, i, c, verify) for i in range(max_k + 1)]
        tokens = theory.expected_tokens(alpha, k)
        best = theory.best_k(alpha, c, verify, max_k=max_k)
        shown = self.values(visit, widget)
        assert shown["Tokens per call"] == pytest.approx([tokens], rel=0, abs=1e-9)
        assert shown["Speedup"] == pytest.approx([curve[k]], rel=0, abs=1e-9)
        assert shown["Best k"] == pytest.approx([best, max(curve)], rel=0, abs=1e-9)

        box = visit.page.locator(f"#{widget}")
        caption = box.locator("figcaption").inner_text()
        assert f"{tokens:.2f} tokens per call, speedup {curve[k]:.2f}." in caption
        assert f"best k is {best}, with speedup {max(curve):.2f}" in caption
        assert (best == 0) == caption.endswith("guessing does not pay.")
        assert box.locator("figcaption").get_attribute("aria-live") == "polite"
        svg = box.locator("svg")
        assert svg.get_attribute("aria-label").endswith(caption)
        assert f"best k = {best}" in svg.text_content()
        # The curve as drawn: heights over the axis in the ratio of the speedups.
        points = svg.locator(".specdec-curve").get_attribute("points").split()
        x, y = np.array([p.split(",") for p in points], dtype=float).T
        floor = float(svg.locator(".specdec-now").get_attribute("y1"))
        heights = (floor - y) / (floor - y[0])  # speedup at k = 0 is 1
        assert heights == pytest.approx(np.array(curve), rel=2e-3)
        assert np.diff(x) == pytest.approx([np.diff(x).mean()] * max_k, abs=0.011)
        diamond = svg.locator(".specdec-best").get_attribute("d")
        assert float(diamond[1:].split(",")[0]) == pytest.approx(x[best], abs=0.01)

    def test_it_starts_where_it_was_told(self, open_widgets: Any) -> None:
        fresh = open_widgets()
        self.check(fresh, "explorer", 4, 0.8, 0.1, 0.0)
        self.check(fresh, "measured", 4, MEASURED[1.0], 0.1, 0.0, max_k=8)
        fresh.page.close()

    def test_keyboard_moves_each_slider(self, visit: Visit) -> None:
        sliders = [
            control(visit, "explorer", name)
            for name in (
                "Draft length k", "Acceptance rate α", "Draft cost c",
                "Verification slope",
            )
        ]  # fmt: skip
        for at in ((4, 80, 10, 0), (7, 86, 3, 4), (0, 75, 0, 9), (16, 70, 20, 2)):
            for slider, index in zip(sliders, at, strict=True):
                stand(slider, index)
            k, *rest = at
            self.check(visit, "explorer", k, *(index / 100 for index in rest))

    def test_the_ends_of_the_sliders(self, visit: Visit) -> None:
        names = ("Acceptance rate α", "Draft cost c", "Verification slope")
        stand(control(visit, "explorer", "Draft length k"), 3)
        for keys in product(("Home", "End"), repeat=3):
            for name, key in zip(names, keys, strict=True):
                control(visit, "explorer", name).press(key)
            at = [float(key == "End") for key in keys]
            self.check(visit, "explorer", 3, *at)

    def test_mouse_moves_it(self, visit: Visit) -> None:
        slider = control(visit, "explorer", "Acceptance rate α")
        for name in ("Draft cost c", "Verification slope"):
            stand(control(visit, "explorer", name), 2)
        stand(control(visit, "explorer", "Draft length k"), 5)
        mouse = visit.page.mouse
        slider.press("Home")
        mouse.move(*place(slider, 0, 101))
        mouse.down()
        for index in (30, 90, 60):
            mouse.move(*place(slider, index, 101), steps=4)
            now = int(slider.input_value())
            assert abs(now - index) <= 2
            self.check(visit, "explorer", 5, now / 100, 0.02, 0.02)
        mouse.up()

    def test_measured_rates(self, visit: Visit) -> None:
        slider = control(visit, "measured", "Temperature T")
        for index, (temperature, alpha) in enumerate(MEASURED.items()):
            stand(slider, index)
            text = f"{temperature:g} (α = {alpha:.2f})"
            assert slider.get_attribute("aria-valuetext") == text
            self.check(visit, "measured", 4, alpha, 0.1, 0.0, max_k=8)

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
    visit: Visit, pair: Pair
) -> None:
    box = visit.page.locator("#live")
    for name in ("Draft length k", "Temperature T"):
        assert control(visit, "live", name).is_disabled()
    note = box.locator(".specdec-note")
    assert note.is_visible()
    assert "need Python" in note.inner_text()
    assert "k = 4 and T = 1" in note.inner_text()
    run = sd.generate(
        pair.target,
        pair.tokenizer.encode(PROMPT),
        draft=sd.ModelDraft(pair.draft, sd.Sampler()),
        k=4,
        max_new_tokens=200,
        seed=1,
    )
    text = PROMPT + "".join(pair.tokenizer.pieces(run.tokens))
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
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    for slider in page.locator("article input[type=range]").all():
        box = slider.bounding_box()
        assert box["height"] >= 24
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= NARROW["width"]
        assert box["width"] >= 200
    for svg in page.locator("article svg[role=img]").all():
        box = svg.bounding_box()
        assert box["x"] + box["width"] <= NARROW["width"]
    # Words of the curve can still be read.
    size = page.locator("#explorer svg").evaluate(
        "svg => 12 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width"
    )
    assert size >= 8.5
    slider = control(visit, "grid", "Draft length k")
    page.touchscreen.tap(*place(slider, 4, len(KS)))
    assert slider.input_value() == "4"
    assert "Length 6," in page.locator("#grid figcaption").inner_text()
    assert (visit.errors, visit.foreign, visit.missing) == ([], [], [])
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


def widget_state(page: Path) -> str:
    found = re.search(
        rf'<script type="{re.escape(STATE)}">(.*?)</script>',
        page.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    return found[1] if found else ""


def test_widgets_of_every_page_are_light(site: Path) -> None:
    sizes = {
        page.name: len(gzip.compress(widget_state(page).encode()))
        for page in (site / "notebooks").glob("*.html")
        if widget_state(page)
    }
    assert sizes, "no page has a widget"
    assert {name: size for name, size in sizes.items() if size > MAX_DATA} == {}
