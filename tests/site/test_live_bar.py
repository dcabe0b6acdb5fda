"""The bar below a chapter's title: run it in the browser, download it, and so on.

That a chapter really runs is tested in tests/live.
"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import live_chapters
import nbformat
import pytest
import yaml
from site_kit import NARROW, Visit, check_no_scroll, check_within, served

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = live_chapters.chapters()
LIVE = "notebooks/05_exact_sampling"
OTHER = "notebooks/16_an_engine_behind_http"


def bar(page: Any) -> Any:
    return page.get_by_role("group", name="Run this chapter")


def has_lite(site: Path) -> bool:
    """Whether this site was built with JupyterLite in it."""
    return (site / "lite").exists()


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_each_chapter_can_be_run_or_says_what_it_needs(
    site: Path, chapter: str
) -> None:
    text = (site / f"{chapter}.html").read_text(encoding="utf-8")
    found = re.findall(r'<div class="sd-run".*?</div>', text, re.DOTALL)
    assert len(found) == 1
    said = html.unescape(found[0])
    assert 'download="' in said
    reason = live_chapters.elsewhere().get(chapter)
    assert ("Run in the browser" in said) == (has_lite(site) and reason is None)
    assert ("Not in the browser" in said) == (has_lite(site) and reason is not None)
    if not has_lite(site):
        return
    if reason:
        assert f"This chapter needs {reason}" in said
        assert "make lab" in said
    else:
        target = re.search(r'href="\.\./lite/(\S+?)\?path=(\S+?)"', said)
        assert target is not None
        assert (site / "lite" / target[1]).exists()
        assert (site / "lite" / "files" / target[2]).exists()
        run = live_chapters.runs()["chapters"][chapter]
        assert re.search(r"first output after \d+ s, all of it after \d+", said)
        assert f"{run['megabytes']:.0f} MB are loaded" in said


def test_other_pages_have_no_bar(site: Path) -> None:
    for path in (site / "book").glob("*.html"):
        assert 'class="sd-run"' not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("chapter", [LIVE, OTHER])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_telephone(
    open_page: Callable[..., Visit], chapter: str, scheme: str
) -> None:
    visit = open_page(f"{chapter}.html", NARROW, color_scheme=scheme)
    check_no_scroll(visit.page)
    for element in bar(visit.page).locator("a, span:visible, p").all():
        if "sd-unseen" not in (element.get_attribute("class") or ""):
            check_within(element)


def test_its_links_are_reached_by_keyboard(open_page: Callable[..., Visit]) -> None:
    page = open_page(f"{LIVE}.html").page
    links = bar(page).get_by_role("link").all()
    names = [link.inner_text() for link in links]
    assert any("Download" in name for name in names)
    links[0].focus()
    for link in links:
        assert link.evaluate("link => link === document.activeElement")
        style = link.evaluate("link => getComputedStyle(link).outlineStyle")
        assert style != "none"
        page.keyboard.press("Tab")


def test_the_chapter_is_downloaded_as_it_is(
    open_page: Callable[..., Visit], tmp_path: Path
) -> None:
    """By the bar, and by the button at the top of the page; outputs may be left out."""
    page = open_page(f"{LIVE}.html").page

    def cells(path: Path) -> list[tuple[str, str, str]]:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        return [(cell.cell_type, cell.id, cell.source) for cell in notebook.cells]

    def take(link: Any) -> None:
        with page.expect_download() as caught:
            link.click()
        assert caught.value.suggested_filename == f"{Path(LIVE).name}.ipynb"
        target = tmp_path / "taken.ipynb"
        caught.value.save_as(target)
        assert cells(target) == cells(ROOT / f"{LIVE}.ipynb")

    take(bar(page).get_by_role("link", name="Download as a notebook"))
    page.get_by_role("button", name="Download this page").click()
    take(page.get_by_role("link", name=".ipynb"))


def test_it_is_not_printed(open_page: Callable[..., Visit]) -> None:
    page = open_page(f"{LIVE}.html").page
    assert bar(page).is_visible()
    page.emulate_media(media="print")
    assert not page.locator(".sd-run").is_visible()


# -- Colab and Binder --------------------------------------------------------


def test_without_an_address_there_is_no_button_for_it(site: Path) -> None:
    if live_chapters.repository() is not None:
        pytest.skip("the repository has an address")
    for path in (site / "notebooks").glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "colab.research" not in text
        assert "mybinder.org" not in text


@pytest.fixture(scope="module")
def with_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a site of two chapters whose repository has one."""
    root = tmp_path_factory.mktemp("book")
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    config["repository"] = {"url": "https://github.com/made-up/book", "branch": "dev"}
    (root / "_config.yml").write_text(yaml.safe_dump(config, sort_keys=False))
    chapters = [{"file": name} for name in (LIVE, OTHER)]
    toc = {"format": "jb-book", "root": "book/welcome", "chapters": chapters}
    (root / "_toc.yml").write_text(yaml.safe_dump(toc))
    shutil.copytree(ROOT / "book", root / "book")
    for name in ("tools", "specdec_lib"):  # the footer's version is the library's
        (root / name).symlink_to(ROOT / name)
    (root / "notebooks").mkdir()
    for name in (LIVE, OTHER):
        shutil.copy(ROOT / f"{name}.ipynb", root / f"{name}.ipynb")
    program = Path(sys.executable).with_name("jupyter-book")
    done = subprocess.run(
        [program, "build", "--keep-going", "."],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
    )
    built = root / "_build" / "html"
    assert (built / f"{LIVE}.html").exists(), done.stdout[-2000:] + done.stderr[-2000:]
    yield from served(built)


@pytest.mark.parametrize("chapter", [LIVE, OTHER])
def test_with_an_address_there_are_both_buttons(
    open_page: Callable[..., Visit], with_address: str, chapter: str
) -> None:
    visit = open_page(f"{chapter}.html", NARROW, address=with_address)
    links = bar(visit.page)
    for name, target in (
        (
            "Open in Colab",
            "https://colab.research.google.com/github/made-up/book/blob/colab/"
            f"{chapter}.ipynb",
        ),
        (
            "Open in Binder",
            "https://mybinder.org/v2/gh/made-up/book/dev?urlpath=lab/tree/"
            f"{chapter}.ipynb",
        ),
    ):
        link = links.get_by_role("link", name=name)
        assert link.get_attribute("href") == target
        assert link.get_attribute("target") == "_blank"
        check_within(link)
    check_no_scroll(visit.page)
    # They are links and no more: nothing is asked of these servers beforehand.
    assert visit.foreign == []
    assert visit.missing == []
