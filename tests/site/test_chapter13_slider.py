"""The sliders of chapter 13, on the built page, where no Python runs.

The attention weights on the page are compared with those of the library's own
functions, where the model was fetched; the counts of the other with a count by hand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from site_kit import MAX_DATA, Visit, Widget, widget_size

pytestmark = pytest.mark.browser

PAGE = "notebooks/13_a_llama_in_numpy.html"
STORY = (
    "Yesterday Anna mended the red net and Ben painted the boat. "
    "Today Anna mended the red net"
)
TOKENS, LAYER, HEAD = 21, 17, 5
START = 15
BLUE, HATCHED = "#0072b2", "url("  # as the drawing says it
LOOKS, READ = "Token that looks back", "Tokens read"
STORY_STOPS = {LOOKS: range(TOKENS)}
CACHE_STOPS = {READ: range(1, 9)}


class Boxes(Widget):
    """A slider and a figure of rectangles."""

    def boxes(self, colour: str) -> list[dict[str, Any]]:
        """Those of this fill in the drawing that is shown."""
        found = self.svg.evaluate(
            """(svg, colour) => [...svg.querySelectorAll('[id^="axes_"] > g > path')]
                .filter((p) => (p.getAttribute('style') || '')
                    .toLowerCase().includes('fill: ' + colour))
                .map((p) => p.getBBox())
                .map((b) => ({ x: b.x, y: b.y, w: b.width, h: b.height }))""",
            colour,
        )
        assert isinstance(found, list)
        return found


@pytest.fixture
def head(chapter: Visit) -> Boxes:
    return Boxes(chapter.page, STORY_STOPS)


@pytest.fixture
def cache(chapter: Visit) -> Boxes:
    return Boxes(chapter.page, CACHE_STOPS)


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
    """The two largest, and the tokens that they are given to."""
    found = re.findall(r"(\d\.\d\d) to '[^']*' at (\d+)", caption)
    return [(float(weight), int(at)) for weight, at in found]


def test_it_starts_at_the_second_anna(fresh: Visit) -> None:
    """Before anything is touched: she looks at what followed the first."""
    widget = Boxes(fresh.page, STORY_STOPS)
    caption = widget.caption()
    assert caption.startswith(f"Token {START}, 'Anna', ")
    assert widget.readout(LOOKS) == "Anna"
    assert "to 'm' at 3" in caption
    weight, at = weights(caption)[0]
    assert at == 3
    assert weight > 0.5


def test_the_arrow_keys_walk_through_the_story(head: Boxes, seen: np.ndarray) -> None:
    for (i,), caption in head.everywhere():
        assert caption.startswith(f"Token {i}, '{head.readout(LOOKS)}', ")
        told = weights(caption)
        assert told
        for weight, at in told:
            assert weight == pytest.approx(seen[i, at], abs=0.0056)
        assert told[0][0] == pytest.approx(seen[i].max(), abs=0.0056)


def test_the_bars_are_the_weights(head: Boxes, seen: np.ndarray) -> None:
    """Read from the picture: heights in the ratio of the weights."""
    for i in (0, 5, START, TOKENS - 1):
        head.stand(i)
        heights = np.array([bar["h"] for bar in head.boxes(BLUE)])
        assert len(heights) == i + 1  # nothing after the token itself
        assert heights / heights.sum() == pytest.approx(seen[i, : i + 1], abs=0.01)


def test_the_mouse_drags_it(head: Boxes) -> None:
    head.stand(0)
    for i in head.drag(LOOKS, 0, 3, 17, 20, 8):
        assert head.caption().startswith(f"Token {i}, ")
    assert head.caption().startswith("Token 8, ")


def counted(n: int) -> list[int]:
    """Rows, weights and new keys without a cache; then with it, and those kept."""
    pairs = sum(1 for row in range(n) for column in range(n) if column <= row)
    return [n, pairs, n, 1, n, 1, n - 1]


def test_the_cache_starts_at_the_sixth_token(fresh: Visit) -> None:
    assert Boxes(fresh.page, CACHE_STOPS).caption().startswith("Token 6, ")


def test_the_cache_keeps_what_was_computed(cache: Boxes) -> None:
    """The caption's counts, and as many cells of each colour in the picture."""
    for (n,), caption in cache.everywhere():
        assert caption.startswith(f"Token {n}, ")
        told = [int(x) for x in re.findall(r"(?:rows|weights|keys) (\d+)", caption)]
        assert told == counted(n)
        assert len(cache.boxes(BLUE)) == sum((told[1], told[2], told[4], told[5]))
        assert len(cache.boxes(HATCHED)) == told[6]


def test_they_fit_a_telephone(telephone: Visit) -> None:
    for stops, value in ((STORY_STOPS, START + 1), (CACHE_STOPS, 7)):
        widget = Widget(telephone.page, stops)
        widget.stand(value)
        widget.check_fits()


def test_they_are_light(site: Path) -> None:
    assert 0 < widget_size(site / PAGE) <= MAX_DATA
