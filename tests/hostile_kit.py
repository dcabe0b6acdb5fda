"""Files that were cut, changed by a byte, or lie about their size; and their number.

A test that tries hostile inputs says how many by the fixture ``tried``; the numbers
stand in pytest's XML report, and ``totals`` adds them up:

    pytest tests/unit -k hostile -o junit_family=xunit1 --junitxml=report.xml
    python tests/hostile_kit.py report.xml
"""

from __future__ import annotations

import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

PROPERTY = "hostile inputs: "
REFUSED = (ValueError, TypeError, OSError)


def totals(report: str | Path) -> Counter[str]:
    """How many hostile inputs of each kind the tests of an XML report tried."""
    found: Counter[str] = Counter()
    for each in ElementTree.parse(report).iter("property"):
        name = each.get("name", "")
        if name.startswith(PROPERTY):
            found[name.removeprefix(PROPERTY)] += int(each.get("value", "0"))
    return found


def truncated(whole: bytes, step: int = 1) -> Iterator[bytes]:
    """``whole`` cut at every length, or at every ``step``-th one."""
    for length in range(0, len(whole), step):
        yield whole[:length]


def flipped(whole: bytes, step: int = 1, masks: tuple[int, ...] = (255,)):
    """``whole`` with one byte changed at a time; bits of ``masks`` are turned."""
    for place in range(0, len(whole), step):
        for mask in masks:
            changed = bytearray(whole)
            changed[place] ^= mask
            yield bytes(changed)


def attempt(read: Callable[[Path], Any], path: Path, content: bytes) -> Any:
    """What ``read`` makes of a file with this content; None where it is refused.

    Refused means: by a short error that names the file.
    """
    path.write_bytes(content)
    try:
        return read(path)
    except REFUSED as error:
        said = error
    assert path.name in str(said), (type(said), str(said))
    assert len(str(said)) < 700, str(said)[:900]
    return None


def assert_distribution(p: np.ndarray, size: int) -> None:
    """``size`` numbers, none below 0, that sum to 1 within 1e-9."""
    assert p.shape == (size,)
    assert p.min() >= 0
    assert abs(p.sum() - 1) <= 1e-9


@contextmanager
def at_most(megabytes: float) -> Iterator[None]:
    """What is done inside allocates no more than this at any time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < megabytes * 1e6, f"{peak / 1e6:.1f} MB"


if __name__ == "__main__":
    counts = totals(sys.argv[1])
    for kind, n in counts.most_common():
        print(f"{n:8,}  {kind}")
    print(f"{counts.total():8,}  hostile inputs")
