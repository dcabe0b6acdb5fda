"""The chapters as Colab opens them, and what Binder installs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import colab_notebooks
import pytest
from colab_notebooks import MORE, first_cell, for_colab
from IPython.core.inputtransformer2 import TransformerManager

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "https://github.com/a/b"


def run(cell: str, *, there: bool, colab: bool = False) -> list[str]:
    """The commands that the cell gives, where the library is there or is not."""
    said: list[str] = []
    shell = SimpleNamespace(
        system=said.append,
        run_line_magic=lambda name, text, *rest: said.append(f"%{name} {text}"),
    )

    class Shell:
        def __repr__(self) -> str:
            return "<google.colab shell>" if colab else "<shell>"

        def __getattr__(self, name: str) -> Any:
            return getattr(shell, name)

    code = TransformerManager().transform_cell(cell)
    code = code.replace("from importlib.util import find_spec", "")
    find_spec = (lambda name: object()) if there else (lambda name: None)
    exec(compile(code, "cell", "exec"), {"get_ipython": Shell, "find_spec": find_spec})
    return said


def test_where_the_library_is_missing_it_is_fetched() -> None:
    said = run(first_cell("05_exact_sampling", ADDRESS, "dev"), there=False)
    words = [re.sub(r"\s+", " ", text) for text in said]
    assert words == [
        "git clone --quiet --depth 1 --branch dev https://github.com/a/b book",
        '%pip install --quiet "./book" anywidget threadpoolctl',
        "%cd -q book/notebooks",
    ]


def test_where_it_is_there_nothing_is_done() -> None:
    for name in ("05_exact_sampling", *MORE):
        assert run(first_cell(name, ADDRESS, "main"), there=True) == []


def test_colab_shows_the_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    output = SimpleNamespace(enable_custom_widget_manager=lambda: called.append("yes"))
    monkeypatch.setitem(sys.modules, "google.colab", SimpleNamespace(output=output))
    run(first_cell("05_exact_sampling", ADDRESS, "main"), there=True, colab=True)
    assert called == ["yes"]


def test_a_real_model_is_fetched_where_a_chapter_reads_it() -> None:
    said = run(first_cell("13_a_llama_in_numpy", ADDRESS, "main"), there=False)
    assert said[-1] == "specdec models get smollm2"
    assert '"./book[fast]"' in said[1]


def test_extras_and_chapters_are_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    known = set(project["project"]["optional-dependencies"])
    for name, (packages, _) in MORE.items():
        assert (ROOT / "notebooks" / f"{name}.ipynb").exists()
        for package in packages:
            if package.startswith("["):
                assert set(package.strip("[]").split(",")) <= known
    binder = (ROOT / "binder" / "postBuild").read_text(encoding="utf-8")
    named = re.search(r"'\.\[(.*?)\]'", binder)
    assert named is not None
    assert set(named[1].split(",")) <= known


def test_a_copy_is_the_chapter_with_a_cell_in_front() -> None:
    path = ROOT / "notebooks" / "05_exact_sampling.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    made = for_colab(notebook, path.stem, ADDRESS, "main")
    assert made["cells"][1:] == notebook["cells"]
    assert made["metadata"] == notebook["metadata"]
    ids = [cell["id"] for cell in made["cells"]]
    assert len(set(ids)) == len(ids)


def test_all_chapters_are_written_where_there_is_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["colab_notebooks.py", str(tmp_path / "out")])
    monkeypatch.setattr("live_chapters.repository", lambda: None)
    assert colab_notebooks.main() == 1
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr("live_chapters.repository", lambda: (ADDRESS, "main"))
    assert colab_notebooks.main() == 0
    names = {path.name for path in (tmp_path / "out" / "notebooks").iterdir()}
    assert names == {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}


def test_binders_script_is_a_shell_script() -> None:
    script = ROOT / "binder" / "postBuild"
    assert script.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", script], check=True)
    version = (ROOT / "binder" / "runtime.txt").read_text().strip()
    assert version in ("python-3.11", "python-3.12", "python-3.13")
