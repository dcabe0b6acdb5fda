"""Records of sweeps: in files, and what they say, with its uncertainty.

A record is a flat dict, so that `pandas.DataFrame` of a list of them is a tidy table.
Its columns are named in :meth:`specdec_lib.experiments.Sweep.run_cell`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .files import naming, open_file, parse_json, read_all, write_atomically
from .models import check_count
from .randomness import SeededRandom

Record = dict[str, Any]
AnyPath = str | os.PathLike[str]

MAX_LOG = 1 << 32  # bytes of a file of records
_TEXT_COLUMNS = frozenset({"draft", "prompt", "finish_reason", "setup"})


class Cell(NamedTuple):
    """What one record is about: the names and numbers that make its key."""

    draft: str
    temperature: float
    k: int
    seed: int
    prompt: str

    @property
    def random_seed(self) -> int:
        """The seed of this cell's own source, made from the key and from nothing else.

        So a cell gives the same record in any sweep, in any order, on any worker.
        """
        key = json.dumps(
            [self.draft, float(self.temperature), self.k, self.seed, self.prompt]
        ).encode()
        return int.from_bytes(hashlib.sha256(key).digest()[:8], "big")


# Files


def open_log(path: AnyPath) -> tuple[dict[Cell, Record], io.FileIO]:
    """The whole records of a file, and the file, open for more of them."""
    Path(path).touch()
    open_file(path).close()  # a pipe could not be read from again
    log = open(path, "r+b", buffering=0)  # noqa: SIM115 - the caller closes it
    try:
        content = log.read()
        whole = content[: content.rfind(b"\n") + 1]
        records = _parse_lines(whole, path)
        if len(whole) < len(content):  # the last line was cut off: drop it
            log.truncate(len(whole))
        log.seek(len(whole))
        return records, log
    except BaseException:
        log.close()
        raise


def append_record(log: io.FileIO, record: Record, path: AnyPath) -> None:
    """``record`` as one more line of ``log``, which is that of :func:`open_log`.

    It is on the disk when this returns. OSError naming ``path`` where it cannot be
    written; nothing of it is then left.
    """
    left = memoryview(json.dumps(record).encode() + b"\n")
    start = log.tell()
    with naming(path):
        try:
            while left:
                left = left[log.write(left) :]
            os.fsync(log.fileno())
        except BaseException:
            with suppress(OSError):  # what is left of a line is passed over when read
                log.seek(start)
                log.truncate()
            raise


def _parse_lines(content: bytes, path: AnyPath) -> dict[Cell, Record]:
    records: dict[Cell, Record] = {}
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            record = parse_json(line)
            cell = Cell(*(record[name] for name in Cell._fields))
            hash(cell)  # TypeError for a list or a dict in it
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{path}, line {number}, is no record of a sweep: {line[:60]!r}"
            ) from error
        if cell in records:
            raise ValueError(f"{path}, line {number}, repeats the record of {cell}")
        records[cell] = record
    return records


def read_records(path: AnyPath) -> list[Record]:
    """Records from a file: ``.csv`` as :func:`write_records` wrote it, else JSON Lines.

    An unfinished last line of JSON Lines is left out. ValueError naming the file for
    one that holds no records.
    """
    content = read_all(path, MAX_LOG)
    if Path(path).suffix != ".csv":
        whole = content[: content.rfind(b"\n") + 1]
        return list(_parse_lines(whole, path).values())
    try:
        rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path} is no table of records: {error}") from error
    if not rows or not set(Cell._fields) <= set(rows[0]):
        raise ValueError(f"{path} is no table of records: it needs {Cell._fields}")
    head, *lines = rows
    records = []
    for number, line in enumerate(lines, start=2):
        if len(line) != len(head):
            raise ValueError(f"{path}, line {number}, must have {len(head)} cells")
        try:
            values = map(_value, head, line)
            records.append(dict(zip(head, values, strict=True)))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    return records


def write_records(records: Sequence[Record], path: AnyPath) -> None:
    """Write ``records`` whole or not at all: a table for ``.csv``, else JSON Lines.

    A table has every column that any record has; what a record lacks is empty, as None
    is.
    """
    if Path(path).suffix != ".csv":
        text = "".join(json.dumps(record) + "\n" for record in records)
    else:
        table = io.StringIO(newline="")
        # Until Python 3.13 a "\r" is not quoted, and ends a line when it is read.
        names = [name for record in records for name in (*record, *record.values())]
        odd = any("\r" in name for name in names if isinstance(name, str))
        writer = csv.DictWriter(
            table,
            _columns(records),
            lineterminator="\n",
            quoting=csv.QUOTE_ALL if odd else csv.QUOTE_MINIMAL,
        )
        writer.writeheader()
        writer.writerows(records)
        text = table.getvalue()
    write_atomically(path, lambda file: file.write(text.encode()))


def _columns(records: Iterable[Record]) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in record))


def _value(column: str, text: str) -> Any:
    if column in _TEXT_COLUMNS:
        return text
    if text == "":
        return None
    return int(text) if text.removeprefix("-").isdigit() else float(text)


# What the records say

Amount = str | Callable[[Record], float]


class Interval(NamedTuple):
    """An estimate, and the bounds of its interval, ``low`` and ``high``."""

    estimate: float
    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and self.low <= value <= self.high


def ratio(
    records: Sequence[Record], numerator: Amount, denominator: Amount
) -> float | None:
    """The sum of one column over the sum of another; None for a ratio of nothing.

    A column's name, or a function of a record. A record that lacks the column (a place
    that its k does not reach) adds 0; a column that all lack is a ValueError.
    """
    part, whole = _amounts(records, numerator), _amounts(records, denominator)
    total = math.fsum(whole)
    return math.fsum(part) / total if total else None


def bootstrap_interval(
    records: Sequence[Record],
    numerator: Amount,
    denominator: Amount,
    *,
    by: Sequence[str] = ("prompt", "seed"),
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval | None:
    """A :func:`ratio`, and how uncertain it is: a bootstrap over whole texts.

    Guesses of one text are not independent, so what is drawn again and again, with
    replacement, are clusters: all records with the same values in the columns ``by``.
    Each draw gives a ratio of sums; the interval leaves out (1 - level) / 2 of them on
    both sides. Prompts may matter more than seeds: ``by=("prompt",)`` then draws
    prompts with all their seeds. With less than about 20 clusters it is too short.

    None for a ratio of nothing. Raises ValueError for less than two clusters.

    Source: Efron and Tibshirani 1993, sections 8.3 and 13.3 (percentile interval).
    """
    estimate = ratio(records, numerator, denominator)
    bounds = _bounds(level)
    if estimate is None:
        return None
    clusters = _clusters(records, by)
    n = max(clusters) + 1
    if n < 2:
        raise ValueError(f"records must have two clusters by {tuple(by)}, got {n}")
    part = np.bincount(clusters, _amounts(records, numerator), n)
    whole = np.bincount(clusters, _amounts(records, denominator), n)
    draws = _draws(n, resamples, seed)
    parts, wholes = draws @ part, draws @ whole
    some = wholes > 0  # a draw without any tested guess says nothing
    low, high = np.quantile(parts[some] / wholes[some], bounds)
    return Interval(estimate, float(low), float(high))


def best_k_interval(
    records: Sequence[Record],
    draft_cost: float,
    verify_cost: Callable[[int], float] | None = None,
    *,
    by: Sequence[str] = ("prompt", "seed"),
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """The measured best draft length, and the interval that a bootstrap gives it.

    As :func:`bootstrap_interval`, with the same texts drawn at every k; the best is
    that with the largest :func:`call_cost` speedup. ``records`` are of one draft and
    one temperature, and have the same clusters at every k: ValueError otherwise.
    """
    bounds = _bounds(level)
    ks = sorted({record["k"] for record in records})
    groups = [[r for r in records if r["k"] == k] for k in ks]
    every, drawn = _drawn_speedups(groups, draft_cost, verify_cost, by, resamples, seed)
    best = np.array(ks)[np.argmax(drawn, axis=0)]
    low, high = np.quantile(best, bounds, method="inverted_cdf")
    return Interval(ks[int(np.argmax(every))], int(low), int(high))


def gain_interval(
    records: Sequence[Record],
    baseline: Sequence[Record],
    draft_cost: float,
    verify_cost: Callable[[int], float] | None = None,
    *,
    by: Sequence[str] = ("prompt", "seed"),
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """The speedup of ``records`` over that of ``baseline``, less 1: 0.05 is 5 % faster.

    As :func:`bootstrap_interval`, with the same texts drawn for both; the speedup is
    that of :func:`call_cost`. Both must have the same clusters: ValueError otherwise.
    """
    bounds = _bounds(level)
    (mine, other), drawn = _drawn_speedups(
        [records, baseline], draft_cost, verify_cost, by, resamples, seed
    )
    low, high = np.quantile(drawn[0] / drawn[1] - 1, bounds)
    return Interval(mine / other - 1, float(low), float(high))


def _bounds(level: float) -> list[float]:
    """The two quantiles with a share of ``level`` of all draws between them."""
    if not 0 < level < 1:
        raise ValueError(f"level must be inside 0 .. 1, got {level}")
    return [(1 - level) / 2, (1 + level) / 2]


def _drawn_speedups(
    groups: Sequence[Sequence[Record]],
    draft_cost: float,
    verify_cost: Callable[[int], float] | None,
    by: Sequence[str],
    resamples: int,
    seed: int,
) -> tuple[list[float], list[NDArray[np.float64]]]:
    """Of each group of records: its speedup, and that in each draw of the clusters."""
    names = [sorted({tuple(r[name] for name in by) for r in each}) for each in groups]
    if any(each != names[0] for each in names):
        raise ValueError(
            f"records must have the same clusters by {by} in each group, at every k"
        )
    n = len(names[0]) if names else 0
    if n < 2:
        raise ValueError(f"records must have two clusters by {tuple(by)}, got {n}")
    draws = _draws(n, resamples, seed)
    every, drawn = [], []
    for each in groups:
        clusters = [names[0].index(tuple(r[name] for name in by)) for r in each]
        cost = [call_cost(r, draft_cost, verify_cost) for r in each]
        part = np.bincount(clusters, _amounts(each, "emitted"), n)
        whole = np.bincount(clusters, cost, n)
        every.append(float(part.sum() / whole.sum()))
        drawn.append((draws @ part) / (draws @ whole))
    return every, drawn


def call_cost(
    record: Record,
    draft_cost: float,
    verify_cost: Callable[[int], float] | None = None,
) -> float:
    """What a text took, in units of one plain target call: the cost model, by rounds.

    A round with n guesses takes n c + T(n + 1) / T(1); where the record has
    ``draft_calls``, each of them takes c, whatever it brought. ``emitted`` / this is
    the speedup in the model, over what was really drafted;
    :func:`specdec_lib.theory.speedup` says what to expect of it. ValueError with a
    ``verify_cost`` where guesses were trees, which are not counted by place.
    """
    if not 0 <= draft_cost < np.inf:
        raise ValueError(f"draft_cost must be finite and >= 0, got {draft_cost}")
    if verify_cost is None:
        calls = float(record["target_calls"])
    else:
        at_least = [record["target_calls"]]
        at_least += [record.get(f"drafted_{i + 1}") for i in range(record["k"])]
        if None in at_least:
            raise ValueError(
                "record must count guesses by place to know what its calls cost, "
                f"got a record of trees, draft {record['draft']!r}"
            )
        rounds = -np.diff([*at_least, 0])  # with exactly 0, 1 .. k guesses
        calls = math.fsum(
            count * verify_cost(n + 1)
            for n, count in enumerate(rounds.tolist())
            if count
        )
    drafted = record["draft_calls" if "draft_calls" in record else "drafted"]
    return float(drafted * draft_cost + calls)


def summarise(
    records: Sequence[Record],
    numerator: Amount,
    denominator: Amount,
    *,
    by: Sequence[str] = ("draft", "temperature", "k"),
    clusters: Sequence[str] = ("prompt", "seed"),
    level: float = 0.95,
) -> list[Record]:
    """A ratio and its interval for each group of records: a table for a figure.

    Each row has the columns ``by``, then ``estimate``, ``low``, ``high``. The first is
    None for a ratio of nothing; the bounds also where there is one cluster alone.
    ``clusters`` are the columns that name what is drawn whole.
    """
    rows = []
    for key, group in group_records(records, by).items():
        bounds: tuple[float | None, ...] = (
            ratio(group, numerator, denominator),
            None,
            None,
        )
        if bounds[0] is not None and max(_clusters(group, clusters)) > 0:
            interval = bootstrap_interval(
                group, numerator, denominator, by=clusters, level=level
            )
            bounds = interval or bounds
        columns = (*by, "estimate", "low", "high")
        rows.append(dict(zip(columns, (*key, *bounds), strict=True)))
    return rows


def group_records(
    records: Sequence[Record], by: Sequence[str]
) -> dict[tuple[Any, ...], list[Record]]:
    """Records by their values in the columns ``by``, in the order of these values."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in by), []).append(record)
    return dict(sorted(groups.items()))


def _amounts(records: Sequence[Record], amount: Amount) -> list[float]:
    if callable(amount):
        return [float(amount(record)) for record in records]
    if records and all(amount not in record for record in records):
        raise ValueError(
            f"records must have the column {amount!r}, they have {_columns(records)}"
        )
    return [float(record.get(amount) or 0) for record in records]


def _clusters(records: Sequence[Record], by: Sequence[str]) -> list[int]:
    ids: dict[tuple[Any, ...], int] = {}
    return [
        ids.setdefault(tuple(record[name] for name in by), len(ids))
        for record in records
    ]


@lru_cache(maxsize=32)
def _draws(n: int, resamples: int, seed: int) -> NDArray[np.float64]:
    """(resamples, n): how often each of n clusters comes when n are drawn."""
    check_count("resamples", resamples, least=1)
    rng, even = SeededRandom(seed), np.full(n, 1.0 / n)
    draws = np.zeros((resamples, n))
    for row in draws:
        for _ in range(n):
            row[rng.categorical(even)] += 1.0
    draws.setflags(write=False)
    return draws
