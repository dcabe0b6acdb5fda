"""The page of the build's status shows what was recorded, and says what was not."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import build_status as tool
import chapter_times
import live_chapters
import pytest
import run_tests
import status_page as page

MARK = re.compile(r"\{\{ (\w+) \}\}")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def text() -> str:
    return (ROOT / "book" / "status.md").read_text(encoding="utf-8")


def chapter(when: str, *, passed: bool = True, **more: Any) -> dict[str, Any]:
    return {"when": when, "passed": passed, **more}


def test_what_failed_keeps_its_older_record() -> None:
    kept = {"chapters": {"01": chapter("2026-01-01 00:00")}, "steps": {}}
    found = {
        "01": chapter("2026-01-02 00:00", passed=False),
        "02": chapter("2026-01-02 00:00"),
    }
    made = tool.merged(kept, found, {}, ["01", "02", "03"], [])
    assert made["chapters"] == {
        "01": chapter("2026-01-01 00:00"),
        "02": chapter("2026-01-02 00:00"),
    }


def test_the_later_record_stays_and_what_is_gone_goes() -> None:
    kept = {"chapters": {}, "steps": {"unit": {"when": "2026-01-03 00:00"},
                                      "old": {"when": "2026-01-03 00:00"}}}  # fmt: skip
    found = {"unit": {"when": "2026-01-02 00:00"}, "lint": {"when": "2026-01-02 00:00"}}
    made = tool.merged(kept, {}, found, [], ["lint", "unit"])
    assert made["steps"] == {
        "lint": {"when": "2026-01-02 00:00"},
        "unit": {"when": "2026-01-03 00:00"},
    }
    assert list(made["steps"]) == ["lint", "unit"]


def test_a_step_is_recorded_beside_the_others(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "steps.json"
    tool.step_passed("lint", 3.4, path)
    tool.step_passed("unit", 100.6, path)
    found = tool.load(path)
    assert {name: each["seconds"] for name, each in found.items()} == {
        "lint": 3,
        "unit": 101,
    }
    for each in found.values():
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", each["when"])
        assert re.search(r", \d+ cores, Python 3\.\d+\.\d+$", each["machine"])


def test_a_step_that_fails_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tool, "STEPS", tmp_path / "steps.json")
    for name, code in (("good", 0), ("bad", 1)):
        command = [sys.executable, "-c", f"raise SystemExit({code})"]
        run_tests.run(run_tests.Step(name, "what", (command,), "advice"))
    assert list(tool.load(tmp_path / "steps.json")) == ["good"]


def test_what_the_tests_found_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    for name, path in (("KEPT", "status.json"), ("STEPS", "r/steps.json"),
                       ("CHAPTERS", "r/chapters")):  # fmt: skip
        monkeypatch.setattr(tool, name, tmp_path / path)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01_a.ipynb").touch()
    tool.step_passed("lint", 1.0)
    tool.write(chapter("2026-01-02 00:00"), tmp_path / "r/chapters/01_a.json")
    assert tool.main(["keep"]) == 0
    found = json.loads((tmp_path / "status.json").read_text())
    assert list(found["chapters"]) == ["01_a"]
    assert list(found["steps"]) == ["lint"]
    assert "1 chapters, 1 steps" in capsys.readouterr().out


def test_running_a_step_changes_no_file_of_the_book() -> None:
    """What `make test` writes lies where git does not look."""
    for path in (tool.STEPS, tool.CHAPTERS):
        assert path.is_relative_to(ROOT / "_build")
    assert "_build/" in (ROOT / ".gitignore").read_text().splitlines()


def test_every_mark_has_a_value_and_every_value_a_mark(text: str) -> None:
    values = page.values()
    assert set(MARK.findall(text)) == set(values)
    # Without a repository nothing leads to one.
    assert {name for name, value in values.items() if not value} <= {"status_runs"}


def test_no_number_is_typed(text: str) -> None:
    assert re.findall(r"\d+", MARK.sub("", text)) == []


def rows(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_each_chapter_and_each_step_has_a_row() -> None:
    values = page.values()
    shown = rows(values["status_table_chapters"])
    names = live_chapters.chapters()
    for name, row in zip(names, shown, strict=True):
        assert f"](../{name}.ipynb)" in row[0]
        assert row[5].startswith("no" if name in live_chapters.elsewhere() else "yes")
    steps = rows(values["status_table_steps"])
    assert [row[0] for row in steps] == [f"`` {s.name} ``" for s in run_tests.STEPS]
    assert all(row[1] for row in steps)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Records of two chapters, the second of which was changed since, and of a step."""
    one, two = (Path(name).name for name in live_chapters.chapters()[:2])
    same = {"passed": True, "cells": 1500, "compared": 700, "machine": "A, 2 cores",
            "commit": "abc", "when": "2026-01-01 10:00"}  # fmt: skip
    now = chapter_times.digest(ROOT / "notebooks" / f"{one}.ipynb")
    found = {
        "chapters": {
            one: same | {"processor": 30.6, "clock": 130.0, "digest": now,
                         "loop": 1500, "best_loop": 1000},
            two: same | {"processor": 40.0, "clock": 50.0, "digest": "other",
                         "loop": 1000, "best_loop": 1000},
        },
        "steps": {"lint": {"seconds": 3, "when": "2026-01-01 11:00", "machine": "B",
                           "commit": ""}},
    }  # fmt: skip
    path = tmp_path / "status.json"
    tool.write(found, path)
    return path


