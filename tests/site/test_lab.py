"""The widgets in a real JupyterLab, with a real kernel behind them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from lab_kit import Lab, Session, running_lab
from site_kit import place

import specdec_lib as sd
from specdec_lib import theory
from specdec_lib.pair import Pair, book_pair

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
STATE = "application/vnd.jupyter.widget-state+json"
CELLS = (
    """\
import threading
import matplotlib.pyplot as plt
from specdec_lib import theory
from specdec_lib.pair import book_pair
from specdec_lib.widgets import SpeedupExplorer, figure_grid, live

def draw(k, T):
    fig, ax = plt.subplots(figsize=(4, 2))
    ax.bar([0], [theory.expected_tokens(1 - T / 4, k)])
    return fig

def describe(k, T):
    return f"k = {k}, T = {T}: {theory.expected_tokens(1 - T / 4, k):.4f}"

grid = figure_grid(draw, (1, 2, 4), (0.5, 1.0, 2.0), describe)
grid""",
    "explorer = SpeedupExplorer()\nexplorer",
    'moving = live(book_pair(), "The harbour")\nmoving',
    "threads = threading.active_count()",
)


def chapters_with_widgets() -> list[Path]:
    return [
        path
        for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
        if json.loads(path.read_text(encoding="utf-8"))["metadata"]
        .get("widgets", {})
        .get(STATE, {})
        .get("state")
    ]


def one_for_each_widget() -> list[Path]:
    """The first chapter with each kind of widget: nbval runs the others."""
    first: dict[str, Path] = {}
    for path in chapters_with_widgets():
        widgets = json.loads(path.read_text(encoding="utf-8"))["metadata"]["widgets"]
        for model in widgets[STATE]["state"].values():
            first.setdefault(model["state"].get("_anywidget_id") or "layout", path)
    return sorted(set(first.values()))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    with running_lab(folder) as running:
        for read in ("notebooks/data", "bench"):  # by chapters, beside their own folder
            (folder / read).symlink_to(ROOT / read)
        yield running


@pytest.fixture(scope="module")
def session(
    lab: Lab, browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    """A small notebook with each kind of widget, all its cells run."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS],
        metadata={
            "kernelspec": {
                "name": "python3", "language": "python", "display_name": "Python 3",
            }
        },
    )  # fmt: skip
    path = tmp_path_factory.mktemp("notebook") / "widgets.ipynb"
    nbformat.write(notebook, path)
    opened = lab.open(browser, path)
    opened.run_all()
    yield opened
    assert opened.errors == []
    assert opened.foreign == []
    opened.close()


@pytest.fixture(scope="module")
def pair() -> Pair:
    return book_pair()


def output(session: Session, number: int) -> Any:
    return session.page.locator(".jp-CodeCell").nth(number).locator(".specdec-widget")


def control(widget: Any, name: str) -> Any:
    slider = widget.get_by_role("slider", name=name, exact=True)
    slider.wait_for()
    return slider


def place_in_notebook(session: Session) -> tuple[int, str]:
    """The active cell and the notebook's mode: keys of a slider leave both alone."""
    found = session.page.evaluate(
        """() => {
            const { activeCellIndex, mode } =
                window.jupyterapp.shell.currentWidget.content;
            return [activeCellIndex, mode];
        }"""
    )
    return (found[0], found[1])


def test_grid_moves_by_arrow_keys_and_mouse(session: Session) -> None:
    widget = output(session, 0)
    k_slider = control(widget, "Draft length k")
    t_slider = control(widget, "Temperature T")
    caption = widget.locator("figcaption")

    def check(k: int, temperature: float) -> None:
        tokens = theory.expected_tokens(1 - temperature / 4, k)
        text = f"k = {k}, T = {temperature}: {tokens:.4f}"
        assert caption.inner_text() == text
        assert widget.locator("svg").get_attribute("aria-label") == text

    check(1, 0.5)
    k_slider.focus()
    where = place_in_notebook(session)
    for slider, key, k, temperature in (
        (k_slider, "ArrowRight", 2, 0.5),
        (k_slider, "ArrowUp", 4, 0.5),
        (t_slider, "ArrowRight", 4, 1.0),
        (t_slider, "ArrowUp", 4, 2.0),
        (t_slider, "ArrowDown", 4, 1.0),
        (k_slider, "ArrowLeft", 2, 1.0),
        (k_slider, "ArrowDown", 1, 1.0),
    ):
        slider.focus()
        session.page.keyboard.press(key)
        check(k, temperature)
        assert place_in_notebook(session) == where
    session.page.mouse.click(*place(k_slider, 2, 3))
    check(4, 1.0)
    # The kernel knows where they stand, and can move them.
    assert session.ask("print(grid.indices)") == "[2, 1]"
    session.ask("grid.indices = [0, 2]")
    caption.get_by_text("k = 1, T = 2.0").wait_for(timeout=5000)
    check(1, 2.0)
    assert k_slider.input_value() == "0"


