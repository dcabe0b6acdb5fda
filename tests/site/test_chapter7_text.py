"""The coloured texts of chapter 7 on the built page, where no Python runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from lab_kit import running_lab
from site_kit import NARROW, WIDE, Visit

import specdec_lib as sd
from specdec_lib import experiments, text
from specdec_lib.pair import book_pair
from specdec_lib.widgets import token_notes

pytestmark = pytest.mark.browser

PAGE = "notebooks/07_seeing_acceptance.html"
NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "07_seeing_acceptance.ipynb"
FIGURE = r"\d(?:\.\d+)?(?:e-\d+)?"


@pytest.fixture(scope="module")
def notes() -> list[Any]:
    """The same sixty tokens, written again by the library."""
    pair, seen = book_pair(), []
    documents = {
        document.name: pair.tokenizer.encode(document.text)
        for document in text.load_corpus().held_out.documents
    }
    prompts = experiments.cut_prompts(documents, count=24, length=16)

    def watch(p: Any, proposal: Any, rng: Any) -> Any:
        seen.append((p, proposal))
        return sd.verify_tokens(p, proposal, rng)

    run = sd.generate(
        pair.target,
        next(iter(prompts.values())),
        draft=sd.ModelDraft(pair.draft),
        k=4,
        max_new_tokens=60,
        seed=2,
        verify=watch,
    )
    return token_notes(run.rounds, seen, pair.tokenizer.pieces)


def shown(visit: Visit, name: str = "ostrey") -> Any:
    """The one note that can be seen."""
    visible = visit.page.locator(f"#{name} .sd-ct-note:visible")
    assert visible.count() == 1
    return visible


def test_tab_walks_through_all_tokens_and_shows_their_numbers(
    open_page: Callable[..., Visit], notes: list[Any]
) -> None:
    visit = open_page(PAGE)
    assert visit.page.locator("#ostrey ol li").count() == len(notes) == 60
    assert visit.page.locator("#ostrey .sd-ct-note:visible").count() == 0
    visit.page.locator("#ostrey .sd-ct-skip").focus()
    for note in notes:
        visit.page.keyboard.press("Tab")
        said = shown(visit).inner_text()
        assert f": {note.kind}" in said
        wanted = [note.p]
        if note.kind == "accepted guess":
            wanted += [note.q, note.chance, note.overlap]
            assert note.chance == min(1, note.p / note.q)
        elif note.kind == "correction":
            wanted += [note.q, note.guess_p, note.guess_q, note.chance, note.overlap]
        numbers = re.findall(rf"(?:=|TV\):) ({FIGURE})", said)
        assert len(numbers) == len(wanted)
        for figure, value in zip(numbers, wanted, strict=True):
            # Three decimals, or two figures where the value is small.
            rounding = 5.1e-4 if value >= 0.01 else 0.051 * value
            assert float(figure) == pytest.approx(value, rel=0, abs=rounding)
    visit.page.close()


def test_numbers_of_three_words_by_hand(open_page: Callable[..., Visit]) -> None:
    # After "rain and": p = (.3, .1, .6), q = (.5, .1, .4); "rain" was rejected.
    visit = open_page(PAGE)
    visit.page.locator("#toy ol li").nth(1).focus()
    said = shown(visit, "toy").inner_text()
    assert "“wind”: correction, place 2 of 3, for the rejected guess “rain”" in said
    numbers = re.findall(rf"(?:=|TV\):) ({FIGURE})", said)
    assert numbers == ["0.600", "0.400", "0.300", "0.500", "0.600", "0.800"]
    visit.page.close()


def test_hovering_shows_the_note_and_leaving_hides_it(
    open_page: Callable[..., Visit],
) -> None:
    visit = open_page(PAGE)
    visit.page.locator("#ostrey ol li").nth(20).hover()
    assert shown(visit).get_attribute("id") == "ostrey-20"
    visit.page.mouse.move(0, 0)
    assert visit.page.locator("#ostrey .sd-ct-note:visible").count() == 0
    visit.page.close()


def test_what_a_screen_reader_is_told(
    open_page: Callable[..., Visit], notes: list[Any]
) -> None:
    visit = open_page(PAGE)
    tokens = visit.page.get_by_role("list", name="Sixty tokens, token by token")
    items = tokens.get_by_role("listitem")
    assert items.count() == len(notes)
    for i in (0, 17, 30):
        item = items.nth(i)
        label = item.get_attribute("aria-label")
        assert label.endswith(f": {notes[i].kind}")
        described = visit.page.locator(f"#{item.get_attribute('aria-describedby')}")
        assert described.text_content().startswith(label.split(":")[0])
    visit.page.close()


def test_the_skip_link_goes_past_the_tokens(open_page: Callable[..., Visit]) -> None:
    visit = open_page(PAGE)
    skip = visit.page.get_by_role("link", name="Skip the 60 tokens")
    skip.focus()
    assert skip.bounding_box()["height"] > 10  # it is seen while it has the focus
    visit.page.keyboard.press("Enter")
    visit.page.keyboard.press("Tab")
    inside = "document.activeElement.closest('#ostrey') !== null"
    assert not visit.page.evaluate(inside)
    visit.page.close()


LUMINANCE = """(element) => {
    const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => {
        const [r, g, b] = parse(colour).slice(0, 3).map((c) => c / 255)
            .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const style = getComputedStyle(element);
    return [light(style.color), light(style.backgroundColor)];
}"""


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_and_can_be_read(
    open_page: Callable[..., Visit],
    viewport: dict[str, int],
    theme: str,
    notes: list[Any],
) -> None:
    visit = open_page(PAGE, viewport)
    visit.page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    corrections = [i for i, note in enumerate(notes) if note.kind == "correction"]
    for i in (0, *corrections):
        visit.page.locator("#ostrey ol li").nth(i).focus()
        note = shown(visit)
        box, text_box = note.bounding_box(), visit.page.locator("#ostrey ol")
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= viewport["width"]
        # A token that takes the focus brings its numbers into view.
        end = note.locator("span").last.bounding_box()
        assert end["y"] + end["height"] <= viewport["height"]
        # It stands below the text and hides none of it.
        bottom = text_box.evaluate("e => e.getBoundingClientRect().bottom")
        assert bottom <= box["y"]
        hint = visit.page.locator("#ostrey .sd-ct-hint").bounding_box()
        assert hint["y"] >= box["y"] - 1  # the hint is covered by the note
    for element in ("#ostrey", "#ostrey .sd-ct-note:visible"):
        ink, ground = sorted(visit.page.locator(element).evaluate(LUMINANCE))
        assert (ground + 0.05) / (ink + 0.05) >= 4.5
    visit.page.close()


def test_it_works_in_jupyterlab(browser: Any, tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    last = next(i for i, cell in enumerate(code) if 'name="ostrey"' in cell.source)
    notebook.cells = code[: last + 1]
    path = tmp_path / "texts.ipynb"
    nbformat.write(notebook, path)
    with running_lab(tmp_path) as lab:
        session = lab.open(browser, path)
        page = session.page
        # JupyterLab does not trust it yet: the text has its marks, and no notes.
        text = page.locator("ol", has_text="Tom").last
        assert "which girs" in text.inner_text()
        assert "place" not in text.inner_text()
        mark = "e => getComputedStyle(e).borderBottomStyle"
        assert text.locator("li").nth(0).evaluate(mark) == "solid"
        session.run_all()
        page.locator("#ostrey ol li").nth(17).focus()
        page.keyboard.press("Tab")
        visible = page.locator("#ostrey .sd-ct-note:visible")
        assert visible.count() == 1
        assert visible.get_attribute("id") == "ostrey-18"
        assert session.errors == []
        assert session.foreign == []
        session.close()
