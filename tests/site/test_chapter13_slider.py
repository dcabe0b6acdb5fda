"""The sliders of chapter 13, on the built page, where no Python runs.

The attention weights on the page are compared with those of the library's own
functions, where the model was fetched; the counts of the other with a count by hand.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from site_kit import NARROW, Visit, place

pytestmark = pytest.mark.browser

PAGE = "notebooks/13_a_llama_in_numpy.html"
STORY = (
    "Yesterday Anna mended the red net and Ben painted the boat. "
    "Today Anna mended the red net"
)
TOKENS, LAYER, HEAD = 21, 17, 5
START = 15
BLUE, HATCHED = "#0072b2", "url("  # as the drawing says it
MAX_DATA = 150_000  # bytes, compressed


@pytest.fixture(scope="module")
def chapter(open_page: Callable[..., Visit]) -> Iterator[Visit]:
    visit = open_page(PAGE)
    yield visit
    visit.page.close()


class Slider:
    """A slider and the figure it moves; ``begins`` begins every caption of it."""

    def __init__(self, page: Any, label: str, begins: str) -> None:
        self.page = page
        self.begins = begins
        self.handle = page.get_by_role("slider", name=label)
        self.handle.wait_for()
        self.handle.scroll_into_view_if_needed()
        self.figure = page.locator(".specdec-figure").filter(has_text=begins)

    def press(self, key: str) -> None:
        self.handle.focus()
        self.page.keyboard.press(key)

    def shows(self, number: int) -> str:
        """The caption of this number, once it is the one that is shown."""
        wanted = f"Token {number}, '"
        self.page.wait_for_function(
            """([wanted, part]) => [...document.querySelectorAll(
                '.specdec-figure figcaption')].some(c => c.offsetParent
                && c.innerText.startsWith(wanted) && c.innerText.includes(part))""",
            arg=[wanted, self.begins],
            timeout=5000,
        )
        captions = self.page.locator(".specdec-figure figcaption").all_inner_texts()
        seen = [c for c in captions if c.startswith(wanted) and self.begins in c]
        assert len(seen) == 1, seen
        return str(seen[0])

    def bars(self, colour: str) -> list[dict[str, float]]:
        """The patches of a fill in the drawing that is shown, as boxes."""
        found = self.page.evaluate(
            """([part, colour]) => {
                const figure = [...document.querySelectorAll('.specdec-figure')]
                    .find((f) => f.innerText.includes(part));
                const svg = [...figure.querySelectorAll('svg')]
                    .find((s) => s.getBoundingClientRect().width > 0);
                return [...svg.querySelectorAll('[id^="axes_"] > g > path')]
                    .filter((p) => (p.getAttribute('style') || '')
                        .toLowerCase().includes('fill: ' + colour))
                    .map((p) => p.getBBox())
                    .map((b) => ({ x: b.x, y: b.y, w: b.width, h: b.height }));
            }""",
            [self.begins, colour],
        )
        assert isinstance(found, list)
        return found


@pytest.fixture
def head(chapter: Visit) -> Slider:
    return Slider(chapter.page, "Token that looks back", "gives weight")


@pytest.fixture
def cache(chapter: Visit) -> Slider:
    return Slider(chapter.page, "Tokens read", "Without a cache")


@pytest.fixture(scope="module")
def seen() -> np.ndarray:
    """(T, T): the weights of the head, by the library's functions."""
    from specdec_lib import llama
    from specdec_lib.llama import forward

    try:
        model, tokenizer = llama.load("smollm2")
    except (FileNotFoundError, ImportError) as error:
        pytest.skip(str(error))
    config, layers = model.config, model.weights.layers
    ids = tokenizer.encode(STORY)
    T, H, G, d = len(ids), config.heads, config.kv_heads, config.head_width
    mask = forward.causal_mask(T, np.float32)
    turns = forward.rotations(range(T), config, np.float32)
    x = model.weights.embedding[ids]
    for layer in layers[:LAYER]:
        room = forward.Cache(
            np.empty((G, d, T), np.float32), np.empty((G, T, d), np.float32), 0
        )
        x = x + forward.attend(x, layer, room, turns, mask, config)
        x = x + forward.feed_forward(x, layer, config)
    normed = forward.rms_norm(x, layers[LAYER].attention_norm, config.epsilon)
    heads = forward.split_heads(normed @ layers[LAYER].qkv.T, config)
    turned = forward.rotate(np.ascontiguousarray(heads[:, : H + G]), turns)
    scores = turned[:, HEAD] @ turned[:, H + HEAD // (H // G)].T / np.sqrt(d)
    return np.asarray(forward.softmax(scores + mask))


def weights(caption: str) -> list[tuple[float, int]]:
    found = re.findall(r"(\d\.\d\d) to '[^']*' at (\d+)", caption)
    return [(float(weight), int(at)) for weight, at in found]


def test_it_starts_at_the_second_anna(chapter: Visit) -> None:
    """Before anything is touched: she looks at what followed the first."""
    slider = Slider(chapter.page, "Token that looks back", "gives weight")
    text = slider.shows(START)
    assert "'Anna'" in text
    weight, at = weights(text)[0]
    assert (at, "to 'm' at 3" in text) == (3, True)
    assert weight > 0.5


def test_the_arrow_keys_walk_through_the_story(head: Slider, seen: np.ndarray) -> None:
    head.press("Home")
    for i in range(TOKENS):
        if i:
            head.press("ArrowRight")
        told = weights(head.shows(i))
        assert told
        for weight, at in told:
            assert weight == pytest.approx(seen[i, at], abs=0.0056)
        assert told[0][0] == pytest.approx(seen[i].max(), abs=0.0056)
    head.press("ArrowRight")  # it ends there
    head.shows(TOKENS - 1)
    head.press("ArrowLeft")
    head.shows(TOKENS - 2)


def test_the_bars_are_the_weights(head: Slider, seen: np.ndarray) -> None:
    """Read from the picture: heights in the ratio of the weights."""
    head.press("Home")
    for i in range(TOKENS):
        if i:
            head.press("ArrowRight")
        head.shows(i)
        if i not in (0, 5, START, TOKENS - 1):
            continue
        heights = np.array([bar["h"] for bar in head.bars(BLUE)])
        assert len(heights) == i + 1  # nothing after the token itself
        assert heights / heights.sum() == pytest.approx(seen[i, : i + 1], abs=0.01)


def test_the_mouse_drags_it(head: Slider) -> None:
    head.press("Home")
    mouse = head.page.mouse
    mouse.move(*place(head.handle, 0, TOKENS))
    mouse.down()
    for i in (3, 17, 20, 8):
        mouse.move(*place(head.handle, i, TOKENS), steps=5)
        head.shows(i)
    mouse.up()
    head.shows(8)


def counted(n: int) -> list[int]:
    """Rows, weights and new keys without a cache; then with it, and those kept."""
    pairs = sum(1 for row in range(n) for column in range(n) if column <= row)
    return [n, pairs, n, 1, n, 1, n - 1]


def test_the_cache_starts_at_the_sixth_token(chapter: Visit) -> None:
    Slider(chapter.page, "Tokens read", "Without a cache").shows(6)


def test_the_cache_keeps_what_was_computed(cache: Slider) -> None:
    """The caption's counts, and as many cells of each colour in the picture."""
    cache.press("Home")
    for n in range(1, 9):
        if n > 1:
            cache.press("ArrowRight")
        caption = cache.shows(n)
        told = [int(x) for x in re.findall(r"(?:rows|weights|keys) (\d+)", caption)]
        assert told == counted(n)
        assert len(cache.bars(BLUE)) == sum((told[1], told[2], told[4], told[5]))
        assert len(cache.bars(HATCHED)) == told[6]
    cache.press("ArrowRight")
    cache.shows(8)


@pytest.mark.parametrize("name", ["head", "cache"])
def test_drawings_are_named_by_their_captions(
    name: str, request: pytest.FixtureRequest
) -> None:
    slider = request.getfixturevalue(name)
    slider.press("Home")
    caption = slider.shows(0 if name == "head" else 1)
    svg = slider.figure.locator("svg:visible")
    assert svg.count() == 1
    assert svg.get_attribute("role") == "img"
    assert svg.get_attribute("aria-label") == caption


def test_they_fit_a_telephone(open_page: Callable[..., Visit]) -> None:
    visit = open_page(PAGE, NARROW)
    for label, part, number in (
        ("Token that looks back", "gives weight", START + 1),
        ("Tokens read", "Without a cache", 7),
    ):
        slider = Slider(visit.page, label, part)
        slider.press("ArrowRight")
        slider.shows(number)
        box = slider.figure.locator("svg:visible").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= NARROW["width"]
    visit.page.close()


def test_the_data_are_light(site: Path) -> None:
    html = (site / PAGE).read_text(encoding="utf-8")
    state = re.search(
        r'<script type="application/vnd.jupyter.widget-state\+json">(.*?)</script>',
        html,
        re.DOTALL,
    )
    assert state is not None
    assert len(gzip.compress(state[1].encode())) < MAX_DATA


def test_nothing_failed_on_the_way(chapter: Visit, head: Slider) -> None:
    head.press("Home")
    assert chapter.errors == []
    assert chapter.foreign == []
    assert chapter.missing == []
