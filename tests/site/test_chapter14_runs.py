"""The texts of chapter 14 on the built page, where no Python runs.

The counts on the page are compared with those of the library's loop, on a target that
knows the stored answer by heart; the seconds with the file of the stored runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from site_kit import MAX_DATA, Visit, check_no_scroll, check_within, widget_size

import specdec_lib as sd
from specdec_lib.prompts import load_prompts

pytestmark = pytest.mark.browser

PAGE = "notebooks/14_real_speedups.html"
FILE = Path(__file__).parents[2] / "notebooks" / "data" / "real_runs.json"
STORED = json.loads(FILE.read_text(encoding="utf-8"))
NAMES, KS = STORED["swept"], [0, *STORED["ks"]]
PROMPT, LENGTH = "Prompt", "Most guesses a call, k"
START = ("question-tarn", STORED["k"])


class Runs:
    """The two sliders, and what stands below them."""

    def __init__(self, page: Any) -> None:
        self.page = page
        slider = page.get_by_role("slider", name=PROMPT, exact=True)
        self.box = page.locator(".specdec-widget").filter(has=slider)
        self.box.wait_for(timeout=10_000)
        self.box.scroll_into_view_if_needed()

    def slider(self, label: str) -> Any:
        return self.box.get_by_role("slider", name=label, exact=True)

    def stand(self, name: str, k: int) -> None:
        """Move both by the arrow keys."""
        for label, at in ((PROMPT, NAMES.index(name)), (LENGTH, KS.index(k))):
            slider = self.slider(label)
            slider.focus()
            now = int(slider.input_value())
            for _ in range(abs(at - now)):
                self.page.keyboard.press("ArrowRight" if at > now else "ArrowLeft")
            assert slider.get_attribute("aria-valuetext") == str(
                (name, k)[label != PROMPT]
            )

    def summary(self) -> str:
        return str(self.box.get_by_role("status").inner_text())

    def answer(self) -> list[tuple[str, str]]:
        """The tokens with their kinds, without the prompt."""
        return [
            (text, kind.removeprefix("specdec-"))
            for text, kind in self.box.locator(".specdec-text > span").evaluate_all(
                "all => all.map((one) => [one.textContent, one.className])"
            )
        ][1:]


@pytest.fixture
def runs(chapter: Visit) -> Runs:
    return Runs(chapter.page)


def rounds(name: str, k: int) -> tuple[sd.Round, ...]:
    """Lookup on the stored answer, after the prompt as the page's text has it."""
    from specdec_lib import llama

    try:
        _, tokenizer = llama.load("smollm2")
    except (FileNotFoundError, ImportError) as error:
        pytest.skip(str(error))
    (prompt,) = (each for each in load_prompts() if each.name == name)
    asked = tokenizer.chat(prompt.messages).tolist()
    text = [*asked, *STORED["prompts"][name]["tokens"]]
    ids, text = np.unique(text, return_inverse=True)

    def logits(sequence: tuple[int, ...]) -> Any:
        return np.arange(len(ids)) == text[min(len(sequence), len(text) - 1)]

    return sd.generate(
        sd.FunctionModel(logits, len(ids)),
        text[: len(asked)],
        draft=sd.PromptLookup(),
        k=k,
        max_new_tokens=len(text) - len(asked),
        sampler=sd.Sampler(temperature=0),
        seed=0,
    ).rounds


def stored(name: str, k: int) -> dict[str, Any]:
    (run,) = (
        r
        for r in STORED["runs"]
        if (r["series"], r["prompt"], r["draft"], r["k"])
        == ("NumPy", name, "lookup" if k else "plain", k)
    )
    return dict(run)


def test_it_starts_where_it_was_told(fresh: Visit) -> None:
    name, k = START
    assert Runs(fresh.page).summary().startswith(f"{name}, k = {k}: ")


def everywhere(runs: Runs) -> Iterator[tuple[str, int]]:
    for name, k in product(NAMES, KS):
        runs.stand(name, k)
        yield name, k


