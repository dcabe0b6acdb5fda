"""What each chapter takes when the tests run it, and the budget that it must keep to.

    python tools/chapter_times.py [--enforce]     the table of the last run

As a plugin of pytest (`-p chapter_times`, beside nbval) it writes a record of each
chapter into `_build/reports/chapters`. The command prints them. With ``--enforce``, and
where the environment has CI, it fails where a chapter took more than its budget.

Held against the budget is processor time: that of the chapter's kernel and of whatever
the kernel started. What a chapter waited for (a server, a timer) is only in the time by
the clock, beside it.

Two programs on the two threads of one core slow each other down, and the system calls
all of that their processor time. So a small fixed loop is timed before every cell,
while the kernel is idle: how much slower it was than at its best tells how much of the
processor time a chapter would not have taken on its own. That is left out.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import build_status
import pytest
from build_status import Records

ROOT = Path(__file__).resolve().parents[1]
# Seconds of processor time: of one chapter, and of all on each of two cores.
ONE, ALL, CORES = 120, 600, 2
LOOPS = 5  # before every cell
SLOWEST = 2.0  # two threads of a core do not slow each other down by more


def digest(path: Path) -> str:
    """Tells one state of a chapter's file from another."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def processor_seconds(pid: int) -> float:
    """Of a process and all that it started, also of those that have ended since."""
    import psutil

    try:
        first = psutil.Process(pid)
        family = [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    total = 0.0
    for process in family:
        try:
            times = process.cpu_times()
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        total += times.user + times.system
        total += getattr(times, "children_user", 0) + getattr(
            times, "children_system", 0
        )
    return total


def kernel_of(item: pytest.Item) -> int | None:
    """The process that runs the cells of a chapter."""
    kernel = getattr(item.parent, "kernel", None)
    if kernel is None or not kernel.is_alive():
        return None
    return int(kernel.km.provisioner.pid)


def loop() -> float:
    """Processor time, in microseconds, of work that is always the same."""
    start = time.thread_time_ns()
    total = 0
    for n in range(20_000):
        total += n * n % 7
    return (time.thread_time_ns() - start) / 1000


class Clock:
    """Follows the cells of the chapters, and keeps a record of each chapter."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begun: dict[str, float] = {}
        self.outcomes: dict[str, Counter[str]] = {}
        self.compared: Counter[str] = Counter()
        self.loops: dict[str, list[float]] = {}

    @staticmethod
    def chapter(item: pytest.Item) -> str | None:
        """`notebooks/01_counting_words`, where this is a cell of it."""
        path = Path(item.path)
        if path.suffix != ".ipynb" or not hasattr(item, "cell"):
            return None
        return item.nodeid.split("::")[0].removesuffix(".ipynb")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if name := self.chapter(item):
            self.begun.setdefault(name, time.perf_counter())
            mean = sum(loop() for _ in range(LOOPS)) / LOOPS
            self.loops.setdefault(name, []).append(mean)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        report = yield
        name = self.chapter(item)
        if name and (report.when == "call" or report.outcome == "failed"):
            self.outcomes.setdefault(name, Counter())[report.outcome] += 1
            shows = item.options["check"] and item.cell.outputs
            self.compared[name] += bool(shows and report.outcome == "passed")
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> None:
        """After the last cell of a chapter, while its kernel is still there."""
        name = self.chapter(item)
        if not name or (nextitem is not None and nextitem.parent is item.parent):
            return
        pid = kernel_of(item)
        found = self.outcomes.get(name, Counter())
        loops = self.loops[name]
        record = {
            "passed": pid is not None and set(found) == {"passed"},
            "cells": found.total(),
            "compared": self.compared[name],
            "processor": round(processor_seconds(pid), 1) if pid else None,
            "loop": round(sum(loops) / len(loops)),
            "best_loop": round(min(loops)),
            "clock": round(time.perf_counter() - self.begun[name], 1),
            "digest": digest(Path(item.path)),
            **build_status.circumstances(),
        }
        build_status.write(record, self.folder / f"{Path(name).name}.json")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Clock(build_status.CHAPTERS), "clock of chapters")


def alone(records: Records) -> dict[str, float]:
    """Seconds that each chapter computes on a core of its own."""
    best: dict[str, float] = {}
    for record in records.values():
        machine, loop = record["machine"], record["best_loop"]
        best[machine] = min(loop, best.get(machine, loop))
    found = {}
    for name, record in records.items():
        slower = record["loop"] / best[record["machine"]]
        found[name] = (record["processor"] or 0.0) / min(max(slower, 1.0), SLOWEST)
    return found


def table(records: Records) -> str:
    """The times of the chapters, the longest first."""
    heads = ("chapter", "alone", "processor", "clock", "cells", "compared")
    lines = ["{:<34}{:>9}{:>11}{:>9}{:>7}{:>10}".format(*heads)]
    times = alone(records)
    for name in sorted(records, key=lambda each: -times[each]):
        record = records[name]
        seconds = record["processor"]
        lines.append(
            f"{name:<34}{times[name]:>7.1f} s"
            f"{f'{seconds:.1f} s' if seconds is not None else '?':>11}"
            f"{record['clock']:>7.1f} s{record['cells']:>7}{record['compared']:>10}"
        )
    return "\n".join(lines)


def over_budget(records: Records) -> list[str]:
    """What took longer than it may, a line for each."""
    times = alone(records)
    lines = [
        f"{name}: {seconds:.0f} s of processor time, at most {ONE} s"
        for name, seconds in times.items()
        if seconds > ONE
    ]
    if (together := sum(times.values())) > CORES * ALL:
        lines.append(
            f"All chapters: {together / CORES:.0f} s on each of {CORES} cores, "
            f"at most {ALL} s"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--enforce",
        action="store_true",
        default=bool(os.environ.get("CI")),
        help="fail where a chapter is over its budget",
    )
    enforce = parser.parse_args(arguments).enforce
    records = build_status.chapter_records()
    if not records:
        print("No chapter was run yet: .venv/bin/python tools/run_tests.py notebooks")
        return 2
    print(table(records))
    together = sum(alone(records).values())
    share = f"{together / CORES:.0f} s on each of {CORES} cores"
    print(f"Together {together:.0f} s on a core of their own, {share}.")
    print(f"The budget: {ONE} s for a chapter, {ALL} s on each core for all of them.")
    lines = over_budget(records)
    if lines:
        print("Over the budget" + ("." if enforce else " (only told, but in CI)."))
        print("\n".join(lines))
    return int(bool(lines) and enforce)


if __name__ == "__main__":
    sys.exit(main())