def test_records_are_told_as_they_are(kept: Path) -> None:
    values = page.values(kept)
    one, two, three, *_ = rows(values["status_table_chapters"])
    assert one[1:5] == ["20 s", "2 min", "1,500", "700"]
    assert one[6] == "2026-01-01 10:00"
    assert two[6] == "2026-01-01 10:00, changed since"
    assert three[6] == "not recorded yet"
    assert values["status_cells"] == "3,000"
    assert values["status_compared"] == "1,400"
    assert values["status_together"] == "0.5 minutes"  # 60.4 s on two cores
    assert values["status_slowest"] == f"*{page.title(live_name(1))}* with 40 s"
    assert values["status_chapters_recorded"] == (
        "All on A, 2 cores, of commit `` abc ``, 2026-01-01 10:00 (UTC)."
    )
    assert "outside of git" in values["status_steps_recorded"]


def live_name(n: int) -> str:
    return Path(live_chapters.chapters()[n]).name


def test_records_of_two_machines_are_told_apart() -> None:
    def of(machine: str, when: str) -> dict[str, str]:
        return {"machine": machine, "commit": "abc", "when": when}

    found = {"a": of("A", "2026-01-01 10:00"), "b": of("B", "2026-01-02 10:00"),
             "c": of("A", "2026-01-01 10:05")}  # fmt: skip
    assert page.recorded_on(found) == (
        "2 of 3 on A, of commit `` abc ``, 2026-01-01 10:00 to 2026-01-01 10:05 (UTC). "
        "1 of 3 on B, of commit `` abc ``, 2026-01-02 10:00 (UTC)."
    )


def test_without_records_the_page_says_so(tmp_path: Path) -> None:
    values = page.values(tmp_path / "none.json")
    assert values["status_chapters_recorded"] == "Nothing was recorded yet."
    assert values["status_slowest"] == "not known"
    assert "not recorded yet" in values["status_table_steps"]


def test_the_repositorys_runs_are_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("live_chapters.repository", lambda: None)
    assert page.runs_link() == ""
    monkeypatch.setattr("live_chapters.repository", lambda: ("https://h/a/b", "main"))
    assert "](https://h/a/b/actions)" in page.runs_link()


def test_what_the_book_keeps_is_whole() -> None:
    """Every record of the committed file says when, on what and of what it is."""
    found = {"chapters": {}, "steps": {}} | tool.load(tool.KEPT)
    names = {Path(name).name for name in live_chapters.chapters()}
    assert set(found["chapters"]) <= names
    for record in [*found["chapters"].values(), *found["steps"].values()]:
        assert {"when", "machine", "commit"} <= set(record)
    assert all(record["passed"] for record in found["chapters"].values())
