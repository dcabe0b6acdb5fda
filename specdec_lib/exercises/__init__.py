"""Graders for the exercises of the chapters, by their labels.

    sd.exercises.check("ex-05-a", accepts, residual)

An answer of any form passes if it is right: other loops, other types, the library's
random source or the methods of NumPy's. Answers that draw are not sampled but followed
on every path. One that is wrong is told by a case in which it fails, and by the usual
fault that fails in just that way, where there is one.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from .marking import Mark, Wrong
from .tasks import TASKS

__all__ = ["TASKS", "Mark", "check", "grade"]


def check(label: str, *answers: Any) -> Mark:
    """Grade the answers to one exercise.

    label
        of the exercise, as it stands in the chapter: "ex-05-a".
    answers
        what the exercise asks for, in that order: functions, numbers or texts. Their
        names are the keys of ``TASKS[label]``.

    Returns a :class:`Mark`. What an answer prints is not shown. A wrong answer is never
    an error; ValueError says that no grader has this label, TypeError that the number
    of answers is not what the exercise asks for.

    >>> check("ex-03-c", 0.375)
    ex-03-c: not yet. 0.375 leaves out the draft: four guesses cost 0.4.
    >>> check("ex-07-a", lambda p, q: sum(p * q))  # doctest: +ELLIPSIS
    ex-07-a: not yet. acceptance((0.5, 0.3, 0.2), (0.2, 0.5, 0.3)) gives 0.31, ...
    """
    if label not in TASKS:
        near = get_close_matches(str(label), TASKS, n=3) or list(TASKS)
        raise ValueError(
            f"label must be that of a graded exercise, got {label!r}; there is "
            f"{', '.join(near)}"
        )
    names = tuple(TASKS[label])
    if len(answers) != len(names):
        raise TypeError(
            f"answers must be {len(names)} for {label} ({', '.join(names)}), "
            f"got {len(answers)}"
        )
    return _marked(label, dict(zip(names, answers, strict=True)))


def grade(answers: Mapping[str, Any]) -> list[Mark]:
    """Grade all answers that ``answers`` has by name, exercise by exercise.

    answers
        from name to answer, such as the ``vars()`` of a module, or ``globals()`` of a
        notebook; other names are passed over. The names are the keys of
        ``TASKS[label]``.

    Returns the marks in the order of the chapters, none for an exercise of which no
    name is there; one of which only a part is there has not passed. TypeError if it is
    no mapping.

    >>> grade({"steepest": 0.275, "x": 1})
    [ex-03-c: right.]
    """
    if not isinstance(answers, Mapping):
        raise TypeError(
            f"answers must be a mapping from names, got {type(answers).__name__}"
        )
    return [
        _marked(label, answers)
        for label, graders in TASKS.items()
        if any(name in answers for name in graders)
    ]


def _marked(label: str, answers: Mapping[str, Any]) -> Mark:
    said, passed = [], True
    for name, grader in TASKS[label].items():
        try:
            if name not in answers:
                raise Wrong("there is no answer of this name.")
            with contextlib.redirect_stdout(io.StringIO()):
                grader.grade(answers[name], name)
            text = "right."
        except Wrong as wrong:
            text, passed = str(wrong), False
        said.append((name, text if text.endswith((".", "?")) else f"{text}."))
    if passed:
        return Mark(label, True, "")
    parts = [text if len(said) == 1 else f"{name}: {text}" for name, text in said]
    return Mark(label, False, " ".join(parts))
