"""The sliders of chapter 11, on the built page, where no Python runs.

The numbers of the two symbols are enumerated here, through the library's rules; those
of the bill are held to decoding that is done here, in the settings the chapter prints.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from site_kit import NARROW, Visit, place

import specdec_lib as sd
from specdec_lib import experiments as ex
from specdec_lib.pair import book_pair
from specdec_lib.text import load_corpus

pytestmark = pytest.mark.browser

PAGE = "notebooks/11_verifying_more_cleverly.html"
SHARES = (0.05, 0.1, 0.2, 1 / 3, 0.4, 0.5, 0.6, 2 / 3, 0.8, 0.9)
START = SHARES.index(1 / 3)
COSTS, SLOPES = (0.02, 0.1, 0.2, 0.3), (0, 0.01, 0.02, 0.05, 0.1)
BILL_START = (0.1, 0)
TEMPERATURES = (1, 0.6)
LABELS = "Cost c of a draft call", "Slope s of T(n)"
TREES = {  # name: depth, guesses
    "2": (1, 2),
    "3+1": (3, 4),
    "8": (1, 8),
    "2-3": (2, 8),
    "2-1-1-1": (4, 8),
    "5+3": (5, 8),
    "7+1": (7, 8),
}
MAX_DATA = 150_000  # bytes, compressed


@cache
def two_symbols(share: float) -> list[float]:
    """What the caption says: three mean counts, then four chances of the pair ab."""
    p, q = np.array([share, 1 - share]), np.array([2, 1]) / 3

    def judge(rule: sd.verification.Verify) -> dict[Any, float]:
        def run(rng: Any) -> tuple[tuple[int, ...], int]:
            guess = (rng.categorical(q), rng.categorical(q))
            proposal = sd.Proposal(guess, np.array([q, q]))
            return guess, rule(np.array([p, p, p]), proposal, rng).accepted

        return sd.exact_distribution(run)

    laws = [judge(rule) for rule in (sd.verify_tokens, sd.verify_block)]
    means = [sum(kept * chance for (_, kept), chance in law.items()) for law in laws]
    pairs = np.minimum(np.outer(p, p), np.outer(q, q)).sum()
    limit = np.minimum(p, q).sum() + pairs
    whole = [law.get(((0, 1), 2), 0.0) for law in laws]
    return [*means, limit, p[0] * p[1], q[0] * q[1], *whole]


@cache
def tree_tokens(name: str, temperature: float) -> float:
    """Tokens per target call of one of the chapter's trees, decoded again."""
    pair = book_pair()
    documents = {
        document.name: pair.tokenizer.encode(document.text)
        for document in load_corpus().held_out.documents
    }
    shape = {"2": (2,), "8": (8,), "2-3": (2, 3), "2-1-1-1": (2, 1, 1, 1)}[name]
    sampler = sd.Sampler(temperature=temperature)
    draft = sd.TreeDraft(pair.draft, sampler, sd.tree_shape(shape))
    rounds: list[sd.Round] = []
    prompts = ex.cut_prompts(documents, count=24, length=16)
    for seed, prompt in enumerate(prompts.values()):
        rounds += sd.generate(
            pair.target,
            prompt,
            draft=draft,
            k=8,
            max_new_tokens=80,
            sampler=sampler,
            verify=sd.verify_tree,
            seed=seed,
        ).rounds
    tokens = sd.Metrics.from_rounds(rounds).tokens_per_call
    assert tokens is not None
    return tokens


class Widget:
    """One of the two widgets: its sliders, and the figure they move."""

    def __init__(self, page: Any, *labels: str) -> None:
        self.page = page
        self.box = page.locator(".specdec-widget").filter(
            has=page.get_by_role("slider", name=labels[0], exact=True)
        )
        assert self.box.count() == 1
        self.sliders = [
            self.box.get_by_role("slider", name=label, exact=True) for label in labels
        ]
        self.sliders[0].wait_for()
        self.sliders[0].scroll_into_view_if_needed()

    def stand(self, *indices: int) -> str:
        """Move by arrow keys from where it is; the caption shown then."""
        for slider, index in zip(self.sliders, indices, strict=True):
            slider.focus()
            now = int(slider.input_value())
            for _ in range(abs(index - now)):
                self.page.keyboard.press("ArrowRight" if index > now else "ArrowLeft")
            assert slider.input_value() == str(index)
        return self.caption()

    def caption(self) -> str:
        """What is shown below the figure, which is also the figure's name."""
        caption = self.box.locator("figcaption")
        assert caption.is_visible()
        text: str = caption.inner_text()
        svg = self.box.locator("svg")
        assert svg.count() == 1
        assert svg.is_visible()
        assert svg.get_attribute("role") == "img"
        assert svg.get_attribute("aria-label") == text
        return text


