"""``specdec grade``: files of answers, and a table of what they got right."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .file import grade_file


def add(commands: Any) -> None:
    """The command, among the others."""
    parser = commands.add_parser(
        "grade",
        help="grade files of answers to the book's exercises",
        description="Grade Python files that define answers to the graded exercises "
        "by name (in Python: sd.exercises.TASKS). Each file is run, in a process of "
        "its own, with all your rights: grade only what you would run. The exit code "
        "is 1 where anything is not right yet.",
    )
    parser.add_argument(
        "file", nargs="+", type=Path, metavar="FILE", help="such as answers/*.py"
    )
    parser.set_defaults(command=_grade, about=parser.format_help)


def _grade(options: argparse.Namespace) -> int:
    all_right = True
    for path in options.file:
        try:
            marks = grade_file(path)
        except ValueError as error:
            print(f"{path}: {error}")
            all_right = False
            continue
        right = sum(mark.passed for mark in marks)
        print(f"{path}: {right} of {len(marks)} right")
        for mark in marks:
            print(f"  {mark!r}")
        all_right &= right == len(marks)
    return 0 if all_right else 1
