"""The tools that put chapters into a browser, on small examples."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import live_chapters
import pyodide_files
import pytest
from build_lite import KERNEL, LIBRARY, WHEELS, for_browser, pins
from pyodide_files import Unavailable, closure, fetch, font_list, wheel_entry

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "a": {"depends": ["B_b"], "file_name": "a.whl"},
    "b-b": {"depends": ["c"], "file_name": "b.whl"},
    "c": {"depends": [], "file_name": "c.whl"},
    "d": {"depends": ["a"], "file_name": "d.whl"},
}


def wheel(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    return path


def test_closure_takes_what_is_needed_and_no_more() -> None:
    assert list(closure(PACKAGES, ["A"])) == ["a", "b-b", "c"]
    assert list(closure(PACKAGES, ["c"])) == ["c"]
    with pytest.raises(KeyError):
        closure(PACKAGES, ["e"])


def entry(name: str, content: bytes) -> dict[str, Any]:
    return {"file_name": name, "sha256": hashlib.sha256(content).hexdigest()}


Source = Callable[[Path], Callable[[str], bytes]]


def source(**files: bytes) -> Source:
    def read(name: str) -> bytes:
        if name not in files:
            raise OSError("not there")
        return files[name]

    return lambda cache: read


def unreachable(cache: Path) -> Callable[[str], bytes]:
    raise OSError("no network")


def test_fetch_asks_one_source_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [entry("a", b"A"), entry("b", b"B"), entry("c", b"C")]
    sources = {
        "far": unreachable,
        "first": source(a=b"A", b=b"changed", c=b"C"),
        "second": source(b=b"B", c=b"C"),
        "third": unreachable,
    }
    monkeypatch.setattr(pyodide_files, "SOURCES", sources)
    origin = fetch(wanted, tmp_path)
    assert origin == {"a": "first", "b": "second", "c": "second"}
    assert (tmp_path / "b").read_bytes() == b"B"
    # What is there is not asked for again; what was changed there is.
    monkeypatch.setattr(pyodide_files, "SOURCES", {"only": source(c=b"C")})
    assert fetch(wanted, tmp_path) == {}
    (tmp_path / "c").write_bytes(b"broken")
    assert fetch(wanted, tmp_path) == {"c": "only"}


def test_fetch_says_what_is_missing_and_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {"far": unreachable, "near": source(a=b"something else")}
    monkeypatch.setattr(pyodide_files, "SOURCES", sources)
    with pytest.raises(Unavailable) as caught:
        fetch([entry("a", b"A")], tmp_path)
    for said in ("a", "far: no network", "near: a: SHA-256"):
        assert said in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_core_refuses_a_changed_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyodide_files, "registry", lambda: "https://registry.invalid")
    monkeypatch.setattr(pyodide_files, "download", lambda address: b"something else")
    with pytest.raises(Unavailable, match="SHA-512"):
        pyodide_files.core(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_entry_describes_its_wheel(tmp_path: Path) -> None:
    path = wheel(
        tmp_path / "My_Pack-1.2-py3-none-any.whl",
        {
            "my_pack/__init__.py": "",
            "my_pack/deep/more.py": "",
            "single.py": "",
            "My_Pack-1.2.data/scripts/run.py": "",
            "My_Pack-1.2.dist-info/METADATA": "",
        },
    )
    made = wheel_entry(path, ("numpy", "comm"))
    assert made["name"] == "my-pack"
    assert made["version"] == "1.2"
    assert made["imports"] == ["my_pack", "single"]
    assert made["depends"] == ["comm", "numpy"]
    assert made["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_list_of_fonts_is_for_the_version_that_reads_it(tmp_path: Path) -> None:
    fonts = {
        "_version": 390,
        "afmlist": [{"fname": "fonts/a.afm"}],
        "ttflist": [{"fname": "fonts/a.ttf"}, {"fname": "/System/b.ttf"}],
    }
    matplotlib = wheel(
        tmp_path / "matplotlib.whl",
        {
            "matplotlib/font_manager.py": "class A:\n    __version__ = 330\n",
            "matplotlib/fontlist.json": json.dumps(fonts),
        },
    )
    made = zipfile.ZipFile(io.BytesIO(font_list(matplotlib, tmp_path).read_bytes()))
    assert json.loads(made.read("matplotlib/fontlist.json")) == {
        "_version": 330,
        "afmlist": [{"fname": "fonts/a.afm"}],
        "ttflist": [{"fname": "fonts/a.ttf"}],
    }


def test_a_chapter_for_the_browser_has_links_that_lead_somewhere() -> None:
    given = {
        "cells": [
            {
                "cell_type": "markdown",
                "source": [
                    "[](04_guess_then_check.ipynb#loop), ",
                    "[one](01_counting_words.ipynb), [](13_a_llama_in_numpy.ipynb), ",
                    "[map](../book/map.md), ",
                    "[out](https://a.b/c.md), ![](picture.md)",
                ],
            },
            {"cell_type": "code", "source": "a = '[](04_guess_then_check.ipynb)'"},
        ],
        "metadata": {"kernelspec": {"name": "python3"}, "widgets": {}},
    }
    before = json.dumps(given)
    made = for_browser(given, {"04_guess_then_check.ipynb", "01_counting_words.ipynb"})
    assert json.dumps(given) == before
    assert made["cells"][0]["source"] == (
        "[Guess, then check](04_guess_then_check.ipynb#loop), "
        "[one](01_counting_words.ipynb), A Llama in NumPy, map, "
        "[out](https://a.b/c.md), ![](picture.md)"
    )
    assert made["cells"][1] == given["cells"][1]
    assert made["metadata"]["kernelspec"]["name"] == "python"
    assert made["metadata"]["widgets"] == {}


def test_the_browser_has_the_versions_that_the_pages_were_made_with() -> None:
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([a-z0-9_.-]+)==(\S+)", text, re.MULTILINE))
    for name in (*WHEELS, "jupyterlab-widgets"):
        assert pins()[name] == pinned[name], f"requirements-lite.txt: {name}"


def test_what_a_wheel_depends_on_is_loaded_too() -> None:
    known = {*WHEELS, *KERNEL, *LIBRARY, *pyodide_files.WANTED}
    for needs in (WHEELS | KERNEL | LIBRARY).values():
        assert set(needs) <= known | {"traitlets"}  # which ipython needs


def test_every_chapter_is_live_or_says_what_it_needs() -> None:
    live, others = live_chapters.live(), live_chapters.elsewhere()
    assert sorted([*live, *others]) == live_chapters.chapters()
    assert "notebooks/05_exact_sampling" in live
    assert all(reason.strip() for reason in others.values())
    for chapter in live_chapters.chapters():
        notebook = json.loads((ROOT / f"{chapter}.ipynb").read_text(encoding="utf-8"))
        if "specdec" in notebook["metadata"]:  # modules beyond requirements.txt
            assert chapter in others


def project(folder: Path, config: str) -> Path:
    (folder / "notebooks").mkdir()
    (folder / "notebooks" / "a.ipynb").write_text("{}")
    (folder / "_config.yml").write_text(config)
    return folder


def test_a_name_that_is_no_chapter_is_noticed(tmp_path: Path) -> None:
    config = "sphinx: {config: {live_elsewhere: {notebooks/b: why}}}"
    with pytest.raises(ValueError, match="notebooks/b"):
        live_chapters.elsewhere(project(tmp_path, config))


def test_the_fingerprint_follows_the_files(tmp_path: Path) -> None:
    config = "sphinx: {config: {live_elsewhere: {}}}"
    root = project(tmp_path, config)
    first = live_chapters.fingerprint(root)
    assert live_chapters.fingerprint(root) == first
    (root / "notebooks" / "a.ipynb").write_text("{ }")
    second = live_chapters.fingerprint(root)
    (root / "_config.yml").write_text(config.replace("{}", "{notebooks/a: why}"))
    third = live_chapters.fingerprint(root)
    assert len({first, second, third}) == 3


@pytest.mark.parametrize(
    "text, found",
    [
        ("", None),
        ("repository:", None),
        ("repository: {url: }", None),
        (
            "repository: {url: https://github.com/a/b}",
            ("https://github.com/a/b", "main"),
        ),
        (
            "repository: {url: https://github.com/a/b.git/, branch: dev}",
            ("https://github.com/a/b", "dev"),
        ),
    ],
)
def test_the_address_of_the_repository(
    tmp_path: Path, text: str, found: tuple[str, str] | None
) -> None:
    (tmp_path / "_config.yml").write_text(f"title: x\n{text}\n")
    assert live_chapters.repository(tmp_path) == found