def test_explorer_computes_in_the_page(session: Session) -> None:
    widget = output(session, 1)
    at = {"Draft length k": 4, "Acceptance rate α": 80, "Draft cost c": 10,
          "Verification slope": 0}  # fmt: skip
    for name in at:
        slider = control(widget, name)
        for key, step in (("ArrowRight", 1), ("ArrowUp", 1), ("ArrowLeft", -1)):
            slider.focus()
            session.page.keyboard.press(key)
            at[name] += step
            k, alpha, cost, slope = (
                value if name == "Draft length k" else value / 100
                for name, value in at.items()
            )

            def verify(n: int, slope: float = slope) -> float:
                return 1 + slope * (n - 1)

            shown = {
                place.get_attribute("data-name"): json.loads(
                    place.get_attribute("data-values")
                )
                for place in widget.locator("dd").all()
            }
            best = theory.best_k(alpha, cost, verify, max_k=16)
            assert shown == {
                "Tokens per call": [
                    pytest.approx(theory.expected_tokens(alpha, k), rel=0, abs=1e-9)
                ],
                "Speedup": [
                    pytest.approx(
                        theory.speedup(alpha, k, cost, verify), rel=0, abs=1e-9
                    )
                ],
                "Best k": [
                    best,
                    pytest.approx(
                        theory.speedup(alpha, best, cost, verify), rel=0, abs=1e-9
                    ),
                ],
            }
    for value in widget.locator("dd").all():  # each below its name
        name = value.locator("xpath=preceding-sibling::dt").bounding_box()
        assert value.bounding_box()["y"] >= name["y"] + name["height"] - 1
    wanted = "{'k': 5, 'alpha': 0.81, 'draft_cost': 0.11, 'slope': 0.01}"
    assert session.ask("print(explorer.values())") == wanted


# Milliseconds from a move of the slider to the first change of the text.
WATCH = """slider => {
    const widget = slider.closest(".specdec-widget");
    const text = widget.querySelector(".specdec-text");
    window.waits = [];
    let moved = null;
    slider.addEventListener("input", () => { moved = performance.now(); });
    new MutationObserver(() => {
        if (moved === null) return;
        window.waits.push(performance.now() - moved);
        moved = null;
    }).observe(text, { childList: true });
}"""


def text_for(pair: Pair, k: int, temperature: float) -> tuple[str, str]:
    """The text, and the start of the summary, by the library itself."""
    sampler = sd.Sampler(temperature=temperature)
    prompt = "The harbour"
    run = sd.generate(
        pair.target,
        pair.tokenizer.encode(prompt),
        draft=sd.ModelDraft(pair.draft, sampler),
        sampler=sampler,
        k=k,
        max_new_tokens=200,
        seed=1,
    )
    return (
        prompt + "".join(pair.tokenizer.pieces(run.tokens)),
        f"k = {k}, T = {temperature:g}: 200 tokens by {len(run.rounds)} calls",
    )


def test_live_decodes_at_each_move(session: Session, pair: Pair) -> None:
    widget = output(session, 2)
    k_slider = control(widget, "Draft length k")
    t_slider = control(widget, "Temperature T")
    session.page.wait_for_function(
        "slider => !slider.disabled", arg=k_slider.element_handle(), timeout=10_000
    )
    assert not widget.locator(".specdec-note").is_visible()

    def check(k: int, temperature: float) -> None:
        text, summary = text_for(pair, k, temperature)
        widget.get_by_role("status").get_by_text(summary).wait_for(timeout=10_000)
        session.page.wait_for_function(
            "([element, text]) => element.textContent === text",
            arg=[widget.locator(".specdec-text").element_handle(), text],
            timeout=10_000,
        )
        progress = widget.locator(".specdec-progress").inner_text()
        assert re.fullmatch(r"Decoded in \d+ ms\.", progress)

    check_start, _ = text_for(pair, 4, 1.0)
    assert widget.locator(".specdec-text").text_content() == check_start

    k_slider.evaluate(WATCH)
    k_slider.focus()
    where = place_in_notebook(session)
    for k in (5, 6, 7, 8):
        session.page.keyboard.press("ArrowRight")
        check(k, 1.0)
    waits = session.page.evaluate("window.waits")
    print("ms from the move to the first change:", [round(wait) for wait in waits])
    assert len(waits) == 4
    assert min(waits) < 100

    # Many moves at once: only the last one counts.
    for _ in range(5):
        session.page.keyboard.press("ArrowLeft")
    check(3, 1.0)
    t_slider.focus()
    session.page.keyboard.press("ArrowUp")
    check(3, 1.25)
    session.page.mouse.click(*place(t_slider, 0, 8))
    check(3, 0.0)
    assert place_in_notebook(session) == where
    assert session.ask("print(threading.active_count() - threads)") == "0"
    assert session.ask("print(moving._latest.busy)") == "False"


@pytest.mark.parametrize(
    "path", one_for_each_widget(), ids=lambda path: path.stem.split("_")[0]
)
def test_a_chapter_with_each_widget_runs_and_its_controls_move(
    lab: Lab, browser: Any, path: Path
) -> None:
    session = lab.open(browser, path)
    session.run_all()
    widgets = session.page.locator(".jp-OutputArea-output .specdec-widget").all()
    assert widgets
    for widget in widgets:
        said = widget.locator("figcaption, [role=status]").first
        controls = widget.get_by_role("slider").or_(widget.get_by_role("combobox"))
        for control in controls.all():
            session.page.wait_for_function(
                "control => !control.disabled", arg=control.element_handle()
            )
            before = said.inner_text()
            is_list = control.evaluate("control => control.localName") == "select"
            last = control.input_value() == control.get_attribute("max")
            control.focus()
            key = "ArrowDown" if is_list else "ArrowLeft" if last else "ArrowRight"
            session.page.keyboard.press(key)
            session.page.wait_for_function(
                "([element, text]) => element.innerText !== text",
                arg=[said.element_handle(), before],
                timeout=10_000,
            )
    assert session.errors == []
    session.close()
