"""The sliders and the coloured text of chapter 10, on the built page.

No Python runs there. What the page shows is compared with copying done here by plain
scans, and with the runs of "bananas" written out; only the texts are the chapter's.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import nbformat
import pytest
from site_kit import NARROW, Visit, place

from specdec_lib.pair import book_pair

pytestmark = pytest.mark.browser

NAME = "10_copying_from_the_prompt"
PAGE = f"notebooks/{NAME}.html"
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / f"{NAME}.ipynb"
KS, SHORTEST, LONGEST = (1, 2, 4, 8, 16), (1, 2, 3, 4, 6), 8
WORD, START = "bananas", 4
TASKS = ("summary", "edit", "code", "open")
MAX_DATA = 150_000  # bytes, compressed
AXES = {"left": ("#009e73", 9), "right": ("#555555", 10)}  # colour, end of the axis


@cache
def tasks() -> dict[str, tuple[list[int], list[int]]]:
    """Prompt and answer of each task, in tokens, by the chapter's own first cells."""
    names: dict[str, Any] = {}
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
            if "tasks" in names:
                break
    encode = book_pair().tokenizer.encode
    return {
        name: (encode(prompt).tolist(), encode(answer).tolist())
        for name, (prompt, answer) in names["tasks"].items()
    }


def scan(text: list[int], k: int, shortest: int, longest: int = LONGEST) -> list[int]:
    """What followed the longest known end of the text the last time."""
    for n in range(longest, shortest - 1, -1):
        for i in reversed(range(len(text) - n)):
            if text[i : i + n] == text[-n:]:
                return text[i + n : i + n + k]
    return []


@cache
def rounds(name: str, k: int, shortest: int, longest: int) -> list[tuple[int, int]]:
    """(guesses, guesses kept) of each call that writes the answer."""
    prompt, left = tasks()[name]
    text, found = list(prompt), []
    while left:
        guess = scan(text, min(k, len(left) - 1), shortest, longest)
        kept = 0
        while kept < len(guess) and guess[kept] == left[kept]:
            kept += 1
        found.append((len(guess), kept))
        text, left = text + left[: kept + 1], left[kept + 1 :]
    return found


def expected(k: int, shortest: int) -> list[tuple[float, float]]:
    """Tokens per call, and tokens scored per token written, of each task."""
    pairs = []
    for name in TASKS:
        found = rounds(name, k, shortest, LONGEST)
        written = len(tasks()[name][1])
        scored = sum(guesses + 1 for guesses, _ in found)
        pairs.append((written / len(found), scored / written))
    return pairs


def states(word: str) -> Counter[str]:
    """The longest of the runs that end at the same places, and how many these are."""
    groups: dict[tuple[int, ...], str] = {}
    for i, j in product(range(len(word)), range(1, len(word) + 1)):
        if i < j:
            run = word[i:j]
            ends = tuple(e for e in range(len(word) + 1) if word[:e].endswith(run))
            groups[ends] = max(groups.get(ends, ""), run, key=len)
    return Counter({run: len(ends) for ends, run in groups.items()})


def guess_after(word: str) -> tuple[str, str] | None:
    """The longest end that was followed by something, and what came most often."""
    for n in range(len(word) - 1, 0, -1):
        after = [
            word[i + n] for i in range(len(word) - n) if word[i : i + n] == word[-n:]
        ]
        if after:
            return word[-n:], Counter(after).most_common(1)[0][0]
    return None


@pytest.fixture(scope="module")
def visit(open_page: Callable[..., Visit]) -> Iterator[Visit]:
    opened = open_page(PAGE)
    yield opened
    assert (opened.errors, opened.foreign, opened.missing) == ([], [], [])
    opened.page.close()


class Widget:
    """Sliders and the figure that they move, as a reader meets them."""

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
        caption = self.box.locator("figcaption")
        assert caption.is_visible()
        text = caption.inner_text()
        svg = self.box.locator("svg")
        assert svg.count() == 1
        assert svg.is_visible()
        assert svg.get_attribute("role") == "img"
        assert svg.get_attribute("aria-label") == text
        return text


@pytest.fixture
def grid(visit: Visit) -> Widget:
    return Widget(visit.page, "Draft length k", "Shortest match m")


@pytest.fixture
def growth(visit: Visit) -> Widget:
    return Widget(visit.page, "Letters read")


def check_grid(caption: str, k: int, shortest: int) -> None:
    assert caption.startswith(f"k = {k}, matches of {shortest} to {LONGEST} tokens.")
    for name, (brought, scored) in zip(TASKS, expected(k, shortest), strict=True):
        assert f"{name} {brought:.2f} and {scored:.2f}" in caption


def test_both_start_where_they_were_told(open_page: Callable[..., Visit]) -> None:
    fresh = open_page(PAGE).page
    check_grid(Widget(fresh, "Draft length k", "Shortest match m").caption(), 4, 1)
    caption = Widget(fresh, "Letters read").caption()
    assert caption.startswith(f"“{WORD[:START]}”")
    fresh.close()


def test_keyboard_reaches_every_figure_of_the_grid(grid: Widget) -> None:
    """All 25, each with the counts of a plain scan, and no two drawings alike."""
    drawings = set()
    for (i, k), (j, shortest) in product(enumerate(KS), enumerate(SHORTEST)):
        check_grid(grid.stand(i, j), k, shortest)
        drawings.add(grid.box.locator("svg").inner_html())
    assert len(drawings) == len(KS) * len(SHORTEST)


