"""Plant faults in the library, one at a time, and see which test notices each.

    make faults                                        all of them; minutes
    python tools/planted_faults.py                     list them
    python tools/planted_faults.py --only "NAME" ...   some of them

`tests/planted_faults.toml` has the faults: each replaces one fragment of the library's
source, which must be there exactly once, and names the tests that have to fail then.
They are planted in a copy; the working tree is never changed. First the named tests
must pass on the copy without any fault. The exit status is 1 where a fault survives.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CATALOGUE = ROOT / "tests" / "planted_faults.toml"
COPIED = ("specdec_lib", "tests", "tools")
LIMIT = 300  # seconds for the tests of one fault
# The same examples of property tests each time, and nothing kept between two runs.
PYTEST = ("-m", "pytest", "-q", "-rfE", "--tb=no", "--hypothesis-seed=0")
PYTEST += ("-p", "no:cacheprovider")


@dataclass(frozen=True)
class Fault:
    """One fault of the catalogue.

    name, area
        what it is called, and the part of the library that it is in.
    effect
        what it does to the reader's text or figures.
    file, old, new
        the fragment ``old`` of ``file`` becomes ``new``.
    tests
        those that must notice, as in ``unit/test_metrics::test_seconds_add_up``.
    """

    name: str
    area: str
    effect: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, source: str) -> str:
        """``source`` with the fault; ValueError unless ``old`` is there just once."""
        count = source.count(self.old)
        if count != 1:
            raise ValueError(
                f"{self.name!r}: its fragment is {count} times in {self.file}, "
                f"must be there exactly once: {self.old!r}"
            )
        if self.old == self.new:
            raise ValueError(f"{self.name!r}: the new fragment is the old one")
        return source.replace(self.old, self.new)


def catalogue(path: Path = CATALOGUE) -> list[Fault]:
    """The faults of a file; ValueError where a name is there twice."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
    faults = [Fault(**{**each, "tests": tuple(each["tests"])}) for each in entries]
    names = [fault.name for fault in faults]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"names must be unique, there twice: {', '.join(twice)}")
    return faults


def source_of(fault: Fault, root: Path = ROOT) -> str:
    """The source that the fault is to be planted in."""
    return (root / fault.file).read_text(encoding="utf-8")


def node(test: str) -> str:
    """``unit/test_a::test_b`` as pytest wants it."""
    module, _, name = test.partition("::")
    return f"tests/{module}.py::{name}"


@contextmanager
def copy_of_the_library() -> Iterator[Path]:
    """A folder with a copy of all that the tests read."""
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        folder = Path(name)
        caches = shutil.ignore_patterns("__pycache__", ".hypothesis")
        for each in COPIED:
            shutil.copytree(ROOT / each, folder / each, ignore=caches)
        shutil.copy(ROOT / "pyproject.toml", folder)
        yield folder


@dataclass(frozen=True)
class Outcome:
    """How some tests ended: ``failed`` are the ids of those that did, ``trouble`` says
    why there is no verdict, both empty where all passed."""

    failed: tuple[str, ...] = ()
    trouble: str = ""


def run_tests(
    folder: Path, tests: Sequence[str], *options: str, limit: float = LIMIT
) -> Outcome:
    """Run ``tests`` in the copy ``folder``."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(folder)
    command = [sys.executable, *PYTEST, *options, *map(node, tests)]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return Outcome(trouble=f"no verdict after {limit:.0f} s")
    failed = tuple(
        line.split(" ", 1)[1].split(" - ")[0]
        for line in done.stdout.splitlines()
        if line.startswith(("FAILED ", "ERROR "))
    )
    if done.returncode == 0 or (done.returncode == 1 and failed):
        return Outcome(failed)
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
    return Outcome(trouble=f"pytest ended with {done.returncode}: {''.join(said)}")


@contextmanager
def in_place(fault: Fault, folder: Path) -> Iterator[None]:
    """The fault is in the copy, then no more."""
    path = folder / fault.file
    before = source_of(fault, folder)

    def write(text: str) -> None:
        path.write_text(text, encoding="utf-8")
        # Of the same size and second, it would be taken for the other one.
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)

    write(fault.planted(before))
    try:
        yield
    finally:
        write(before)


def entry(fault: Fault, killer: str | None) -> dict[str, Any]:
    """All of a fault, and the first test that noticed it."""
    return {
        "name": fault.name,
        "area": fault.area,
        "effect": fault.effect,
        "file": fault.file,
        "old": fault.old,
        "new": fault.new,
        "killed_by": killer,
    }


def report(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What is written of these faults."""
    killed = sum(each["killed_by"] is not None for each in entries)
    return {"planted": len(entries), "killed": killed, "faults": list(entries)}


