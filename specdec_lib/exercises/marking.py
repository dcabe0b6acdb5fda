"""How an answer is called, compared and told of; nothing of any exercise."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Number
from pathlib import Path
from typing import Any, Protocol

import numpy as np

LINES = 20_000  # of an answer, in one call
LIBRARY = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True, repr=False)
class Mark:
    """What a grader says of an answer: ``passed``, and a ``message`` in words.

    It counts as true where the answer passed, and prints as the label, "right" or "not
    yet", and the message.
    """

    label: str
    passed: bool
    message: str

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        said = "right" if self.passed else "not yet"
        return f"{self.label}: {said}. {self.message}".rstrip()


class Grader(Protocol):
    """What judges one answer."""

    def grade(self, answer: Any, name: str) -> None:
        """:class:`Wrong` unless ``answer`` is right; ``name`` is what it is called."""


class Wrong(Exception):
    """The answer is not right; the text says in what."""


class _Endless(BaseException):
    """Raised inside an answer that does not come to an end; no ``except Exception``
    of the answer can catch it."""


@contextmanager
def _ending() -> Iterator[None]:
    """Stops Python code that runs for more than LINES lines, the library's left out."""
    left = LINES

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename.startswith(LIBRARY):
            return None
        left -= event == "line"
        if left < 0:
            raise _Endless
        return trace

    before = sys.gettrace()
    if before is None:  # else a debugger is at work, and a person looks on
        sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def called(answer: Callable[..., Any], name: str, arguments: Sequence[Any]) -> Any:
    """What ``answer`` gives for ``arguments``; Wrong where it fails or changes them."""
    given = [_own(argument) for argument in arguments]
    try:
        with _ending(), np.errstate(all="ignore"):
            result = answer(*given)
    except Wrong:
        raise
    except _Endless:
        raise Wrong(
            f"{call(name, arguments)} does not come to an end: stopped after "
            f"{LINES:,} lines"
        ) from None
    except (Exception, SystemExit) as error:
        raise Wrong(f"{call(name, arguments)} {_raised(error)}") from None
    for before, after in zip(arguments, given, strict=True):
        if isinstance(before, list) and before != after:
            raise Wrong(
                f"{call(name, arguments)} changes the list that it was given; work on "
                "a copy"
            )
    return result


def check_callable(answer: Any, name: str, takes: str) -> None:
    """Wrong unless ``answer`` is a function that can be called with what ``takes``
    lists."""
    if not callable(answer):
        raise Wrong(f"this asks for a function {name}({takes}), not {brief(answer)}")
    wanted = takes.split(", ")
    try:
        inspect.signature(answer).bind(*wanted)
    except TypeError:
        raise Wrong(
            f"{name} has to take {len(wanted)} arguments in this order, ({takes}); "
            f"yours takes {inspect.signature(answer)}"
        ) from None
    except ValueError:  # some functions in C do not tell
        pass


def _own(argument: Any) -> Any:
    """A copy of a list; of an array a view that cannot be written to."""
    if isinstance(argument, list):
        return list(argument)
    if isinstance(argument, np.ndarray):
        view = argument.view()
        view.flags.writeable = False
        return view
    return argument


def _raised(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "leaves Python (exit)"
    text = f"raises {type(error).__name__}: {error}"
    if "read-only" in str(error):
        return f"{text}; it changes an array that it was given: work on a copy"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(LIBRARY)
    ]
    return f"{text}, in `{frames[0].line}`" if frames and frames[0].line else text


def call(name: str, arguments: Sequence[Any]) -> str:
    """The call as one would write it."""
    return f"{name}({', '.join(map(show, arguments))})"


def show(value: Any) -> str:
    """A value for a sentence: rounded to four decimals, arrays as tuples."""
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (float, np.floating)):
        return f"{value:.4f}".rstrip("0").rstrip(".") if np.isfinite(value) else "nan"
    if isinstance(value, np.ndarray):
        value = tuple(value)
    if isinstance(value, (tuple, list)):
        inside = ", ".join(map(show, value))
        left, right = "[]" if isinstance(value, list) else "()"
        return f"{left}{inside}{',' * (left == '(' and len(value) == 1)}{right}"
    return "rng" if hasattr(value, "categorical") else str(value)


def brief(value: Any) -> str:
    """What an answer is, for the sentence that it should be something else."""
    text = show(value) if isinstance(value, (Number, str, tuple, list)) else ""
    return text if 0 < len(text) <= 60 else f"a {type(value).__name__}"


# What counts as the same


def as_number(value: Any, what: str) -> float:
    """``value`` as a float: any kind of number, a fraction, an array of one."""
    try:
        array = np.asarray(value)
        number = float(array.reshape(())) if array.size == 1 else float(value)
    except (TypeError, ValueError):
        raise Wrong(f"{what} is {brief(value)}, not a number") from None
    if not np.isfinite(number):
        raise Wrong(f"{what} is {number}, not a number to work with")
    return number


def as_numbers(value: Any, what: str, size: int) -> np.ndarray:
    """``value`` as ``size`` floats, from any sequence or array of numbers."""
    try:
        row = np.array([float(x) for x in value])
    except (TypeError, ValueError):
        raise Wrong(f"{what} is {brief(value)}, not {size} numbers") from None
    if len(row) != size:
        raise Wrong(f"{what} has {len(row)} numbers, and not {size}")
    if not np.isfinite(row).all():
        raise Wrong(f"{what} is {show(tuple(row))}: one is not a number (0 / 0?)")
    return row


def as_tokens(value: Any, what: str) -> tuple[int, ...]:
    """``value`` as a tuple of token ids, from any sequence or array of integers."""
    try:
        return tuple(as_token(token, what) for token in value)
    except TypeError:
        raise Wrong(f"{what} is {brief(value)}, not a sequence of tokens") from None


def as_token(value: Any, what: str) -> int:
    """``value`` as an int; whole floats too, and arrays of one."""
    try:
        number = np.asarray(value).reshape(()).item()
        if isinstance(number, (int, float)) and number == int(number):
            return int(number)
    except (TypeError, ValueError, OverflowError):
        pass
    raise Wrong(f"{what} is {brief(value)}, where tokens are whole numbers")


def as_truth(value: Any, what: str) -> bool:
    """``value`` as a ``bool``: True and False of Python or NumPy, or 0 and 1."""
    try:
        item = np.asarray(value).reshape(()).item()
    except (TypeError, ValueError):
        item = None
    if isinstance(item, (bool, int)) and item in (0, 1):
        return bool(item)
    raise Wrong(f"{what} is {brief(value)}, where the answer is True or False")
