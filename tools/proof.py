"""Count what the tests tried, and keep the counts that a page of the book shows.

    make proof                           run the tests, and keep what they count
    python tools/proof.py run [STEP]     the same for these steps
    python tools/proof.py keep [STEP]    keep what the last run of these steps counted
    python tools/proof.py check STEP     fail where that is something else than is kept

A test says how much it tried in properties of pytest's XML report (see
`tests/conftest.py`): the examples of a property, hostile inputs of each kind, settings
of the loop all of whose paths were followed. `tests/proof_report.json` has their sums
for each file of tests, and `book/proof.md` shows them. What a test counts is the same
on every machine; a file whose tests were partly skipped, for want of a package, may
have counted less.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / "proof_report.json"
REPORTS = ROOT / "_build" / "reports"
STEPS = ("unit", "exactness", "service", "llama")

# The names of the properties. Hostile inputs have their kind behind theirs.
EXAMPLES = "property examples"
HOSTILE = "hostile inputs: "
FOLLOWED = "settings followed on every path"
BIASED = "settings with a planted fault"
ERROR = "largest error"
SLACK = 10  # the same sums are rounded otherwise on another machine

Counts = dict[str, dict[str, int]]


@dataclass
class Counted:
    """What the tests of some files counted.

    tests
        for each file, as in ``unit/test_engine``, how many of what.
    largest_error
        of the settings that are exact: a total variation.
    partly
        the files of which some test was skipped.
    """

    tests: Counts = field(default_factory=dict)
    largest_error: float = 0.0
    partly: set[str] = field(default_factory=set)


def options(step: str) -> list[str]:
    """What pytest needs to be told so that the counts of a step can be read."""
    return [f"--junitxml={REPORTS / step}.xml", "-o", "junit_family=xunit1"]


def passing_examples(statistics: str) -> int:
    """The examples that passed, of what Hypothesis says at the end of a test.

    ValueError where it says so in other words than it used to.
    """
    found = re.findall(r"(\d+) passing(?: examples)?,", statistics)
    if len(found) != len(re.findall(r"- during \w+ phase", statistics)):
        raise ValueError(f"how many examples passed is not told in {statistics!r}")
    return sum(map(int, found))


def counted(report: Path) -> Counted:
    """The counts of one XML report; ValueError where a test of it failed."""
    found = Counted()
    tests: dict[str, Counter[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        place = case.get("file") or case.get("name", "").replace(".", "/")
        module = place.removeprefix("tests/").removesuffix(".py")
        if case.find("failure") is not None or case.find("error") is not None:
            raise ValueError(f"{module}::{case.get('name')} failed: nothing is counted")
        skipped = case.find("skipped")
        if skipped is not None and skipped.get("type") != "pytest.xfail":
            found.partly.add(module)
        for each in case.iter("property"):
            name, value = each.get("name", ""), each.get("value", "0")
            if name == ERROR:
                found.largest_error = max(found.largest_error, float(value))
            elif name in (EXAMPLES, FOLLOWED, BIASED) or name.startswith(HOSTILE):
                tests.setdefault(module, Counter())[name] += int(value)
    found.tests = {
        module: dict(sorted(counts.items())) for module, counts in sorted(tests.items())
    }
    return found


def differences(kept: Mapping[str, Any], now: Counted, step: str) -> list[str]:
    """Where the counts of a step are not those that are kept, a line for each."""
    before: Counts = {
        module: counts
        for module, counts in kept["tests"].items()
        if module.startswith(f"{step}/")
    }
    lines = []
    for module in sorted(before.keys() | now.tests.keys()):
        old, new = before.get(module, {}), now.tests.get(module, {})
        for name in sorted(old.keys() | new.keys()):
            was, found = old.get(name, 0), new.get(name, 0)
            if found > was or (found < was and module not in now.partly):
                lines.append(f"{module}: {name}: {found:,} were counted, kept: {was:,}")
    if now.largest_error > SLACK * kept["largest_error"]:
        lines.append(
            f"{step}: largest error {now.largest_error:.1g}, "
            f"kept: {kept['largest_error']:.1g}"
        )
    return lines


def read(path: Path = KEPT) -> dict[str, Any]:
    """What is kept; nothing where nothing was kept yet."""
    if not path.exists():
        return {"tests": {}, "largest_error": 0.0}
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return kept


def rounded_up(x: float) -> float:
    """To one digit: 3.2e-16 becomes 4e-16."""
    if x == 0:
        return 0.0
    unit = 10.0 ** math.floor(math.log10(x))
    return float(f"{math.ceil(x / unit - 1e-9) * unit:.0e}")


def with_step(kept: Mapping[str, Any], now: Counted, step: str) -> dict[str, Any]:
    """What is kept, with the counts of a step in place of its earlier ones.

    The step ``exactness`` sets the largest error anew, others only raise it. Where
    tests were skipped, the earlier counts of their file stay.
    """
    tests = {
        module: counts
        for module, counts in kept["tests"].items()
        if not module.startswith(f"{step}/") or module in now.partly
    }
    tests |= {m: c for m, c in now.tests.items() if m not in now.partly}
    error = rounded_up(now.largest_error)
    if step != "exactness":
        error = max(error, kept["largest_error"])
    return {"tests": dict(sorted(tests.items())), "largest_error": error}


def write(kept: Mapping[str, Any], path: Path = KEPT) -> None:
    path.write_text(
        json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def telling(step: str) -> list[str]:
    """The files of a step whose tests say what they try."""
    paths = sorted((ROOT / "tests" / step).glob("test_*.py"))
    said = re.compile(r"\bhypothesis\b|\btried\(|\binexactness\b")
    return [
        path.relative_to(ROOT).as_posix()
        for path in paths
        if said.search(path.read_text(encoding="utf-8"))
    ]


def run(steps: Iterable[str]) -> None:
    """Run those files as `make test` runs them among all others."""
    from run_tests import PYTEST, WORKERS

    for step in steps:
        print(f"== {step}", flush=True)
        (REPORTS / f"{step}.xml").unlink(missing_ok=True)
        workers = WORKERS if step != "llama" else []
        files = telling(step)
        if files:
            command = [*PYTEST, *workers, *options(step), *files]
            subprocess.run(command, cwd=ROOT, check=True)


def keep(steps: Iterable[str], path: Path = KEPT) -> None:
    kept = read(path)
    for step in steps:
        now = counted(REPORTS / f"{step}.xml") if telling(step) else Counted()
        for module in sorted(now.partly & (now.tests.keys() | kept["tests"].keys())):
            print(f"{module}: some tests were skipped, its earlier counts stay")
        kept = with_step(kept, now, step)
    write(kept, path)
    named = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    print(f"Kept in {named}: {len(kept['tests'])} files of tests")


def check(steps: Iterable[str], path: Path = KEPT) -> int:
    kept = read(path)
    lines = []
    for step in steps:
        now = counted(REPORTS / f"{step}.xml")
        lines += differences(kept, now, step)
    if lines:
        print("\n".join(lines))
        print("The book shows what is kept. If the tests are right: make proof")
    return int(bool(lines))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "keep", "check"))
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    chosen = parser.parse_args(arguments)
    unknown = sorted(set(chosen.steps) - set(STEPS))
    if unknown:
        parser.error(f"no step {unknown}; there are: {', '.join(STEPS)}")
    steps = chosen.steps or STEPS
    try:
        if chosen.what == "check":
            return check(steps)
        if chosen.what == "run":
            run(steps)
        keep(steps)
    except subprocess.CalledProcessError as error:
        return error.returncode
    except (FileNotFoundError, ValueError) as error:
        print(error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
