"""What the tests of the pages share."""

from __future__ import annotations

import gzip
import json
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import NoBrowser, launch
from serve import SITE, make_server

from specdec_lib import experiments, theory
from specdec_lib.pair import Pair, book_pair
from specdec_lib.text import load_corpus

WIDE = {"width": 1366, "height": 900}
NARROW = {"width": 360, "height": 740}
SUBPATH = "a/b/c"  # where the site is served
STATE = "application/vnd.jupyter.widget-state+json"
MAX_DATA = 150_000  # bytes of the widgets of one page, compressed
HUNDREDTHS = tuple(i / 100 for i in range(101))


# Parts of the site that are no pages of the book, where they were built.
APART = {"_static", "_sources", "lite"}


def built_pages() -> list[str]:
    """Addresses of the built pages, as seen from the site's root."""
    return sorted(
        name.as_posix()
        for path in SITE.rglob("*.html")
        if (name := path.relative_to(SITE)).parts[0] not in APART
        and name.as_posix() != "index.html"  # it leads on to the first page
    )


def settle(page: Any) -> None:
    """Wait until formulas, fonts and widgets are drawn."""
    page.evaluate(
        """async () => {
            if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
            await document.fonts.ready;
        }"""
    )
    page.wait_for_function(
        """() => [...document.querySelectorAll(
                'script[type="application/vnd.jupyter.widget-view+json"]')]
            .every((view) => view.parentElement.querySelector(
                '.jupyter-widgets, .jp-Widget, .lm-Widget'))"""
    )


# Colours would fade into each other for a while; with this they change at once. The
# promise is kept when the page was drawn anew.
AT_ONCE = """() => {
    if (!document.getElementById("at-once")) {
        const style = document.createElement("style");
        style.id = "at-once";
        style.textContent =
            "*, ::before, ::after { transition: none !important; }";
        document.head.append(style);
    }
    return new Promise((drawn) =>
        requestAnimationFrame(() => requestAnimationFrame(() => drawn())));
}"""


@dataclass
class Visit:
    """What happened while a page was open, and the page itself."""

    page: Any
    name: str = ""
    foreign: list[str] = field(default_factory=list)
    files: set[str] = field(default_factory=set)  # asked of our server, as addresses
    missing: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _seen: tuple[dict[str, int], str, str] = (WIDE, "light", "screen")

    def look(
        self,
        viewport: dict[str, int] = WIDE,
        scheme: str = "light",
        media: str = "screen",
    ) -> None:
        """See the page on such a screen, in such colours, on screen or on paper."""
        if (viewport, scheme, media) == self._seen:
            return
        self.page.set_viewport_size(viewport)
        self.page.emulate_media(color_scheme=scheme, media=media)
        self.page.wait_for_function(
            "scheme => document.documentElement.dataset.theme === scheme", arg=scheme
        )
        self.page.evaluate(AT_ONCE)
        self._seen = (viewport, scheme, media)

    def check_quiet(self) -> None:
        """No error, nothing asked of another server, no file missing."""
        assert (self.errors, self.foreign, self.missing) == ([], [], [])


def served(folder: Path) -> Iterator[str]:
    """Serve a folder until the generator is resumed: the address, ended by a slash.

    It is served deep inside a site, as it may be published: whatever is asked of the
    folders above is asked of somebody else.
    """
    with tempfile.TemporaryDirectory() as above:
        inside = Path(above) / SUBPATH
        inside.parent.mkdir(parents=True)
        inside.symlink_to(folder.resolve(), target_is_directory=True)
        server = make_server(0, Path(above))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/{SUBPATH}/"
        server.shutdown()
        server.server_close()


