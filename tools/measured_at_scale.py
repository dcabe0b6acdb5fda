"""Measure what chapter 17 reads: pairs of times for the gate, and sweeps on workers.

    python tools/measured_at_scale.py                      all, in some ten minutes
    python tools/measured_at_scale.py --only pairs         this part; the rest is kept
    python tools/measured_at_scale.py --only workers
    python tools/measured_at_scale.py --quick OUTPUT       a few, to see that it works

Pairs: the same text decoded as it is and with a slowness of 0, 1, 2, 3, 5 and 8 %
planted, all in turn in one process, in seconds of the processor. Workers: one sweep on
this process, on N processes and with N workers of a local Ray cluster, in turn, by the
clock. Do nothing else on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from specdec_lib import scale
from specdec_lib.bench import machine, measure, planted, share_found
from specdec_lib.bench.timing import in_random_order
from specdec_lib.decoding import generate
from specdec_lib.drafts import ModelDraft
from specdec_lib.experiments import Sweep
from specdec_lib.files import write_atomically
from specdec_lib.randomness import SeededRandom
from specdec_lib.scale.setups import pair_sweep

OUTPUT = Path(__file__).parents[1] / "notebooks" / "data" / "measured_at_scale.json"
EFFECTS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08)
PAIRS, PER_PAIR = 480, 5
WORKERS, REPEATS = (1, 2, 3, 4), 3
NEEDED = 24  # pairs; with so many chapter 17 wants most of the planted 5 % found


def measure_pairs(pairs: int) -> dict[str, Any]:
    """Microseconds of each workload in each block; "reference" is the plain one."""
    sweep = pair_sweep(prompts=1, ks=(4,))
    (prompt,), draft = sweep.prompts.values(), ModelDraft(sweep.drafts["model"])

    def work() -> object:
        return generate(
            sweep.target, prompt, draft=draft, k=4, max_new_tokens=40, seed=0
        )

    works: dict[str, Any] = {f"{100 * x:g} %": planted(work, x) for x in EFFECTS}
    times = measure({"reference": work, **works}, pairs * PER_PAIR)
    return {
        "per_pair": PER_PAIR,
        "microseconds": {
            name: [round(1e6 * t) for t in seconds] for name, seconds in times.items()
        },
    }


def measure_workers(numbers: tuple[int, ...], repeats: int, **settings: Any) -> Any:
    """What the sweep costs, and seconds: of a start of Ray, and of each run in turn."""
    make = partial(pair_sweep, **settings)
    sweep = make()
    here = sweep.run()
    runs = []
    started = time.perf_counter()
    with scale.local_ray(max(numbers)):
        start = round(time.perf_counter() - started, 3)
        scale.run(sweep, where="ray")  # its workers are there now
        for workers in numbers:
            where = {
                "here": {},
                "processes": {"where": "processes", "workers": workers},
                "ray": {"where": "ray", "workers": workers},
            }
            entry: dict[str, Any] = {"workers": workers}
            rng = SeededRandom(workers)
            for _ in range(repeats):
                for name in in_random_order([*where], rng):
                    started = time.perf_counter()
                    same = scale.run(sweep, **where[name]) == here
                    seconds = time.perf_counter() - started
                    assert same, f"other records: {name}, {workers} workers"
                    entry.setdefault(name, []).append(round(seconds, 3))
            runs.append(entry)
    return {"costs": _costs(sweep, repeats), "ray_start": start, "runs": runs}


def _costs(sweep: Sweep, repeats: int) -> dict[str, float]:
    """By medians of some measurements."""
    found = [scale.measure(sweep, 24)._asdict() for _ in range(repeats)]
    return {
        name: round(statistics.median(each[name] for each in found), 6)
        for name in found[0]
    }


def as_json(recorded: dict[str, Any]) -> str:
    """One list of numbers a line."""
    lines = []
    for name, part in recorded.items():
        if not isinstance(part, dict) or name == "machine":
            lines.append(f' "{name}": {json.dumps(part)}')
            continue
        inner = []
        for key, value in part.items():
            if isinstance(value, dict) and key == "microseconds":
                rows = ",\n".join(
                    f'   "{n}": {json.dumps(t, separators=(",", ":"))}'
                    for n, t in value.items()
                )
                inner.append(f'  "{key}": {{\n{rows}\n  }}')
            elif isinstance(value, list):
                rows = ",\n".join(f"   {json.dumps(each)}" for each in value)
                inner.append(f'  "{key}": [\n{rows}\n  ]')
            else:
                inner.append(f'  "{key}": {json.dumps(value)}')
        lines.append(f' "{name}": {{\n' + ",\n".join(inner) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def summary(recorded: dict[str, Any]) -> str:
    """Whether the machine was quiet, and whether the gate can do its work on this."""
    pairs, runs = recorded["pairs"], recorded["workers"]["runs"]
    us = {
        name: np.reshape(row, (-1, pairs["per_pair"]))
        for name, row in pairs["microseconds"].items()
    }
    logs = {n: np.median(np.log(us[n] / us["reference"]), axis=1) for n in us}
    lines = [f"spread of a pair: {100 * logs['0 %'].std(ddof=1):.1f} %"]
    for name in ("1 %", "5 %"):
        if len(logs[name]) >= NEEDED:
            share = share_found(logs[name], NEEDED)
            lines.append(f"planted {name}: {NEEDED} pairs call {share:.2f} slower")
    alone = [seconds for run in runs for seconds in run["here"]]
    lines.append(f"one process: {min(alone):.1f} to {max(alone):.1f} s")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT)
    parser.add_argument("--only", choices=("pairs", "workers"))
    parser.add_argument("--quick", action="store_true", help="see that it works")
    options = parser.parse_args()
    if options.quick and options.output == OUTPUT:
        parser.error("--quick needs an output of its own")
    recorded: dict[str, Any] = {
        "about": "Written by tools/measured_at_scale.py; read by chapter 17. Times in "
        "seconds where nothing else is said.",
        "machine": machine(),
    }
    if options.only:
        before = json.loads(options.output.read_text(encoding="utf-8"))
        if before["machine"] != recorded["machine"]:
            parser.error("what is kept was measured on another machine: record all")
        recorded |= {k: before[k] for k in ("pairs", "workers") if k in before}
    if options.only != "workers":
        recorded["pairs"] = measure_pairs(4 if options.quick else PAIRS)
    if options.only != "pairs":
        numbers, repeats = ((2,), 1) if options.quick else (WORKERS, REPEATS)
        recorded["workers"] = measure_workers(
            numbers,
            repeats,
            prompts=4 if options.quick else 24,
            ks=(1, 2, 4, 8),
            max_new_tokens=200,
        )
    recorded = {k: recorded[k] for k in ("about", "machine", "pairs", "workers")}
    text = as_json(recorded)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.output, lambda file: file.write(text.encode()))
    print(f"{options.output}: {len(text) / 1e3:.0f} kB")
    print(summary(recorded))


if __name__ == "__main__":
    main()
