"""A sweep on one process, on several, and on Ray: speed against workers, and its plan.

    python bench/bench_sweep.py [--quick]

All places take turns in one run, and each gives the same records or this fails. Speed
is cells a second over the later three quarters of a place's records, so that the start
of its workers is not in it (that stands beside it); medians. Below it, what a sweep
moves, and what the model of :func:`specdec_lib.scale.predict` makes of this for more
workers. Ray is left out where it is not installed. A machine that does other work at
the same time slows one worker and several alike; ratios bear that, seconds do not.
"""

from __future__ import annotations

import argparse
import importlib.util
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import specdec_lib as sd
from specdec_lib import experiments as ex
from specdec_lib import scale, text
from specdec_lib.scale import processors

Row = dict[str, Any]
PLAN = (4, 16, 64, 256)


def row(what: str, value: float, unit: str, target: str = "") -> Row:
    return {"what": what, "value": value, "unit": unit, "target": target}


def chapter_sweep(prompts: int, tokens: int) -> ex.Sweep:
    """The sweep of the chapter on speed against k, on so many prompts."""
    pair = sd.book_pair()
    documents = text.load_corpus().held_out.documents
    encoded = {d.name: pair.tokenizer.encode(d.text).tolist() for d in documents}
    starts = ex.cut_prompts(encoded, count=prompts, length=16)
    drafts = {"order 2": pair.draft}
    return ex.Sweep(pair.target, drafts, starts, (1, 2, 4, 8), max_new_tokens=tokens)


@contextmanager
def ray_here(cpus: int):  # type: ignore[no-untyped-def]
    """Ray on this machine, started once for all runs; how long that took, or None."""
    if importlib.util.find_spec("ray") is None:
        yield None
        return
    started = perf_counter()
    with scale.local_ray(cpus):
        yield perf_counter() - started


def timed(sweep: ex.Sweep, place: dict[str, Any], records: list[Any] | None) -> Any:
    """The records, seconds to the first of them, and cells a second later on."""
    times: list[float] = []
    started = perf_counter()
    found = scale.run(
        sweep, progress=lambda done, total: times.append(perf_counter()), **place
    )
    if records is not None and found != records:
        raise RuntimeError(f"{place} gave other records")
    first = len(times) // 4
    rate = (len(times) - 1 - first) / (times[-1] - times[first])
    return found, times[1] - started, rate


def run(quick: bool = False) -> list[Row]:
    """All figures, one record each."""
    sweep = chapter_sweep(*((8, 100) if quick else (24, 200)))
    repeats = 1 if quick else 3
    most = max(2, min(processors(), 8))
    counts = [n for n in (1, 2, 4, 8) if n <= most]
    places: dict[str, dict[str, Any]] = {"one process, this one": {"where": "here"}}
    for n in counts:
        places[f"processes, {n}"] = {"where": "processes", "workers": n}
    rates: dict[str, list[float]] = {}
    starts: dict[str, list[float]] = {}
    records = None
    with ray_here(most) as ray_seconds:
        if ray_seconds is not None:
            for n in counts:
                places[f"Ray, {n} at a time"] = {"where": "ray", "workers": n}
        for _ in range(repeats):
            for name, place in places.items():
                records, start, rate = timed(sweep, place, records)
                starts.setdefault(name, []).append(start)
                rates.setdefault(name, []).append(rate)
    base = [rates["one process, this one"]]
    rows = [row(f"a sweep of {len(sweep.cells())} cells", len(sweep.cells()), "cells")]
    if ray_seconds is not None:
        rows.append(row("Ray itself, until it is there", ray_seconds, "s"))
    for name in places:
        rows.append(row(name, median(rates[name]), "cells/s"))
        times = [a / b for a, b in zip(rates[name], base[0], strict=True)]
        rows.append(row("    times one process", median(times), "times"))
        rows.append(row("    until the first record", median(starts[name]), "s"))
    return rows + plan_rows(sweep, 4 if quick else 24)


def plan_rows(sweep: ex.Sweep, cells: int) -> list[Row]:
    """What moves, and what the model says of more workers, on ten nodes' worth each."""
    costs = scale.measure(sweep, cells)
    rows = [
        row("the sweep, once to each node", costs.sweep_bytes / 1e6, "MB"),
        row("a task", costs.task_bytes, "bytes"),
        row("a record", costs.record_bytes, "bytes"),
        row("a cell's work", 1e3 * costs.cell_seconds, "ms"),
        row("a record, unpacked and on the disk", 1e3 * costs.record_seconds, "ms"),
    ]
    # A hundred times as many cells: a sweep that is worth a cluster.
    large = costs._replace(cells=100 * costs.cells)
    for n in PLAN:
        guess = scale.predict(large, n, nodes=max(1, n // 16))
        name = f"plan: {large.cells} cells on {n} workers ({guess.limit})"
        rows.append(row(name, guess.speedup, "times"))
    rows.append(row("plan: workers that are of use", guess.saturation, "workers"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer, shorter texts")
    for r in run(parser.parse_args().quick):
        value = "-" if np.isnan(r["value"]) else f"{r['value']:,.2f}"
        print(f"{r['what']:<56}{value:>12} {r['unit']:<8}{r['target']}")


if __name__ == "__main__":
    main()
