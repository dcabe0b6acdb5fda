"""Searching the book, with no other server in reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from site_kit import NARROW, WIDE, Visit

pytestmark = pytest.mark.browser


def results(page: Any) -> Any:
    page.wait_for_selector("#search-results li a", timeout=10_000)
    page.wait_for_function(
        """() => /finished|found/i.test(
            document.querySelector('#search-results').innerText)""",
        timeout=10_000,
    )
    return page.locator("#search-results li")


@pytest.mark.parametrize("viewport", (WIDE, NARROW), ids=("wide", "narrow"))
def test_a_word_is_searched_and_a_result_opened(
    open_page: Callable[..., Visit], viewport: dict[str, int]
) -> None:
    visit = open_page("notebooks/01_counting_words.html", viewport)
    page = visit.page
    page.keyboard.press("Control+k")
    field = page.locator("#pst-search-dialog input")
    field.wait_for(state="visible")
    field.fill("suffix automaton")
    field.press("Enter")
    page.wait_for_url("**/search.html?q=suffix*")
    found = results(page)
    hit = found.get_by_role("link", name="Copying from the prompt").first
    hit.click()
    page.wait_for_url("**/notebooks/10_copying_from_the_prompt.html*")
    assert "automaton" in page.locator("article").inner_text()
    visit.check_quiet()
    page.close()


@pytest.mark.parametrize(
    ("word", "page"),
    (
        ("counting", "Counting words"),
        ("residual", "Exact sampling"),
        ("verify_tokens", "Exact sampling"),
        ("Kneser", "Smoothing and back-off"),
    ),
)
def test_words_are_found_where_they_stand(
    open_page: Callable[..., Visit], word: str, page: str
) -> None:
    visit = open_page(f"search.html?q={word}")
    assert any(page in hit for hit in results(visit.page).all_inner_texts())
    visit.check_quiet()
    visit.page.close()


@pytest.mark.parametrize(
    ("words", "chapter"),
    (
        ("n-gram", "1. Counting words"),
        ("perplexity", "1. Counting words"),
        ("Kneser-Ney", "2. Smoothing and back-off"),
        ("speculative sampling", "5. Exact sampling"),
        ("verify_tokens", "5. Exact sampling"),
        ("acceptance rate", "7. Seeing acceptance"),
        ("temperature", "9. Speedup against temperature"),
        ("tree", "11. Verifying more cleverly"),
        ("KV cache", "13. A Llama in NumPy"),
    ),
)
def test_the_chapter_is_among_the_first_five(
    open_page: Callable[..., Visit], words: str, chapter: str
) -> None:
    """Without our order it is behind names of the library that contain the words."""
    visit = open_page(f"search.html?q={words}")
    first = results(visit.page).all_inner_texts()[:5]
    assert chapter in [hit.split("\n")[0] for hit in first]
    visit.check_quiet()
    visit.page.close()


def test_a_word_that_is_nowhere(open_page: Callable[..., Visit]) -> None:
    visit = open_page("search.html?q=xyzzyx")
    visit.page.get_by_text("did not match any documents").wait_for(timeout=10_000)
    visit.check_quiet()
    visit.page.close()
