"""A file of answers, graded in a process of its own.

    python -m specdec_lib.exercises.file answers.py

prints the marks as JSON. The answers are someone's program: it runs with all rights of
whoever grades it.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

from . import grade
from .marking import Mark

SECONDS = 120.0


def grade_file(path: Path, *, seconds: float = SECONDS) -> list[Mark]:
    """The marks of the answers in a Python file, which is run once.

    path
        of a file that defines the answers by name, as :func:`grade` takes them.
    seconds
        after which the file's process is ended.

    Raises ValueError, which says why, for a file that does not run, that takes too
    long, or that has no answer; OSError where there is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, str(path)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"stopped after {seconds:g} seconds") from None
    last = done.stdout.rpartition("\n")[2]
    if done.returncode or not last.startswith("["):
        said = done.stderr.strip().splitlines() or ["it ended without a word"]
        raise ValueError(f"does not run: {said[-1]}")
    marks = [Mark(**row) for row in json.loads(last)]
    if not marks:
        raise ValueError("no answer of a graded exercise")
    return marks


if __name__ == "__main__":
    found = grade(runpy.run_path(sys.argv[1]))
    rows = [{"label": m.label, "passed": m.passed, "message": m.message} for m in found]
    print("\n" + json.dumps(rows), end="")
