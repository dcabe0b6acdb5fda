"""What JupyterLite is made of, and chapter 5 run in it with no other server in reach.

All chapters: `.venv/bin/python tools/live_runs.py`, which runs each to its end in the
same way and keeps what it took. That takes too long for every day.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import live_chapters
import pytest
from build_lite import EXTENSIONS, LINK
from live_page import LivePage
from pyodide_files import LOCK

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = "05_exact_sampling"


@pytest.fixture(scope="module")
def lock(lite: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (lite / "static/pyodide" / LOCK).read_text(encoding="utf-8")
    )
    return found


def test_it_holds_the_live_chapters_and_no_others(lite: Path) -> None:
    listed = json.loads((lite / "api/contents/all.json").read_text(encoding="utf-8"))
    names = sorted(entry["name"] for entry in listed["content"])
    assert names == sorted(
        f"{Path(chapter).name}.ipynb" for chapter in live_chapters.live()
    )
    assert names == sorted(path.name for path in (lite / "files").iterdir())


def test_its_chapters_are_those_of_the_book(lite: Path) -> None:
    """The same cells and outputs; of the text, only links differ."""
    for chapter in live_chapters.live():
        book, copy = (
            json.loads(path.read_text(encoding="utf-8"))
            for path in (
                ROOT / f"{chapter}.ipynb",
                lite / "files" / f"{Path(chapter).name}.ipynb",
            )
        )
        assert copy["metadata"].pop("kernelspec")["name"] == "python"
        book["metadata"].pop("kernelspec")
        assert copy["metadata"] == book["metadata"]
        assert len(copy["cells"]) == len(book["cells"])
        for mine, theirs in zip(copy["cells"], book["cells"], strict=True):
            if mine["cell_type"] == "markdown":
                texts = (LINK.sub("", "".join(c["source"])) for c in (mine, theirs))
                assert len(next(texts)) >= len(next(texts))
            else:
                assert mine == theirs


def test_its_links_lead_somewhere_and_have_a_text(lite: Path) -> None:
    count = 0
    for path in (lite / "files").iterdir():
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] != "markdown":
                continue
            for text, target in LINK.findall("".join(cell["source"])):
                if "://" not in target:
                    assert text
                    assert (path.parent / target.split("#")[0]).exists(), target
                    count += 1
    assert count > 20


def test_every_package_is_there_as_listed(lite: Path, lock: dict[str, Any]) -> None:
    folder = lite / "static/pyodide"
    for name, entry in lock["packages"].items():
        content = (folder / entry["file_name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], name
        assert {d.replace("_", "-") for d in entry["depends"]} <= set(lock["packages"])
    wheels = {path.name for path in folder.iterdir() if path.suffix in (".whl", ".zip")}
    listed = {entry["file_name"] for entry in lock["packages"].values()}
    assert wheels - listed == {"python_stdlib.zip"}


def test_the_library_is_that_of_these_files(lite: Path, lock: dict[str, Any]) -> None:
    entry = lock["packages"]["specdec-lib"]
    with zipfile.ZipFile(lite / "static/pyodide" / entry["file_name"]) as wheel:
        inside = {
            name: wheel.read(name)
            for name in wheel.namelist()
            if name.startswith("specdec_lib/")
        }
    for path in (ROOT / "specdec_lib").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(ROOT).as_posix()
            assert inside.pop(name) == path.read_bytes(), name
    assert not inside
    assert any("data/corpus" in path.as_posix() for path in
               (ROOT / "specdec_lib").rglob("*.txt"))  # fmt: skip


def test_its_settings_name_no_other_server(lite: Path) -> None:
    config = json.loads((lite / "jupyter-lite.json").read_text(encoding="utf-8"))
    data = config["jupyter-config-data"]
    kernel = data["litePluginSettings"]["@jupyterlite/pyodide-kernel-extension:kernel"]
    assert kernel["pyodideUrl"] == "./static/pyodide/pyodide.js"
    assert kernel["disablePyPIFallback"] is True
    for url in kernel["pipliteUrls"]:
        assert url.startswith("./")
    assert {extension["name"] for extension in data["federated_extensions"]} == set(
        EXTENSIONS
    )


@pytest.mark.browser
@pytest.mark.slow
def test_a_chapter_runs_to_its_end_and_its_sliders_move(
    address: str, browser: Any
) -> None:
    page = LivePage(browser, address, CHAPTER)
    try:
        page.run_all(timeout=600)
        assert page.move_sliders() >= 1
        page.check_quiet()
        print(f"first output {page.first_output:.0f} s, all {page.whole:.0f} s")
    finally:
        page.close()


@pytest.mark.parametrize("chapter", live_chapters.live())
def test_every_live_chapter_was_run(chapter: str) -> None:
    """By tools/live_runs.py; its page says what that took."""
    run = live_chapters.runs()["chapters"][chapter]
    assert 0 < run["first_output"] <= run["whole"]
    assert run["megabytes"] > 10
    assert run["memory"] > 100


def test_no_other_chapter_is_said_to_run() -> None:
    assert set(live_chapters.runs()["chapters"]) == set(live_chapters.live())