def running_browser() -> Iterator[Any]:
    """A headless Chromium; a test fails without one, and says what to install."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        try:
            running = launch(playwright)
        except NoBrowser as error:
            pytest.fail(str(error), pytrace=False)
        yield running
        running.close()


def place(slider: Any, index: int, stops: int) -> tuple[float, float]:
    """Where the mouse must be for a range input to stand at `index` of its stops."""
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    thumb = 16  # its middle stays this far inside the track, over both ends
    x = box["x"] + thumb / 2 + index / (stops - 1) * (box["width"] - thumb)
    return x, box["y"] + box["height"] / 2


def check_within(element: Any) -> None:
    """It is drawn between the left and the right edge of the window."""
    box = element.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= element.page.viewport_size["width"]


def check_no_scroll(page: Any) -> None:
    """The page is no wider than the window."""
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= page.viewport_size["width"]


class Widget:
    """Sliders and the figure that they move, as a reader meets them.

    page
        the page, on which the labels of the sliders name one widget with a figure.
    stops
        the values at which each slider can stand, by its label.
    inside
        the part of the page to look in, where the labels alone are not enough.
    """

    before_caption = ""  # what the name of the figure says before its caption

    def __init__(
        self, page: Any, stops: Mapping[str, Sequence[Any]], *, inside: str = "body"
    ) -> None:
        self.page, self.stops = page, stops
        self.box = page.locator(f"{inside} .specdec-widget").filter(
            has=page.locator(".specdec-figure")
        )
        for label in stops:
            slider = page.get_by_role("slider", name=label, exact=True)
            self.box = self.box.filter(has=slider)
        self.box.wait_for(timeout=10_000)
        self.box.scroll_into_view_if_needed()
        assert self.box.get_by_role("slider").count() == len(stops)
        for label, values in stops.items():
            assert self.slider(label).get_attribute("max") == str(len(values) - 1)
        # The same element all the time: a new one would not be read out.
        self._caption = self.box.locator("figcaption").element_handle()
        assert self._caption.get_attribute("aria-live") == "polite"

    def slider(self, label: str) -> Any:
        """A slider by the name that a screen reader speaks, the whole of it."""
        return self.box.get_by_role("slider", name=label, exact=True)

    def value(self, label: str) -> Any:
        """Where this slider stands."""
        return self.stops[label][int(self.slider(label).input_value())]

    def readout(self, label: str) -> str:
        """The value that is written beside a slider, which is also spoken."""
        slider = self.slider(label)
        readout = slider.locator("xpath=..").locator(".specdec-readout")
        assert readout.is_visible()
        text = str(readout.inner_text())
        assert slider.get_attribute("aria-valuetext") == text
        return text

    @property
    def svg(self) -> Any:
        """The one drawing that is shown."""
        svg = self.box.locator("svg")
        assert svg.count() == 1
        assert svg.is_visible()
        return svg

    def caption(self) -> str:
        """What is written below the figure, which is also the figure's name."""
        assert self.box.locator("figcaption").count() == 1
        assert self._caption.is_visible()
        text = str(self._caption.inner_text())
        svg = self.svg
        assert svg.get_attribute("role") == "img"
        assert svg.get_attribute("aria-label") == self.before_caption + text
        return text

    def stand(self, *values: Any) -> str:
        """Move all sliders by arrow keys from where they are; the caption shown then.

        The focus is set once: it must stay where it is while the figure changes.
        """
        for (label, stops), value in zip(self.stops.items(), values, strict=True):
            slider, index = self.slider(label), stops.index(value)
            slider.focus()
            now = int(slider.input_value())
            for _ in range(abs(index - now)):
                self.page.keyboard.press("ArrowRight" if index > now else "ArrowLeft")
            assert slider.input_value() == str(index)
        return self.caption()

    def everywhere(self) -> Iterator[tuple[tuple[Any, ...], str]]:
        """Stand at all combinations of the values in turn: each, and its caption.

        In the end no two of the captions, and no two of the drawings, may be alike.
        """
        combinations = list(product(*self.stops.values()))
        captions, drawings = set(), set()
        for values in combinations:
            caption = self.stand(*values)
            yield values, caption
            captions.add(caption)
            drawings.add(self.svg.inner_html())
        assert len(captions) == len(drawings) == len(combinations)

    def at(self, label: str, value: Any) -> tuple[float, float]:
        """Where the mouse must be for a slider to stand at this value."""
        stops = self.stops[label]
        return place(self.slider(label), stops.index(value), len(stops))

    def drag(self, label: str, start: Any, *values: Any) -> Iterator[Any]:
        """Take a slider with the mouse at `start` and draw it to each of the values.

        The value is given back when the mouse is there, its button held down; the
        button is let go after the last.
        """
        mouse = self.page.mouse
        mouse.move(*self.at(label, start))
        mouse.down()
        for value in values:
            mouse.move(*self.at(label, value), steps=4)
            yield value
        mouse.up()

    def click(self, label: str, value: Any) -> str:
        """Click on the track of a slider at this value; the caption shown then."""
        self.page.mouse.click(*self.at(label, value))
        return self.caption()

    def check_fits(self) -> None:
        """Its sliders and its figure are inside the window, and so is the page."""
        for element in (self.svg, *map(self.slider, self.stops)):
            check_within(element)
        check_no_scroll(self.page)


class Explorer(Widget):
    """The widget that computes the speedup in the page, and says all that it found."""

    before_caption = "Speedup against draft length. "

    def check(self, k: int, alpha: float, cost: float, slope: float) -> None:
        """Its figures, its caption and its curve are those of the library."""

        def verify(n: int) -> float:
            return 1 + slope * (n - 1)

        max_k = self.stops["Draft length k"][-1]
        curve = [theory.speedup(alpha, i, cost, verify) for i in range(max_k + 1)]
        tokens = theory.expected_tokens(alpha, k)
        best = theory.best_k(alpha, cost, verify, max_k=max_k)
        shown = {
            value.get_attribute("data-name"): json.loads(
                value.get_attribute("data-values")
            )
            for value in self.box.locator("dd").all()
        }
        assert shown["Tokens per call"] == pytest.approx([tokens], rel=0, abs=1e-9)
        assert shown["Speedup"] == pytest.approx([curve[k]], rel=0, abs=1e-9)
        assert shown["Best k"] == pytest.approx([best, max(curve)], rel=0, abs=1e-9)

        caption = self.caption()
        assert f"{tokens:.2f} tokens per call, speedup {curve[k]:.2f}." in caption
        assert f"best k is {best}, with speedup {max(curve):.2f}" in caption
        assert (best == 0) == caption.endswith("guessing does not pay.")
        svg = self.svg
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


def widget_state(page: Path) -> str:
    """What a built page holds for its widgets; nothing where it has none."""
    found = re.search(
        rf'<script type="{re.escape(STATE)}">(.*?)</script>',
        page.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    return found[1] if found else ""


def widget_size(page: Path) -> int:
    """Bytes of this as they travel, compressed; 0 where there is none."""
    state = widget_state(page)
    return len(gzip.compress(state.encode())) if state else 0


def three_decimals(caption: str) -> list[float]:
    """All numbers of a caption that have three decimals."""
    return [float(number) for number in re.findall(r"\d+\.\d{3}", caption)]


@cache
def pair() -> Pair:
    """The pair of models of the book."""
    return book_pair()


@cache
def held_out() -> dict[str, Any]:
    """The held-out documents in tokens, by name."""
    return {
        document.name: pair().tokenizer.encode(document.text)
        for document in load_corpus().held_out.documents
    }


@cache
def prompts(count: int) -> dict[str, tuple[int, ...]]:
    """Beginnings of 16 tokens, cut from these as the chapters cut them."""
    return experiments.cut_prompts(held_out(), count=count, length=16)