def test_arrow_keys_reach_every_run_and_the_figures_are_the_stored_ones(
    runs: Runs,
) -> None:
    for name, k in everywhere(runs):
        run, n = stored(name, k), len(STORED["prompts"][name]["tokens"])
        took, plain = (median(stored(name, each)["seconds"]) for each in (k, 0))
        assert runs.summary() == (
            f"{name}, k = {k}: {n} tokens in {run['calls']} calls, "
            f"{n / run['calls']:.2f} a call; {took:.2f} s, plain {plain:.2f} s: "
            f"{plain / took:.2f} times as fast."
        )
        kinds = [kind for _, kind in runs.answer()]
        assert len(kinds) == n
        assert kinds.count("accepted") == run["accepted"]
        assert n - kinds.count("accepted") in (run["calls"], run["calls"] - 1)
        if not k:
            assert set(kinds) == {"plain"}


def test_the_answer_stays_while_its_marks_change(runs: Runs) -> None:
    for name in NAMES[:2]:
        texts, marks = set(), set()
        for k in KS:
            runs.stand(name, k)
            pieces, kinds = zip(*runs.answer(), strict=True)
            texts.add("".join(pieces))
            marks.add(kinds)
        assert len(texts) == 1
        assert len(marks) > 2


@pytest.mark.parametrize("name", NAMES[::3])
def test_each_token_is_marked_as_the_loop_made_it(runs: Runs, name: str) -> None:
    for k in (0, 4):
        runs.stand(name, k)
        wanted = []
        for each in rounds(name, k):
            for place in range(len(each.emitted)):
                if not each.drafted:
                    wanted.append("plain")
                elif place < each.accepted:
                    wanted.append("accepted")
                else:
                    end = place == len(each.drafted)
                    wanted.append("bonus" if end else "correction")
        assert [kind for _, kind in runs.answer()] == wanted


def test_the_legend_names_the_marks_that_are_there(runs: Runs) -> None:
    runs.stand(*START)
    legend = runs.box.locator(".specdec-legend")
    for kind in {kind for _, kind in runs.answer()}:
        assert legend.locator(f".specdec-{kind}").count() == 1
    runs.stand(START[0], 0)
    assert legend.inner_text().strip() == "token of the target"


def test_the_live_sliders_say_that_they_need_a_kernel(fresh: Visit) -> None:
    slider = fresh.page.get_by_role("slider", name="Temperature T", exact=True)
    assert slider.is_disabled()
    box = fresh.page.locator(".specdec-widget").filter(has=slider)
    assert "need Python" in box.locator(".specdec-note").inner_text()
    found = re.search(
        r"(\d+) tokens by (\d+) calls", box.get_by_role("status").inner_text()
    )
    assert found
    assert 0 < int(found[2]) < int(found[1])


def test_coloured_answers_are_two_and_told_apart(fresh: Visit) -> None:
    texts = fresh.page.locator(".sd-ct")
    assert texts.count() == 2
    shares = []
    for i in range(2):
        first = texts.nth(i).locator("ol > li").first
        first.focus()
        assert first.locator(".sd-ct-note").is_visible()
        legend = texts.nth(i).locator(".sd-ct-legend").inner_text()
        counts = [int(n) for n in re.findall(r"\((\d+)\)", legend)]
        shares.append(counts[0] / sum(counts))
    assert all(a > b for a, b in pairwise(shares))  # the grounded one copies more


def test_they_fit_a_telephone(telephone: Visit) -> None:
    runs = Runs(telephone.page)
    runs.stand(NAMES[-1], KS[-1])
    for part in (".specdec-text", ".specdec-summary"):
        check_within(runs.box.locator(part))
    for label in (PROMPT, LENGTH):
        check_within(runs.slider(label))
    check_no_scroll(telephone.page)


def test_they_are_light(site: Path) -> None:
    assert 0 < widget_size(site / PAGE) <= MAX_DATA
