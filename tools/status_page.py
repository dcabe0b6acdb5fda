"""What `book/status.md` shows, made from `book/status.json` and `book/live_runs.json`.

The page has prose, and marks such as `{{ status_table_steps }}`; `values` has a number
or a piece of Markdown for each. Nobody types a number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import build_status
import chapter_times
import live_chapters
from proof_page import code, number, table

ROOT = Path(__file__).resolve().parents[1]


def title(chapter: str) -> str:
    """The title of a chapter such as `01_counting_words`."""
    path = ROOT / "notebooks" / f"{chapter}.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "".join(cells[0]["source"]).splitlines()[0].lstrip("# ")


def seconds(value: float | None) -> str:
    """A measured time as it is said: 8 s, 75 s, 3 min."""
    if value is None:
        return "unknown"
    return f"{value:.0f} s" if value < 100 else f"{value / 60:.0f} min"


def in_browser(chapter: str) -> str:
    """Whether a chapter runs in the browser, and how long that was measured to take."""
    name = f"notebooks/{chapter}"
    if name in live_chapters.elsewhere():
        return "no"
    run = live_chapters.runs().get("chapters", {}).get(name)
    return f"yes, {seconds(run['whole'])}" if run else "yes, not timed"


def chapter_row(
    chapter: str, record: Mapping[str, Any] | None, alone: float | None
) -> list[object]:
    link = f"[{title(chapter)}](../notebooks/{chapter}.ipynb)"
    if record is None:
        return [link, "", "", "", "", in_browser(chapter), "not recorded yet"]
    path = ROOT / "notebooks" / f"{chapter}.ipynb"
    later = "" if record["digest"] == chapter_times.digest(path) else ", changed since"
    return [
        link,
        seconds(alone),
        seconds(record["clock"]),
        record["cells"],
        record["compared"],
        in_browser(chapter),
        record["when"] + later,
    ]


def recorded_on(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Where, and of which commits, the records were made."""
    groups: dict[tuple[str, str], list[str]] = {}
    for record in records.values():
        key = (record["machine"], record["commit"])
        groups.setdefault(key, []).append(record["when"])
    lines = []
    for (machine, commit), times in groups.items():
        of = f"commit {code(commit)}" if commit else "files outside of git"
        share = "All" if len(groups) == 1 else f"{len(times)} of {len(records)}"
        span = (
            min(times) if min(times) == max(times) else f"{min(times)} to {max(times)}"
        )
        lines.append(f"{share} on {machine}, of {of}, {span} (UTC).")
    return " ".join(lines) or "Nothing was recorded yet."


def runs_link() -> str:
    """Where the runs of the tests can be read; nothing without a repository."""
    known = live_chapters.repository()
    if known is None:
        return ""
    return f"The repository has [all runs of the tests]({known[0]}/actions)."


def values(kept: Path | None = None) -> dict[str, str]:
    """What stands in place of each mark of the page."""
    from run_tests import STEPS

    found = build_status.load(kept or build_status.KEPT)
    by_chapter, by_step = found.get("chapters", {}), found.get("steps", {})
    names = [Path(name).name for name in live_chapters.chapters()]
    chapters = {n: by_chapter[n] for n in names if n in by_chapter}
    steps = {s.name: by_step[s.name] for s in STEPS if s.name in by_step}
    alone = chapter_times.alone(chapters)
    slowest = "not known"
    if chapters:
        name = max(alone, key=lambda each: alone[each])
        slowest = f"*{title(name)}* with {seconds(alone[name])}"
    total = sum(alone.values())
    heads = (
        *("Chapter", ">Alone", ">In this run", ">Cells", ">Compared"),
        *("In the browser", "Last check (UTC)"),
    )
    return {
        "status_table_chapters": table(
            heads, [chapter_row(n, chapters.get(n), alone.get(n)) for n in names]
        ),
        "status_table_steps": table(
            ("Step", "What it checks", ">Took", "Last passed (UTC)"),
            [
                (
                    code(step.name),
                    step.what,
                    seconds(steps[step.name]["seconds"]),
                    steps[step.name]["when"],
                )
                if step.name in steps
                else (code(step.name), step.what, "", "not recorded yet")
                for step in STEPS
            ],
        ),
        "status_chapters": number(len(names)),
        "status_cells": number(sum(each["cells"] for each in chapters.values())),
        "status_compared": number(sum(each["compared"] for each in chapters.values())),
        "status_slowest": slowest,
        "status_together": f"{total / chapter_times.CORES / 60:.1f} minutes",
        "status_one": number(chapter_times.ONE),
        "status_all": number(chapter_times.ALL // 60),
        "status_chapters_recorded": recorded_on(chapters),
        "status_steps_recorded": recorded_on(steps),
        "status_runs": runs_link(),
    }
