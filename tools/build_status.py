"""When what was last checked, and what it took: kept for the page "Build status".

    make status                            keep what the last `make test` found
    python tools/build_status.py keep      the same

The tests write what they found under `_build/reports`: `tools/run_tests.py` each step
that passed, `tools/chapter_times.py` each chapter that was run. So running the tests
changes no file of the book. This command puts what they wrote in place of the older
records in `book/status.json`, from which `tools/status_page.py` makes the page. What
failed, or was not run, keeps its older record, with its date.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edition import edition

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "book" / "status.json"
STEPS = ROOT / "_build" / "reports" / "steps.json"
CHAPTERS = ROOT / "_build" / "reports" / "chapters"

Records = dict[str, dict[str, Any]]


def processor() -> str:
    """The name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor() or platform.machine()


def circumstances() -> dict[str, str]:
    """When, on what and of which files something was recorded; times are UTC."""
    return {
        "when": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
        "machine": f"{processor()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}",
        "commit": edition().state,
    }


def load(path: Path) -> dict[str, Any]:
    """What a file of records has; nothing where it is not there."""
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write(records: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(records, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def step_passed(name: str, seconds: float, path: Path | None = None) -> None:
    """Record that a step of the tests passed just now."""
    path = path or STEPS
    record = {"seconds": round(seconds), **circumstances()}
    write(load(path) | {name: record}, path)


def chapter_records(folder: Path | None = None) -> Records:
    """What the last run of each chapter found."""
    paths = sorted((folder or CHAPTERS).glob("*.json"))
    return {path.stem: load(path) for path in paths}


def newest(kept: Mapping[str, Any], found: Mapping[str, Any]) -> Records:
    """Of each name the later record."""
    both = {**kept}
    for name, record in found.items():
        if name not in kept or kept[name]["when"] <= record["when"]:
            both[name] = record
    return both


def merged(
    kept: Mapping[str, Any],
    chapters: Mapping[str, Any],
    steps: Mapping[str, Any],
    known_chapters: Sequence[str],
    known_steps: Sequence[str],
) -> dict[str, Records]:
    """What is kept, with what was found in place of it, in the order of the book."""
    passed = {name: each for name, each in chapters.items() if each["passed"]}
    by_chapter = newest(kept.get("chapters", {}), passed)
    by_step = newest(kept.get("steps", {}), steps)
    return {
        "chapters": {n: by_chapter[n] for n in known_chapters if n in by_chapter},
        "steps": {n: by_step[n] for n in known_steps if n in by_step},
    }


def keep() -> None:
    from run_tests import STEPS as ALL

    names = [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    found = merged(
        load(KEPT), chapter_records(), load(STEPS), names, [step.name for step in ALL]
    )
    write(found, KEPT)
    print(
        f"Kept in {KEPT.relative_to(ROOT)}: {len(found['chapters'])} chapters, "
        f"{len(found['steps'])} steps"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("keep",))
    parser.parse_args(arguments)
    keep()
    return 0


if __name__ == "__main__":
    sys.exit(main())