@pytest.mark.parametrize(("k", "shortest"), [(1, 1), (16, 1), (4, 3)])
def test_bars_are_as_long_as_the_numbers(grid: Widget, k: int, shortest: int) -> None:
    grid.stand(KS.index(k), SHORTEST.index(shortest))
    for side, values in zip(
        AXES, zip(*expected(k, shortest), strict=True), strict=True
    ):
        colour, end = AXES[side]
        lengths = grid.page.evaluate(
            """([axes, colour]) => {
                const svg = [...document.querySelectorAll('.specdec-figure svg')]
                    .find((s) => s.textContent.includes('tokens per call'));
                const frame = svg.querySelector(`#${axes} #patch_2 path`)
                    ?? svg.querySelector(`#${axes} > g > path`);
                return [...svg.querySelectorAll(`#${axes} > g > path`)]
                    .filter((p) => p.getAttribute('style').includes(`fill: ${colour}`))
                    .map((p) => p.getBBox().width / frame.getBBox().width);
            }""",
            ["axes_1" if side == "left" else "axes_2", colour],
        )
        assert [x * end for x in lengths] == pytest.approx(list(values), abs=0.02)


def test_the_automaton_grows_letter_by_letter(growth: Widget) -> None:
    """Its states, the new ones, the counts and the guess, by the runs themselves."""
    for n in range(1, len(WORD) + 1):
        caption = growth.stand(n - 1)
        word, known, before = WORD[:n], states(WORD[:n]), states(WORD[: n - 1])
        assert caption.startswith(f"“{word}”: {len(known) + 1} states, new ")
        new = re.search(r"new (.*?)\. ", caption)
        assert new is not None
        assert set(re.findall("“(.*?)”", new[1])) == set(known) - set(before)
        guess = guess_after(word)
        if guess is None:
            assert "there is no guess" in caption
        else:
            assert f"Its end “{guess[0]}” was seen before" in caption
            assert f"the guess is “{guess[1]}”" in caption
        check_boxes(growth, known, len(set(known) - set(before)))


def check_boxes(growth: Widget, known: Counter[str], new: int) -> None:
    """Each state is drawn once, with its count, and the new ones are orange."""
    texts: Sequence[str] = growth.box.locator("svg text").all_text_contents()
    words = [text.strip() for text in texts]
    drawn = {
        name: int(count[1:]) for name, count in pairwise(words) if count.startswith("×")
    }
    assert drawn == known
    assert words.count("start") == 1
    fills = growth.page.evaluate(
        """() => {
            const svg = [...document.querySelectorAll('.specdec-figure svg')]
                .find((s) => s.textContent.includes('start'));
            return [...svg.querySelectorAll('path')]
                .filter((p) => /fill: #fcebc9/i.test(p.getAttribute('style'))).length;
        }"""
    )
    assert fills == new


def test_mouse_moves_them(grid: Widget, growth: Widget) -> None:
    mouse = grid.page.mouse
    grid.stand(0, 0)
    mouse.move(*place(grid.sliders[0], 0, len(KS)))
    mouse.down()
    for index in (1, 4, 2):
        mouse.move(*place(grid.sliders[0], index, len(KS)), steps=4)
        check_grid(grid.caption(), KS[index], 1)
    mouse.up()
    mouse.click(*place(grid.sliders[1], 3, len(SHORTEST)))
    check_grid(grid.caption(), KS[2], SHORTEST[3])
    for index in (6, 0, 3):
        mouse.click(*place(growth.sliders[0], index, len(WORD)))
        assert growth.caption().startswith(f"“{WORD[: index + 1]}”")


def test_the_coloured_text_shows_each_round(open_page: Callable[..., Visit]) -> None:
    """Its tokens are the answer's, each of the kind that a plain scan says."""
    visit = open_page(PAGE)  # where no mouse rests on a token
    items = visit.page.locator("#edit ol > li")
    kinds = []
    for guesses, kept in rounds("edit", 4, 1, 3):
        kinds += ["accepted guess, "] * kept
        if kept < guesses:
            kinds.append("correction, ")
        elif guesses > 1:
            kinds.append(f"bonus token, after {guesses} of {guesses} guesses")
        else:
            after = ("in a round without a guess", "after the only guess")[guesses]
            kinds.append(f"bonus token, {after}")
    assert items.count() == len(kinds) == len(tasks()["edit"][1])
    visit.page.locator("#edit .sd-ct-skip").focus()
    for kind in kinds:
        visit.page.keyboard.press("Tab")
        note = visit.page.locator("#edit .sd-ct-note:visible")
        assert f": {kind}" in note.inner_text()
    visit.page.close()


def test_they_fit_a_telephone(open_page: Callable[..., Visit]) -> None:
    narrow = open_page(PAGE, NARROW)
    for labels in (("Draft length k", "Shortest match m"), ("Letters read",)):
        widget = Widget(narrow.page, *labels)
        widget.stand(*[1] * len(labels))
        box = widget.box.locator("svg").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= NARROW["width"]
    width = narrow.page.evaluate("document.documentElement.scrollWidth")
    assert width <= NARROW["width"]
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
