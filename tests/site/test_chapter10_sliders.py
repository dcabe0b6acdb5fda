"""The sliders and the coloured text of chapter 10, on the built page.

No Python runs there. What the page shows is compared with copying done here by plain
scans, and with the runs of "bananas" written out; only the texts are the chapter's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import nbformat
import pytest
from site_kit import MAX_DATA, Visit, Widget, pair, widget_size

pytestmark = pytest.mark.browser

NAME = "10_copying_from_the_prompt"
PAGE = f"notebooks/{NAME}.html"
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / f"{NAME}.ipynb"
KS, SHORTEST, LONGEST = (1, 2, 4, 8, 16), (1, 2, 3, 4, 6), 8
WORD, START = "bananas", 4
GRID = {"Draft length k": KS, "Shortest match m": SHORTEST}
GROWTH = {"Letters read": range(1, len(WORD) + 1)}
TASKS = ("summary", "edit", "code", "open")
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
    encode = pair().tokenizer.encode
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


@pytest.fixture
def grid(chapter: Visit) -> Widget:
    return Widget(chapter.page, GRID)


@pytest.fixture
def growth(chapter: Visit) -> Widget:
    return Widget(chapter.page, GROWTH)


def check_grid(caption: str, k: int, shortest: int) -> None:
    assert caption.startswith(f"k = {k}, matches of {shortest} to {LONGEST} tokens.")
    for name, (brought, scored) in zip(TASKS, expected(k, shortest), strict=True):
        assert f"{name} {brought:.2f} and {scored:.2f}" in caption


def test_both_start_where_they_were_told(fresh: Visit) -> None:
    check_grid(Widget(fresh.page, GRID).caption(), 4, 1)
    caption = Widget(fresh.page, GROWTH).caption()
    assert caption.startswith(f"“{WORD[:START]}”")


def test_keyboard_reaches_every_figure_of_the_grid(grid: Widget) -> None:
    """All 25, each with the counts of a plain scan, and no two drawings alike."""
    for (k, shortest), caption in grid.everywhere():
        check_grid(caption, k, shortest)


@pytest.mark.parametrize(("k", "shortest"), [(1, 1), (16, 1), (4, 3)])
def test_bars_are_as_long_as_the_numbers(grid: Widget, k: int, shortest: int) -> None:
    grid.stand(k, shortest)
    for side, values in zip(
        AXES, zip(*expected(k, shortest), strict=True), strict=True
    ):
        colour, end = AXES[side]
        lengths = grid.svg.evaluate(
            """(svg, [axes, colour]) => {
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
    for (n,), caption in growth.everywhere():
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
    texts: Sequence[str] = growth.svg.locator("text").all_text_contents()
    words = [text.strip() for text in texts]
    drawn = {
        name: int(count[1:]) for name, count in pairwise(words) if count.startswith("×")
    }
    assert drawn == known
    assert words.count("start") == 1
    fills = growth.svg.evaluate(
        """svg => [...svg.querySelectorAll('path')]
            .filter((p) => /fill: #fcebc9/i.test(p.getAttribute('style'))).length"""
    )
    assert fills == new


def test_mouse_moves_them(grid: Widget, growth: Widget) -> None:
    grid.stand(1, 1)
    for k in grid.drag("Draft length k", 1, 2, 16, 4):
        check_grid(grid.caption(), k, 1)
    check_grid(grid.click("Shortest match m", 4), 4, 4)
    for letters in (7, 1, 4):
        caption = growth.click("Letters read", letters)
        assert caption.startswith(f"“{WORD[:letters]}”")


def test_the_coloured_text_shows_each_round(fresh: Visit) -> None:
    """Its tokens are the answer's, each of the kind that a plain scan says."""
    page = fresh.page  # where no mouse rests on a token
    items = page.locator("#edit ol > li")
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
    page.locator("#edit .sd-ct-skip").focus()
    for kind in kinds:
        page.keyboard.press("Tab")
        note = page.locator("#edit .sd-ct-note:visible")
        assert f": {kind}" in note.inner_text()


def test_they_fit_a_telephone(telephone: Visit) -> None:
    for stops in (GRID, GROWTH):
        widget = Widget(telephone.page, stops)
        widget.stand(*(values[1] for values in stops.values()))
        widget.check_fits()


def test_they_are_light(site: Path) -> None:
    assert 0 < widget_size(site / PAGE) <= MAX_DATA