@pytest.fixture(scope="module")
def visit(open_page: Callable[..., Visit]) -> Iterator[Visit]:
    opened = open_page(PAGE)
    yield opened
    assert (opened.errors, opened.foreign, opened.missing) == ([], [], [])
    opened.page.close()


@pytest.fixture
def symbols(visit: Visit) -> Widget:
    return Widget(visit.page, "Target's p(a)")


@pytest.fixture
def bill(visit: Visit) -> Widget:
    return Widget(visit.page, *LABELS)


def numbers(caption: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.\d{3}", caption)]


def best(caption: str) -> dict[tuple[float, str], tuple[float, str]]:
    """(temperature, rule) -> (speedup, where), as a caption of the bill says."""
    found = {}
    for temperature in TEMPERATURES:
        part = re.search(rf"T = {temperature:g}: (token .*?)\.(?: T|$)", caption)
        assert part, caption
        for each in part[1].split(", "):
            match = re.fullmatch(r"(token|block|tree) (\d\.\d\d) at (.+)", each)
            assert match, each
            found[temperature, match[1]] = float(match[2]), match[3]
    return found


def test_both_start_where_they_were_told(open_page: Callable[..., Visit]) -> None:
    """Before anything is touched: 10/9, 11/9 and 12/9 of section 2 of the paper."""
    fresh = open_page(PAGE)
    text = Widget(fresh.page, "Target's p(a)").caption()
    assert text.startswith("p(a) = 0.33, q(a) = 0.67. ")
    assert numbers(text)[:3] == pytest.approx([10 / 9, 11 / 9, 12 / 9], abs=5.1e-4)
    text = Widget(fresh.page, *LABELS).caption()
    assert text.startswith("Draft call 0.1, slope 0. ")
    fresh.page.close()


def test_two_symbols_by_arrow_keys(symbols: Widget) -> None:
    """At every stop the numbers of the caption are those of the library's rules."""
    drawings = set()
    for index, share in enumerate(SHARES):
        text = symbols.stand(index)
        assert text.startswith(f"p(a) = {share:.2f}, ")
        assert numbers(text) == pytest.approx(two_symbols(share), abs=5.1e-4)
        readout = symbols.sliders[0].locator("xpath=..").locator(".specdec-readout")
        assert readout.inner_text() == f"{share:.2f}"
        drawings.add(symbols.box.locator("svg").inner_html())
    assert len(drawings) == len(SHARES)


def test_two_symbols_by_mouse(symbols: Widget) -> None:
    symbols.stand(0)
    handle, mouse = symbols.sliders[0], symbols.page.mouse
    mouse.move(*place(handle, 0, len(SHARES)))
    mouse.down()
    for index in (2, 6, 9, 4):
        mouse.move(*place(handle, index, len(SHARES)), steps=5)
        text = symbols.caption()
        assert numbers(text) == pytest.approx(two_symbols(SHARES[index]), abs=5.1e-4)
    mouse.up()
    mouse.click(*place(handle, 7, len(SHARES)))
    assert numbers(symbols.caption())[:3] == [2, 2, 2]  # p = q: all is kept


def test_bars_have_the_height_of_what_is_kept(symbols: Widget) -> None:
    """Read from the picture: the pair ab, kept whole by the two rules."""
    for index, share in enumerate(SHARES):
        symbols.stand(index)
        heights = symbols.page.evaluate(
            """box => {
                const svg = box.querySelector('svg');
                const axis = svg.querySelector('#axes_1 #patch_2 path').getBBox();
                return ['#009e73', '#cc79a7'].map((colour) =>
                    [...svg.querySelectorAll('#axes_1 > g > path')]
                    .filter((b) => b.getAttribute('style')
                        .toLowerCase().includes(`fill: ${colour}`))
                    .map((b) => b.getBBox().height / axis.height));
            }""",
            symbols.box.element_handle(),
        )
        wanted = two_symbols(share)[-2:]
        assert [len(each) for each in heights] == [4, 4]
        drawn = [1.05 * each[1] for each in heights]  # the axis ends at 1.05
        assert drawn == pytest.approx(wanted, abs=0.005)


def test_keyboard_reaches_every_bill(bill: Widget) -> None:
    """All twenty: c and s, no two alike, and dearer is never faster."""
    seen: dict[tuple[float, float], dict[Any, tuple[float, str]]] = {}
    drawings = set()
    for (i, c), (j, s) in product(enumerate(COSTS), enumerate(SLOPES)):
        text = bill.stand(i, j)
        assert text.startswith(f"Draft call {c:g}, slope {s:g}. ")
        seen[c, s] = best(text)
        drawings.add(bill.box.locator("svg").inner_html())
    assert len(drawings) == len(COSTS) * len(SLOPES)
    for (c, s), rules in seen.items():
        for key, (speed, _) in rules.items():
            for dearer in ((c, t) for t in SLOPES if t > s):
                assert seen[dearer][key][0] <= speed
            for dearer in ((b, s) for b in COSTS if b > c):
                assert seen[dearer][key][0] <= speed
            assert rules[key[0], "block"][0] >= rules[key[0], "token"][0]


def test_names_stand_for_their_price(bill: Widget) -> None:
    """Where the best stays the same, the speedup is N / (1 + c depth + s guesses)."""
    tokens: dict[tuple[float, str], list[tuple[float, float]]] = {}
    for (i, c), (j, s) in product(enumerate(COSTS), enumerate(SLOPES)):
        for (temperature, rule), (speed, where) in best(bill.stand(i, j)).items():
            if rule == "tree":
                depth, guesses = TREES[where]
            else:
                depth = guesses = int(where.removeprefix("k = "))
            price = 1 + c * depth + s * guesses
            key = (temperature, f"{rule} {where}")
            tokens.setdefault(key, []).append((speed * price, 0.0051 * price))
    for key, estimates in tokens.items():
        low = max(value - error for value, error in estimates)
        high = min(value + error for value, error in estimates)
        assert low <= high, key


@pytest.mark.parametrize(
    ("c", "s", "temperature", "name"),
    [(0.1, 0, 1, "2-1-1-1"), (0.1, 0, 0.6, "2-3"), (0.3, 0, 0.6, "8")],
)
def test_trees_are_those_of_the_library(
    bill: Widget, c: float, s: float, temperature: float, name: str
) -> None:
    depth, guesses = TREES[name]
    said = best(bill.stand(COSTS.index(c), SLOPES.index(s)))[temperature, "tree"]
    speed = tree_tokens(name, temperature) / (1 + c * depth + s * guesses)
    assert said == (pytest.approx(speed, abs=0.0051), name)


def test_captions_are_announced(symbols: Widget, bill: Widget) -> None:
    for widget in (symbols, bill):
        caption = widget.box.locator("figcaption")
        assert caption.get_attribute("aria-live") == "polite"


def test_both_fit_a_telephone(open_page: Callable[..., Visit]) -> None:
    narrow = open_page(PAGE, NARROW)
    for widget in (Widget(narrow.page, "Target's p(a)"), Widget(narrow.page, *LABELS)):
        box = widget.box.locator("svg").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= NARROW["width"]
    width = narrow.page.evaluate("document.documentElement.scrollWidth")
    assert width <= NARROW["width"]
    assert (narrow.errors, narrow.foreign) == ([], [])
    narrow.page.close()


def test_they_are_light(site: Path) -> None:
    html = (site / PAGE).read_text(encoding="utf-8")
    state = re.search(
        r'<script type="application/vnd.jupyter.widget-state\+json">(.*?)</script>',
        html,
        re.DOTALL,
    )
    assert state is not None
    assert len(gzip.compress(state[1].encode())) <= MAX_DATA