def with_earlier(
    entries: Sequence[dict[str, Any]], path: Path, faults: Sequence[Fault]
) -> list[dict[str, Any]]:
    """``entries``, and those of a report in ``path`` whose faults are still the same,
    in the order of the catalogue ``faults``."""
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))["faults"]
    except (FileNotFoundError, json.JSONDecodeError):
        earlier = []
    known = {each["name"]: each for each in [*earlier, *entries]}
    return [
        known[fault.name]
        for fault in faults
        if fault.name in known
        and known[fault.name] == entry(fault, known[fault.name]["killed_by"])
    ]


def as_markdown(found: dict[str, Any]) -> str:
    """The report as a table."""
    lines = [
        f"{found['killed']} of {found['planted']} planted faults were noticed.",
        "",
        "| Fault | What it does | Noticed by |",
        "| --- | --- | --- |",
    ]
    for each in found["faults"]:
        killer = f"`{each['killed_by']}`" if each["killed_by"] else "**nothing**"
        row = (each["name"], each["effect"], killer)
        cells = [cell.replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write_report(path: Path, found: dict[str, Any]) -> None:
    """As JSON, or as Markdown where the name ends in .md."""
    as_json = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    text = as_markdown(found) if path.suffix == ".md" else as_json
    path.write_text(text, encoding="utf-8")


def plant(faults: Sequence[Fault], limit: float = LIMIT) -> list[str | None] | None:
    """The test that noticed each fault, None for a survivor, said as it goes; None at
    all where tests fail without a fault."""
    for fault in faults:
        fault.planted(source_of(fault))
    with copy_of_the_library() as folder:
        tests = sorted({test for fault in faults for test in fault.tests})
        start = time.perf_counter()
        without = run_tests(folder, tests, limit=limit * 6)
        if without.failed or without.trouble:
            print("Without any fault, these tests must pass:")
            print("\n".join(without.failed) or without.trouble)
            return None
        seconds = time.perf_counter() - start
        print(f"{len(tests)} tests pass without a fault ({seconds:.0f} s)", flush=True)
        killers: list[str | None] = []
        for fault in faults:
            start = time.perf_counter()
            with in_place(fault, folder):
                outcome = run_tests(folder, fault.tests, "-x", limit=limit)
            killer = outcome.failed[0] if outcome.failed else None
            killers.append(killer)
            said = f"killed by {killer}" if killer else "SURVIVED"
            seconds = time.perf_counter() - start
            more = f", {outcome.trouble}" if outcome.trouble else ""
            print(f"{fault.name}: {said}{more} ({seconds:.0f} s)", flush=True)
    return killers


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="plant all faults")
    which.add_argument("--only", nargs="+", metavar="NAME", help="plant these")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help=".md, or .json, which keeps what it says of faults that are not planted",
    )
    parser.add_argument("--catalogue", type=Path, default=CATALOGUE, metavar="FILE")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, help="seconds for one fault"
    )
    options = parser.parse_args(arguments)
    try:
        faults = chosen = catalogue(options.catalogue)
        if options.only:
            unknown = sorted(set(options.only) - {fault.name for fault in faults})
            if unknown:
                parser.error(f"no fault of the name {', '.join(map(repr, unknown))}")
            chosen = [fault for fault in faults if fault.name in options.only]
        elif not options.all:
            for fault in faults:
                print(f"{fault.area}: {fault.name}. {fault.effect}")
            return 0
        killers = plant(chosen, options.limit)
    except ValueError as error:
        print(error)
        return 2
    if killers is None:
        return 2
    entries = list(map(entry, chosen, killers))
    found = report(entries)
    print(f"{found['killed']} of {found['planted']} planted faults were noticed")
    if options.report is not None:
        whole = with_earlier(entries, options.report, faults)
        write_report(options.report, report(whole))
    return int(found["killed"] != found["planted"])


if __name__ == "__main__":
    sys.exit(main())
