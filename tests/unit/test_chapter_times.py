"""What a chapter takes is measured, told, and held against a budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import build_status
import chapter_times as tool
import nbformat
import pytest
import run_tests
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parents[2]
BURN = "from time import process_time as now\nend = now() + {}\nwhile now() < end: pass"
CHILD = "import subprocess, sys\n_ = subprocess.run([sys.executable, '-c', {!r}])"


def cell(source: str, output: str = "", tags: tuple[str, ...] = ()) -> Any:
    outputs = [new_output("stream", name="stdout", text=output)] if output else []
    return new_code_cell(
        source, outputs=outputs, execution_count=1, metadata={"tags": list(tags)}
    )


def run(folder: Path, chapters: dict[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """The records of some chapters that are run as `make test` runs them."""
    (folder / "notebooks").mkdir()
    for name, cells in chapters.items():
        book = new_notebook(cells=cells)
        nbformat.write(book, folder / "notebooks" / f"{name}.ipynb")
    code = (
        "import sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(ROOT / 'tools')!r})\n"
        "import build_status; build_status.CHAPTERS = Path('records')\n"
        "import pytest; sys.exit(pytest.main(sys.argv[1:]))\n"
    )
    subprocess.run(
        [
            *(sys.executable, "-c", code, "--quiet", "-p", "chapter_times"),
            *("-p", "no:cacheprovider", "--nbval", "--nbval-current-env", "notebooks"),
        ],
        cwd=folder,
        env=os.environ | {"PYDEVD_DISABLE_FILE_VALIDATION": "1"},
        capture_output=True,
        timeout=300,
    )
    return build_status.chapter_records(folder / "records")


@pytest.mark.slow
def test_a_chapter_is_charged_for_what_it_computes(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        {
            "01_busy": [
                cell(BURN.format(2)),
                cell(CHILD.format(BURN.format(2))),
                cell("print(3)", "3\n"),
                cell("print(4)", "5\n", ("nbval-ignore-output",)),
            ],
            "02_waits": [cell("import time\ntime.sleep(4)\nprint(1)", "1\n")],
            "03_differs": [cell("print(1)", "2\n"), cell("print(1)", "1\n")],
        },
    )
    busy, waits, differs = (found[n] for n in ("01_busy", "02_waits", "03_differs"))
    assert busy["passed"]
    assert waits["passed"]
    assert (busy["cells"], busy["compared"]) == (4, 1)
    # What was asked to be burnt, in the kernel and beside it; and never what was slept.
    assert busy["processor"] >= 4
    assert waits["clock"] >= 4
    assert waits["processor"] <= waits["clock"] - 3
    assert not differs["passed"]
    assert (differs["cells"], differs["compared"]) == (2, 1)
    path = tmp_path / "notebooks" / "01_busy.ipynb"
    assert busy["digest"] == tool.digest(path)
    assert set(build_status.circumstances()) <= set(busy)
    assert 0 < busy["best_loop"] <= busy["loop"] < 100 * busy["best_loop"]


def record(processor: float | None, **more: Any) -> dict[str, Any]:
    same = {"clock": 7.0, "cells": 3, "compared": 2, "machine": "A"}
    same |= {"loop": 1000, "best_loop": 1000}
    return {"processor": processor, **same, **more}


def test_the_budget_of_a_chapter() -> None:
    assert tool.over_budget({"a": record(tool.ONE), "b": record(None)}) == []
    (line,) = tool.over_budget({"a": record(121.4), "b": record(1.0)})
    assert line == "a: 121 s of processor time, at most 120 s"


def test_the_budget_of_all() -> None:
    """Ten minutes on each of two cores are twenty of processor time."""
    ten = {str(n): record(119.0) for n in range(10)}
    assert tool.over_budget(ten) == []
    (line,) = tool.over_budget(ten | {"10": record(11.0)})
    assert line == "All chapters: 600 s on each of 2 cores, at most 600 s"


def test_what_other_programs_slow_down_is_not_held_against_a_chapter() -> None:
    """But no more than two threads of a core can slow each other down."""
    found = {
        "quiet": record(90.0),
        "beside": record(150.0, loop=1500, best_loop=1100),
        "far": record(300.0, loop=9000, best_loop=8000),
        "elsewhere": record(30.0, loop=300, best_loop=200, machine="B"),
    }
    assert tool.alone(found) == {
        "quiet": 90.0,
        "beside": 100.0,
        "far": 150.0,
        "elsewhere": 20.0,
    }
    (line,) = tool.over_budget(found)
    assert line == "far: 150 s of processor time, at most 120 s"
    assert tool.alone({"a": record(None)}) == {"a": 0.0}
    assert tool.alone({}) == {}


def test_the_table_has_the_longest_first() -> None:
    lines = tool.table({"a": record(1.0), "b": record(20.5), "c": record(None)})
    first, *rest = (line.split() for line in lines.splitlines())
    assert first == ["chapter", "alone", "processor", "clock", "cells", "compared"]
    assert [" ".join(line) for line in rest] == [
        "b 20.5 s 20.5 s 7.0 s 3 2",
        "a 1.0 s 1.0 s 7.0 s 3 2",
        "c 0.0 s ? 7.0 s 3 2",
    ]


@pytest.mark.parametrize(
    "ci, arguments, code", [("", [], 0), ("true", [], 1), ("", ["--enforce"], 1)]
)
def test_only_there_it_fails(
    ci: str,
    arguments: list[str],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(build_status, "CHAPTERS", tmp_path)
    monkeypatch.setenv("CI", ci)
    assert tool.main(arguments) == 2
    (tmp_path / "01_slow.json").write_text(json.dumps(record(500.0)))
    assert tool.main(arguments) == code
    said = capsys.readouterr().out
    assert "01_slow: 500 s of processor time" in said
    (tmp_path / "01_slow.json").write_text(json.dumps(record(100.0)))
    assert tool.main(arguments) == 0


def test_the_whole_check_holds_the_budget() -> None:
    """`.ci/run` says what it is; GitHub does so by itself."""
    assert "export CI=true\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (step,) = (step for step in run_tests.STEPS if step.name == "notebooks")
    assert step.commands[-1] == [sys.executable, "tools/chapter_times.py"]
