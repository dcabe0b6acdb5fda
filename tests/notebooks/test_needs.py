"""Chapters that need more than requirements.txt are left out where it is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from execute_notebooks import main, normalise
from notebook_needs import left_out, missing, needs_problems

ROOT = Path(__file__).resolve().parents[2]
ABSENT = "no_such_module_anywhere"


def notebook(path: Path, needs: list[str] | None) -> Path:
    cell = nbformat.v4.new_code_cell("print('it ran')")
    metadata = {"specdec": {"needs": needs, "install": "make peers"}} if needs else {}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=metadata), path)
    return path


def test_what_is_missing_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    plain = notebook(tmp_path / "01_plain.ipynb", None)
    here = notebook(tmp_path / "02_here.ipynb", ["numpy", "json"])
    absent = notebook(tmp_path / "03_absent.ipynb", ["numpy", ABSENT])
    lines = left_out([plain, here, absent])
    assert list(lines) == [absent]
    assert lines[absent] == (
        f"03_absent.ipynb is not run: no module {ABSENT} "
        "(`make peers` installs what it needs)"
    )


def test_only_what_can_be_run_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = notebook(tmp_path / "here.ipynb", ["numpy"])
    absent = notebook(tmp_path / "absent.ipynb", [ABSENT])
    before = absent.read_bytes()
    assert main([str(absent), str(here)]) == 0
    assert absent.read_bytes() == before
    stored = json.loads(here.read_text(encoding="utf-8"))
    assert stored["cells"][0]["outputs"][0]["text"] == ["it ran\n"]
    assert stored["metadata"]["specdec"]["needs"] == ["numpy"]
    assert f"no module {ABSENT}" in capsys.readouterr().out


def test_storing_keeps_what_a_notebook_needs(tmp_path: Path) -> None:
    path = notebook(tmp_path / "a.ipynb", ["numpy"])
    stored = normalise(nbformat.read(path, as_version=4), path.name)
    assert missing(stored.metadata) == []
    assert stored.metadata["specdec"]["install"] == "make peers"


@pytest.mark.parametrize(
    "entry",
    [
        [],
        {},
        {"needs": []},
        {"needs": ["torch"]},
        {"needs": "torch", "install": "make peers"},
        {"needs": ["no-module"], "install": "make peers"},
        {"needs": ["torch"], "install": "make peers", "more": 1},
    ],
)
def test_a_wrong_entry_is_named(entry: Any) -> None:
    assert needs_problems({"specdec": entry})


def test_the_step_ignores_what_cannot_be_run(tmp_path: Path) -> None:
    """run_tests.py in a project of its own, with one chapter that cannot be run."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "tools").mkdir()
    needed = ("run_tests", "notebook_needs", "proof", "build_status", "edition")
    for name in (f"{module}.py" for module in needed):
        text = (ROOT / "tools" / name).read_text(encoding="utf-8")
        (tmp_path / "tools" / name).write_text(text, encoding="utf-8")
    notebook(tmp_path / "notebooks" / "01_absent.ipynb", [ABSENT])
    notebook(tmp_path / "notebooks" / "02_here.ipynb", None)
    script = (
        "import run_tests\n"
        "step = next(s for s in run_tests.STEPS if s.name == 'notebooks')\n"
        "print([a for a in step.commands[0] if a.startswith('--ignore')])\n"
        "print(*step.notes)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path / "tools",
        capture_output=True,
        text=True,
        check=True,
    )
    ignored, note = done.stdout.splitlines()
    assert "01_absent.ipynb" in ignored
    assert "02_here.ipynb" not in ignored
    assert note.startswith(f"01_absent.ipynb is not run: no module {ABSENT}")
