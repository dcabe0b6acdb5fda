"""What a sweep costs, part by part, and how long it will take with so many workers."""

from __future__ import annotations

import json
import math
import os
import pickle
import tempfile
from time import perf_counter
from typing import Any, NamedTuple

from ..experiments import Sweep
from ..models import check_count
from ..workers import Sent


class Costs(NamedTuple):
    """Of one sweep, on this machine.

    sweep_bytes, task_bytes, record_bytes
        what moves: the sweep with its models, to each process or node once; a task and
        its record, for each cell.
    cell_seconds
        of a cell in the mean.
    record_seconds
        that the program which hands out the cells takes for each of them besides: to
        unpack the record and to have it on the disk.
    cells
        in all.
    """

    sweep_bytes: int
    task_bytes: int
    record_bytes: int
    cell_seconds: float
    record_seconds: float
    cells: int


class Prediction(NamedTuple):
    """How long a sweep takes, how many times less than alone, and what limits it.

    seconds, speedup
        of the whole sweep; and those of one worker alone over these.
    limit
        "workers": more of them make it quicker. "driver": the one program that hands
        out the cells is busy all the time. "network": the line to that program is.
    saturation
        workers beyond which more of them bring nothing.
    """

    seconds: float
    speedup: float
    limit: str
    saturation: float


def measure(sweep: Sweep, cells: int = 12) -> Costs:
    """The costs of ``sweep``, by running ``cells`` of it, evenly spread.

    Raises ValueError for ``cells`` less than 1.
    """
    check_count("cells", cells, least=1)
    every = sweep.cells()
    cells = min(cells, len(every))
    some = [every[i * len(every) // cells] for i in range(cells)]
    sweep.run_cell(some[0])  # the first one is slower
    started = perf_counter()
    records = [sweep.run_cell(cell) for cell in some]
    cell_seconds = (perf_counter() - started) / cells
    packed = [pickle.dumps(record) for record in records]
    with tempfile.TemporaryFile() as file:
        started = perf_counter()
        for record in packed:
            file.write(json.dumps(pickle.loads(record)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        record_seconds = (perf_counter() - started) / cells
    return Costs(
        sweep_bytes=len(pickle.dumps(Sent(sweep))),
        task_bytes=len(pickle.dumps(some[0])),
        record_bytes=round(sum(map(len, packed)) / cells),
        cell_seconds=cell_seconds,
        record_seconds=record_seconds,
        cells=len(every),
    )


def predict(
    costs: Costs,
    workers: int,
    *,
    nodes: int = 1,
    start_seconds: float = 0.0,
    task_seconds: float = 0.001,
    bytes_per_second: float = 125e6,
) -> Prediction:
    """How long the sweep takes on ``workers`` that are shared out over ``nodes``.

    start_seconds
        until the workers are there.
    task_seconds
        that it takes to hand out a task, besides ``costs.record_seconds``; about a
        millisecond on Ray.
    bytes_per_second
        of the line to the program that hands them out; a gigabit by default.

    The model: the sweep goes to the nodes one after another; then workers, driver and
    line work side by side, and the busiest of the three says how long it takes, but for
    the last cell, which all of them wait for. Alone, the sweep takes its cells and
    their records one after another.

    >>> costs = Costs(2_700_000, 100, 600, 0.025, 0.0002, 192)
    >>> [round(predict(costs, n, nodes=n).speedup, 1) for n in (1, 4, 16, 64)]
    [1.0, 3.7, 7.4, 3.0]

    For so small a sweep 64 nodes wait for its models longer than they work. And for a
    large one?

    >>> large = costs._replace(cells=100 * costs.cells)
    >>> [round(predict(large, n, nodes=n).speedup, 1) for n in (1, 4, 16, 64)]
    [1.0, 4.0, 15.9, 19.8]
    >>> predict(large, 16).limit, predict(large, 64).limit
    ('workers', 'driver')
    """
    for name, value in (("workers", workers), ("nodes", nodes)):
        check_count(name, value, least=1)
    given: dict[str, Any] = {
        "start_seconds": start_seconds,
        "task_seconds": task_seconds,
    }
    for name, value in given.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and >= 0, got {value}")
    if not bytes_per_second > 0:
        raise ValueError(f"bytes_per_second must be > 0, got {bytes_per_second}")
    alone = costs.cells * (costs.cell_seconds + costs.record_seconds)
    moved = (costs.task_bytes + costs.record_bytes) / bytes_per_second
    each = {
        "workers": costs.cell_seconds / workers,
        "driver": costs.record_seconds + task_seconds,
        "network": moved,
    }
    limit = max(each, key=lambda name: each[name])
    send = nodes * costs.sweep_bytes / bytes_per_second
    seconds = start_seconds + send + costs.cells * each[limit]
    if workers > 1:
        seconds += costs.cell_seconds / 2  # the last ones do not end together
    slowest = max(each["driver"], each["network"])
    saturation = costs.cell_seconds / slowest if slowest else math.inf
    return Prediction(seconds, alone / seconds, limit, saturation)
