"""The sliders of chapter 11, on the built page, where no Python runs.

The numbers of the two symbols are enumerated here, through the library's rules; those
of the bill are held to decoding that is done here, in the settings the chapter prints.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from site_kit import (
    MAX_DATA,
    Visit,
    Widget,
    pair,
    prompts,
    three_decimals,
    widget_size,
)

import specdec_lib as sd

pytestmark = pytest.mark.browser

PAGE = "notebooks/11_verifying_more_cleverly.html"
SHARES = (0.05, 0.1, 0.2, 1 / 3, 0.4, 0.5, 0.6, 2 / 3, 0.8, 0.9)
COSTS, SLOPES = (0.02, 0.1, 0.2, 0.3), (0, 0.01, 0.02, 0.05, 0.1)
TEMPERATURES = (1, 0.6)
SHARE = "Target's p(a)"
SYMBOLS = {SHARE: SHARES}
BILL = {"Cost c of a draft call": COSTS, "Slope s of T(n)": SLOPES}
TREES = {  # name: depth, guesses
    "2": (1, 2),
    "3+1": (3, 4),
    "8": (1, 8),
    "2-3": (2, 8),
    "2-1-1-1": (4, 8),
    "5+3": (5, 8),
    "7+1": (7, 8),
}


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
    shape = {"2": (2,), "8": (8,), "2-3": (2, 3), "2-1-1-1": (2, 1, 1, 1)}[name]
    sampler = sd.Sampler(temperature=temperature)
    draft = sd.TreeDraft(pair().draft, sampler, sd.tree_shape(shape))
    rounds: list[sd.Round] = []
    for seed, prompt in enumerate(prompts(24).values()):
        rounds += sd.generate(
            pair().target,
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


@pytest.fixture
def symbols(chapter: Visit) -> Widget:
    return Widget(chapter.page, SYMBOLS)


@pytest.fixture
def bill(chapter: Visit) -> Widget:
    return Widget(chapter.page, BILL)


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


def check_symbols(caption: str, share: float) -> None:
    assert caption.startswith(f"p(a) = {share:.2f}, ")
    wanted = two_symbols(share)
    assert three_decimals(caption) == pytest.approx(wanted, abs=5.1e-4)


def test_both_start_where_they_were_told(fresh: Visit) -> None:
    """Before anything is touched: 10/9, 11/9 and 12/9 of section 2 of the paper."""
    text = Widget(fresh.page, SYMBOLS).caption()
    assert text.startswith("p(a) = 0.33, q(a) = 0.67. ")
    wanted = [10 / 9, 11 / 9, 12 / 9]
    assert three_decimals(text)[:3] == pytest.approx(wanted, abs=5.1e-4)
    text = Widget(fresh.page, BILL).caption()
    assert text.startswith("Draft call 0.1, slope 0. ")


def test_two_symbols_by_arrow_keys(symbols: Widget) -> None:
    """At every stop the numbers of the caption are those of the library's rules."""
    for (share,), caption in symbols.everywhere():
        check_symbols(caption, share)
        assert symbols.readout(SHARE) == f"{share:.2f}"


def test_two_symbols_by_mouse(symbols: Widget) -> None:
    symbols.stand(0.05)
    for share in symbols.drag(SHARE, 0.05, 0.2, 0.6, 0.9, 0.4):
        check_symbols(symbols.caption(), share)
    caption = symbols.click(SHARE, 2 / 3)
    assert three_decimals(caption)[:3] == [2, 2, 2]  # p = q: all is kept


def test_bars_have_the_height_of_what_is_kept(symbols: Widget) -> None:
    """Read from the picture: the pair ab, kept whole by the two rules."""
    for share in SHARES:
        symbols.stand(share)
        heights = symbols.svg.evaluate(
            """svg => {
                const axis = svg.querySelector('#axes_1 #patch_2 path').getBBox();
                return ['#009e73', '#cc79a7'].map((colour) =>
                    [...svg.querySelectorAll('#axes_1 > g > path')]
                    .filter((b) => b.getAttribute('style')
                        .toLowerCase().includes(`fill: ${colour}`))
                    .map((b) => b.getBBox().height / axis.height));
            }"""
        )
        wanted = two_symbols(share)[-2:]
        assert [len(each) for each in heights] == [4, 4]
        drawn = [1.05 * each[1] for each in heights]  # the axis ends at 1.05
        assert drawn == pytest.approx(wanted, abs=0.005)


def test_keyboard_reaches_every_bill(bill: Widget) -> None:
    """All twenty: c and s, no two alike, and dearer is never faster."""
    seen: dict[tuple[float, float], dict[Any, tuple[float, str]]] = {}
    for (c, s), caption in bill.everywhere():
        assert caption.startswith(f"Draft call {c:g}, slope {s:g}. ")
        seen[c, s] = best(caption)
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
    for c, s in product(COSTS, SLOPES):
        for (temperature, rule), (speed, where) in best(bill.stand(c, s)).items():
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
    said = best(bill.stand(c, s))[temperature, "tree"]
    speed = tree_tokens(name, temperature) / (1 + c * depth + s * guesses)
    assert said == (pytest.approx(speed, abs=0.0051), name)


def test_both_fit_a_telephone(telephone: Visit) -> None:
    for stops in (SYMBOLS, BILL):
        Widget(telephone.page, stops).check_fits()


def test_they_are_light(site: Path) -> None:
    assert 0 < widget_size(site / PAGE) <= MAX_DATA
