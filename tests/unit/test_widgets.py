"""The widgets before any page shows them: structure, errors, and live decoding."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib.pair import train_pair
from specdec_lib.widgets import SpeedupExplorer, ToldText, figure_grid, live, text_grid
from specdec_lib.widgets.restart import Latest

KS, TEMPERATURES = (1, 2, 4), (0.5, 1.0)


def draw(k, temperature):
    fig, ax = plt.subplots(figsize=(2, 1.5))
    ax.plot(np.linspace(0, 1, 7), np.linspace(0, k / 3, 7) ** temperature)
    return fig


def describe(k, temperature):
    return f"k = {k}, T = {temperature}"


class TestImport:
    def run(self, code):
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )

    def test_optional_packages_come_only_when_asked_for(self):
        done = self.run(
            "import sys, specdec_lib.widgets as w\n"
            "assert not {'anywidget', 'ipywidgets', 'matplotlib'} & set(sys.modules)\n"
            "assert dir(w) == ['Exhibit', 'SpeedupExplorer', 'ToldText',"
            " 'coloured_text', 'figure_grid', 'figure_slider', 'gallery', 'live',"
            " 'text_grid', 'token_notes']\n"
            "w.live; assert 'anywidget' in sys.modules\n"
            "assert 'matplotlib' not in sys.modules\n"
            "assert callable(w.live)"
        )
        assert done.returncode == 0, done.stderr

    def test_without_anywidget_the_message_says_what_to_install(self):
        done = self.run(
            "import sys; sys.modules['anywidget'] = None\n"
            "from specdec_lib.widgets import SpeedupExplorer"
        )
        assert "pip install 'specdec_lib[widgets]'" in done.stderr.splitlines()[-1]

    def test_unknown_name(self):
        import specdec_lib.widgets

        with pytest.raises(AttributeError, match="no attribute 'sliders'"):
            specdec_lib.widgets.sliders


class TestGrid:
    def test_one_figure_for_each_pair_in_the_order_that_the_page_reads(self):
        grid = figure_grid(draw, KS, TEMPERATURES, describe, start=(4, 0.5))
        pairs = [(k, temperature) for k in KS for temperature in TEMPERATURES]
        assert grid.descriptions == [describe(*pair) for pair in pairs]
        assert len(set(grid.figures)) == len(pairs)
        assert all(
            f'aria-label="{describe(*pair)}"' in figure
            for pair, figure in zip(pairs, grid.figures, strict=True)
        )
        assert grid.sliders == [
            {"label": "Draft length k", "texts": ["1", "2", "4"]},
            {"label": "Temperature T", "texts": ["0.5", "1"]},
        ]
        assert grid.indices == [2, 0]
        assert plt.get_fignums() == []

    def test_other_names_and_texts(self):
        grid = figure_grid(
            draw,
            KS,
            TEMPERATURES,
            describe,
            labels=("Order", "Size"),
            show=("{} tokens".format, "{:.2f}".format),
        )
        assert [slider["label"] for slider in grid.sliders] == ["Order", "Size"]
        assert grid.sliders[0]["texts"][2] == "4 tokens"
        assert grid.sliders[1]["texts"][0] == "0.50"
        assert grid.indices == [0, 0]
        assert repr(grid) == "<Figures Order: 1 tokens, Size: 0.50>"

    def test_numbers_in_the_drawing_are_short_and_right(self):
        """Rounded to hundredths of a point, and the line where it was."""
        (figure, *_) = figure_grid(draw, KS, TEMPERATURES, describe).figures
        paths = " ".join(re.findall(r' d="([^"]*)"', figure))
        assert not re.search(r"\.\d{3}", paths)
        line = re.search(r'id="line2d_\d+">\s*<path d="(M[^"]*L[^"]*)" clip', figure)
        points = re.findall(r"[ML] ?([\d.]+) ([\d.]+)", line[1])
        x, y = np.array(points, dtype=float).T
        assert np.diff(x) == pytest.approx([np.diff(x).mean()] * 6, abs=0.011)
        share = (y[0] - y) / (y[0] - y[-1])
        assert share == pytest.approx(np.linspace(0, 1, 7) ** 0.5, abs=1e-3)

    @pytest.mark.parametrize(
        "ks, temperatures, start, message",
        (
            ((1,), (1, 2), None, "ks must be at least two, got 1"),
            ((1, 2), (), None, "temperatures must be at least two, got 0"),
            ((1, 2), (1, 2), (3, 1), "start must be one of ks, 1, 2, got 3"),
            ((1, 2), range(20), (1, 0.5), r"temperatures, 0, 1 \.\. 19, got 0.5"),
        ),
    )
    def test_errors_come_before_any_drawing(self, ks, temperatures, start, message):
        def never(*values):
            raise AssertionError("drawn")

        with pytest.raises(ValueError, match=message):
            figure_grid(never, ks, temperatures, describe, start=start)

    def test_indices_stay_on_the_sliders(self):
        grid = figure_grid(draw, KS, TEMPERATURES, describe)
        for wrong in ([3, 0], [0, -1], [0], [0, 0, 0]):
            with pytest.raises(ValueError, match=r"2 places below \[3, 2\]"):
                grid.indices = wrong
        assert grid.indices == [0, 0]


class TestExplorer:
    def test_sliders_and_start(self):
        explorer = SpeedupExplorer(k=3, alpha=0.75, draft_cost=0.07, slope=0.02)
        assert explorer.values() == {
            "k": 3,
            "alpha": 0.75,
            "draft_cost": 0.07,
            "slope": 0.02,
        }
        labels = [slider["label"] for slider in explorer.sliders]
        assert labels == [
            "Draft length k",
            "Acceptance rate α",
            "Draft cost c",
            "Verification slope",
        ]
        assert explorer.sliders[0]["values"] == list(range(17))
        assert repr(explorer) == (
            "<SpeedupExplorer Draft length k: 3, Acceptance rate α: 0.75, "
            "Draft cost c: 0.07, Verification slope: 0.02>"
        )
        explorer.indices = [0, 100, 0, 100]
        assert explorer.values() == {
            "k": 0,
            "alpha": 1.0,
            "draft_cost": 0.0,
            "slope": 1.0,
        }

    def test_measured_rates_by_temperature(self):
        explorer = SpeedupExplorer(
            measured={1: 0.6789, 0: 0.5, 2: np.float64(0.9)}, temperature=1, max_k=8
        )
        slider = explorer.sliders[1]
        assert slider["label"] == "Temperature T"
        assert slider["texts"] == ["0 (α = 0.50)", "1 (α = 0.68)", "2 (α = 0.90)"]
        assert slider["values"] == [0.5, 0.6789, 0.9]
        assert explorer.values()["alpha"] == 0.6789
        assert explorer.sliders[0]["values"][-1] == 8
        json.dumps(explorer.sliders)

    @pytest.mark.parametrize(
        "options, message",
        (
            ({"k": 17}, "k must be inside 0 .. max_k = 16, got 17"),
            ({"alpha": 1.5}, "alpha must be inside 0 .. 1, got 1.5"),
            ({"draft_cost": -0.1}, "draft_cost must be inside 0 .. 1, got -0.1"),
            ({"slope": float("nan")}, "slope must be inside 0 .. 1, got nan"),
            ({"max_k": 0}, "max_k must be inside 1 .. 64, got 0"),
            ({"temperature": 1}, "temperature needs measured"),
            ({"alpha": 0.5, "measured": {0: 0.1, 1: 0.2}}, "alpha or measured"),
            ({"measured": {0: 0.1, 1: 1.2}}, r"in \[0, 1\], got 1.2 at 1"),
            ({"measured": {0: 0.1}}, "measured must be at least two, got 1"),
            (
                {"measured": {0: 0.1, 1: 0.2}, "temperature": 2},
                "start must be one of measured, 0, 1, got 2",
            ),
        ),
    )
    def test_errors(self, options, message):
        with pytest.raises(ValueError, match=message):
            SpeedupExplorer(**options)

    def test_plain_module_of_a_few_kilobytes(self):
        script = SpeedupExplorer().get_state()["_esm"]
        assert not re.search(r"^\s*import\b|\bimport\(|\bfetch\(", script, re.M)
        assert len(script) < 12_000


class Clock:
    """Time that passes only where it is told to."""

    def __init__(self):
        self.now = 0.0
        self.slept = []

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Work:
    """Ten steps of 4 ms for each wish, and a note of all that happened."""

    def __init__(self, clock, fail_at=None):
        self.clock = clock
        self.fail_at = fail_at
        self.steps, self.closed, self.shown, self.errors = [], [], [], []

    def start(self, name):
        try:
            for step in range(10):
                if (name, step) == self.fail_at:
                    raise RuntimeError("broken")
                self.clock.now += 0.004
                self.steps.append((name, step))
                yield (name, step)
        finally:
            self.closed.append(name)

    def latest(self, **options):
        return Latest(
            self.start,
            lambda last, done: self.shown.append((last, done)),
            self.errors.append,
            clock=self.clock,
            sleep=self.clock.sleep,
            **options,
        )


@pytest.fixture
def work():
    return Work(Clock())


class TestLatest:
    def test_one_wish_is_done_in_pieces(self, work):
        async def scene():
            latest = work.latest(delay=0.02, pause_every=0.01)
            latest.wish("a")
            assert latest.busy
            assert work.steps == []  # nothing is done inside the call
            await latest._task
            return latest

        latest = asyncio.run(scene())
        assert not latest.busy
        assert work.steps == [("a", step) for step in range(10)]
        # 4 ms a step: a pause after every third, and the first within 100 ms.
        assert work.shown == [
            (("a", 2), False),
            (("a", 5), False),
            (("a", 8), False),
            (("a", 9), True),
        ]
        assert work.clock.slept[0] == 0.02
        assert sum(work.clock.slept) < 0.05

    def test_a_later_wish_stops_the_earlier_run_at_its_next_pause(self, work):
        async def scene():
            latest = work.latest()
            latest.wish("a")
            while not work.steps:
                await asyncio.sleep(0)
            latest.wish("b")
            await latest._task
            assert not latest.busy

        asyncio.run(scene())
        assert [step for step in work.steps if step[0] == "a"] == [
            ("a", 0),
            ("a", 1),
            ("a", 2),
        ]
        assert [step for step in work.steps if step[0] == "b"] == [
            ("b", step) for step in range(10)
        ]
        assert work.closed == ["a", "b"]  # one at a time, each closed
        assert [last for last, done in work.shown if done] == [("b", 9)]
        assert work.clock.now < 0.1

    def test_wishes_that_come_together_are_one(self, work):
        async def scene():
            latest = work.latest()
            for name in "abcde":
                latest.wish(name)
            await latest._task

        asyncio.run(scene())
        assert {name for name, _ in work.steps} == {"e"}

    def test_one_task_at_a_time_and_a_new_one_after_it(self, work):
        async def scene():
            latest = work.latest()
            latest.wish("a")
            latest.wish("b")
            assert len(asyncio.all_tasks()) == 2  # this one and that one
            await latest._task
            assert len(asyncio.all_tasks()) == 1
            latest.wish("c")
            await latest._task

        asyncio.run(scene())
        assert [last for last, done in work.shown if done] == [("b", 9), ("c", 9)]

    def test_cancel_stops_it(self, work):
        async def scene():
            latest = work.latest()
            latest.wish("a")
            while not work.steps:
                await asyncio.sleep(0)
            latest.cancel()
            await latest._task
            assert not latest.busy

        asyncio.run(scene())
        assert len(work.steps) == 3
        assert work.closed == ["a"]
        assert not any(done for _, done in work.shown)

    def test_an_error_is_reported_and_the_next_wish_is_served(self):
        work = Work(Clock(), fail_at=("a", 4))

        async def scene():
            latest = work.latest()
            latest.wish("a")
            await latest._task
            assert not latest.busy
            latest.wish("b")
            await latest._task

        asyncio.run(scene())
        assert [str(error) for error in work.errors] == ["broken"]
        assert work.shown[-1] == (("b", 9), True)

    def test_without_a_loop_it_is_done_at_once(self, work):
        work.latest().wish("a")
        assert work.shown[-1] == (("a", 9), True)
        assert work.clock.slept == []


@pytest.fixture(scope="module")
def pair():
    text = "the boats went out and the boats came in and the bell rang twice. "
    return train_pair([text * 6, text[20:] * 4], merges=60)


def text_of(widget):
    return "".join(piece for piece, _ in widget.tokens)


def expected(pair, prompt, k, temperature, n):
    sampler = sd.Sampler(temperature=temperature)
    return sd.generate(
        pair.target,
        pair.tokenizer.encode(prompt),
        k=k,
        max_new_tokens=n,
        seed=1,
        draft=sd.ModelDraft(pair.draft, sampler),
        sampler=sampler,
    )


class TestTextGrid:
    def make(self, **options):
        def tell(name, k):
            kind = "accepted" if k else "plain"
            pieces = [*name, "."]
            tokens = [(piece, kind) for piece in pieces[:-1]] + [(".", "bonus")]
            return ToldText(f"{name}:", tokens, f"{name} with {k}")

        return text_grid(tell, ("ab", "c"), (0, 4, 8), labels=("Text", "k"), **options)

    def test_a_text_is_stored_once_and_its_marks_for_each_combination(self):
        grid = self.make(start=("c", 4))
        assert grid.indices == [1, 1]
        assert grid.texts == [
            {"prompt": "ab:", "pieces": ["a", "b", "."]},
            {"prompt": "c:", "pieces": ["c", "."]},
        ]
        assert [run["place"] for run in grid.runs] == [0, 0, 0, 1, 1, 1]
        assert [run["kinds"] for run in grid.runs] == [
            *("332", "002", "002"),
            *("32", "02", "02"),
        ]
        assert grid.runs[4]["summary"] == "c with 4"
        assert repr(grid) == "<Texts Text: c, k: 4>"

    def test_errors(self):
        with pytest.raises(ValueError, match="start must be one of seconds, 0, 4, 8"):
            self.make(start=("c", 5))
        with pytest.raises(ValueError, match="kinds must be among .* got 'good'"):
            text_grid(
                lambda a, b: ToldText("", [("x", "good")], ""),
                (1, 2),
                (1, 2),
                labels=("a", "b"),
            )


class TestLive:
    def make(self, pair, **options):
        return live(pair, "the boats", max_new_tokens=40, **options)

    def test_first_state_is_decoded_beforehand_and_the_same_each_time(self, pair):
        first, second = self.make(pair), self.make(pair)
        run = expected(pair, "the boats", 4, 1.0, 40)
        assert text_of(first) == "".join(pair.tokenizer.pieces(run.tokens))
        assert first.tokens == second.tokens
        assert first.summary == second.summary
        assert first.progress == ""  # no time: it would differ in every run
        assert "k = 4 and T = 1" in first.note
        assert "need Python" in first.note
        assert repr(first) == "<LiveDecoding Draft length k: 4, Temperature T: 1>"

    def test_a_move_decodes_anew(self, pair):
        widget = self.make(pair)
        for k, temperature in ((0, 0.0), (12, 0.5), (3, 2.0)):
            widget.indices = [
                widget.sliders[0]["texts"].index(str(k)),
                widget.sliders[1]["texts"].index(f"{temperature:g}"),
            ]
            run = expected(pair, "the boats", k, temperature, 40)
            assert text_of(widget) == "".join(pair.tokenizer.pieces(run.tokens))
            metrics = run.metrics
            assert widget.summary.startswith(
                f"k = {k}, T = {temperature:g}: 40 tokens by {metrics.target_calls} "
                f"calls of the target, {metrics.tokens_per_call:.2f} tokens per call"
            )
            if k:
                assert f"{metrics.acceptance_rate:.0%} of the tested" in widget.summary
            else:
                assert "accepted" not in widget.summary
            assert re.fullmatch(r"Decoded in \d+ ms\.", widget.progress)

    def test_another_draft_and_an_end(self, pair):
        run = expected(pair, "the boats", 4, 1.0, 40)
        stop = run.tokens[7]
        widget = self.make(
            SimpleNamespace(target=pair.target, tokenizer=pair.tokenizer),
            draft=lambda sampler: sd.PromptLookup(),
            stop_ids=(stop,),
        )
        alone = sd.generate(
            pair.target,
            pair.tokenizer.encode("the boats"),
            draft=sd.PromptLookup(),
            k=4,
            max_new_tokens=40,
            stop_ids=(stop,),
            seed=1,
        )
        assert text_of(widget) == "".join(pair.tokenizer.pieces(alone.tokens))

    def test_each_token_says_where_it_comes_from(self, pair):
        widget = self.make(pair)
        run = expected(pair, "the boats", 4, 1.0, 40)
        kinds = []
        for r in run.rounds:
            kinds += ["accepted"] * r.accepted
            kinds.append("bonus" if r.accepted == len(r.drafted) else "correction")
        assert [kind for _, kind in widget.tokens] == kinds
        assert set(kinds) == {"accepted", "bonus", "correction"}
        widget.indices = [0, 4]
        assert {kind for _, kind in widget.tokens} == {"plain"}

    def test_a_move_in_the_middle_ends_the_run_at_its_next_round(self, pair):
        """By a clock that says that every round takes 20 ms."""
        ticks = iter(range(10**6))
        clock = lambda: next(ticks) * 0.02  # noqa: E731
        widget = self.make(pair, clock=clock, start=(1, 1.0))
        before = widget.tokens
        seen = []
        widget.observe(lambda change: seen.append(len(change["new"])), "tokens")

        async def scene():
            widget.indices = [2, 4]
            assert widget.tokens == before  # the move itself waits for nothing
            while not seen:
                await asyncio.sleep(0)
            assert 0 < len(widget.tokens) < 40
            assert widget.progress.endswith("tokens …")
            widget.indices = [8, 4]
            await widget._latest._task

        asyncio.run(scene())
        run = expected(pair, "the boats", 8, 1.0, 40)
        assert text_of(widget) == "".join(pair.tokenizer.pieces(run.tokens))
        assert seen.count(40) == 1  # only the latest came to its end
        assert len(seen) <= 1 + len(run.rounds) + 1

    def test_no_threads(self, pair):
        before = set(threading.enumerate())
        widget = self.make(pair)

        async def scene():
            widget.indices = [2, 2]
            await widget._latest._task

        asyncio.run(scene())
        widget.indices = [3, 3]
        assert set(threading.enumerate()) == before

    def test_closing_ends_it(self, pair):
        widget = self.make(pair)

        async def scene():
            widget.indices = [2, 2]
            widget.close()
            await widget._latest._task

        tokens = widget.tokens
        asyncio.run(scene())
        assert widget.tokens == tokens
        assert not widget._latest.busy

    def test_an_error_is_shown(self, pair, monkeypatch):
        widget = self.make(pair)

        def broken(*arguments, **options):
            raise RuntimeError("no such bell")

        monkeypatch.setattr("specdec_lib.widgets.decoding.stream", broken)
        widget.indices = [2, 2]
        assert widget.summary == "Decoding failed: no such bell"

    def test_the_page_is_told_that_there_is_a_kernel(self, pair, monkeypatch):
        widget = self.make(pair)
        sent = []
        monkeypatch.setattr(widget, "send", sent.append)
        widget._handle_custom_msg({"kind": "hello"}, [])
        widget._handle_custom_msg({"kind": "other"}, [])
        assert sent == [{"kind": "ready"}]

    @pytest.mark.parametrize(
        "options, message",
        (
            ({"start": (99, 1.0)}, r"start must be one of ks, 0, 1 \.\. 12, got 99"),
            ({"start": (4, 9.0)}, "start must be one of temperatures"),
            ({"ks": (4,)}, "ks must be at least two"),
            ({"temperatures": (1.0,)}, "temperatures must be at least two"),
            ({"ks": (4, -1)}, "ks must be 0 or more, got -1"),
            ({"temperatures": (1.0, -1.0)}, "temperature"),
            ({"max_new_tokens": -1}, "max_new_tokens must be 0 or more"),
        ),
    )
    def test_errors(self, pair, options, message):
        with pytest.raises(ValueError, match=message):
            live(pair, "the boats", **options)
