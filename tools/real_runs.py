"""Measure the runs that chapter 14 reads: plain and speculative, on the real model.

    python tools/real_runs.py                  record all, in at most ten minutes or so
    python tools/real_runs.py --minutes 4      in less, with fewer repeats
    python tools/real_runs.py --quick OUTPUT   a few short runs, to see that it works

SmolLM2-135M-Instruct on the prompts of ``specdec_lib.prompts``, by NumPy and, where
numba is installed, with the compiled kernel as a second series. Whatever is compared is
run in turn on the same prompt. The first pass is always made in full, the later ones
until the time is up; a figure is the median of what there is. Do nothing else on the
machine meanwhile: seconds are as good as the machine is quiet.

What is written: texts and counts, which every machine reproduces as long as the two
best logits are not too close (the smallest gap of each text is written too), and
seconds, which hold for the machine that is named beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from build_status import processor

import specdec_lib as sd
from specdec_lib import llama
from specdec_lib.comparison import SIZES
from specdec_lib.draft_length import copies_that_pay
from specdec_lib.experiments import _repeated as repeated
from specdec_lib.prompts import Prompt, load_prompts
from specdec_lib.theory import CostCurve, cost_curve

OUTPUT = Path(__file__).parents[1] / "notebooks" / "data" / "real_runs.json"
TOKENS = 64  # most tokens of an answer
CONTEXT = 192  # tokens before a call whose time is taken: prompts have 40 to 400
GREEDY = sd.Sampler(temperature=0)
K = 4  # of the fixed draft length that is run on every prompt
KS = (1, 2, 4, 6, 10)  # of the sweep
SWEPT = (
    *("question-tarn", "rename-class", "summary-storm", "list-steps"),
    *("explain-bread", "advice-interview", "story-key", "code-account"),
)
TEMPERATURES = (0.7, 1.0)
SEEDS = (0, 1)
Run = dict[str, Any]


def settings_of(
    prompt: Prompt, curve: CostCurve, *, sweep: bool
) -> Iterator[tuple[str, int, Any]]:
    """What is run on a prompt: name, k, and the options of ``sd.stream``."""
    yield "plain", 0, {}
    yield "lookup", K, {"draft": sd.PromptLookup(), "k": K}
    draft, length = copies_that_pay(curve)
    yield "paying", 0, {"draft": draft, "k": length}
    if sweep and prompt.name in SWEPT:
        for k in KS:
            if k != K:
                yield "lookup", k, {"draft": sd.PromptLookup(), "k": k}
        yield "suffix", K, {"draft": sd.SuffixDraft(), "k": K}


def run_once(model: Any, prompt: Any, stops: Any, limit: int, options: Any) -> Run:
    """One answer: its rounds, and when the first and the last of them were done."""
    started = time.perf_counter()
    ends, rounds = [], []
    options = {"sampler": GREEDY, "seed": 0} | options
    for each in sd.stream(
        model, prompt, max_new_tokens=limit, stop_ids=stops, **options
    ):
        ends.append(time.perf_counter() - started)
        rounds.append(each)
    return {
        "tokens": [int(token) for each in rounds for token in each.emitted],
        "sizes": [len(each.drafted) + 1 for each in rounds],
        "tested": sum(each.tested for each in rounds),
        "accepted": sum(each.accepted for each in rounds),
        "first": ends[0],
        "seconds": ends[-1],
        "draft": sum(each.draft_seconds for each in rounds),
    }


def call_seconds(model: Any, repeats: int) -> dict[int, list[float]]:
    """T(n) in seconds, for SIZES in turn, after CONTEXT tokens."""
    tokens = [int(t) for t in np.random.default_rng(0).integers(1000, 9000, CONTEXT)]
    state = model.start()
    state.extend_last(tokens, 1)
    times: dict[int, list[float]] = {n: [] for n in SIZES}
    for turn in range(repeats + 1):
        for n in SIZES:
            started = time.perf_counter()
            state.extend(tokens[:n])
            state.rewind(CONTEXT)
            if turn:
                times[n].append(time.perf_counter() - started)
    return times


def smallest_gap(model: Any, prompt: Sequence[int], answer: Sequence[int]) -> float:
    """Between the two best logits, at any token of a greedy answer."""
    rows = model.start().extend_last([*prompt, *answer[:-1]], len(answer))
    best = np.sort(rows, axis=1)[:, -2:]
    return float((best[:, 1] - best[:, 0]).min())


def machine() -> dict[str, Any]:
    """What the seconds hold for."""
    from threadpoolctl import threadpool_info

    blas = [each for each in threadpool_info() if each["user_api"] == "blas"]
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {
            package: metadata.version(package)
            for package in ("numpy", "numba")
            if _installed(package)
        },
        "blas": sorted(
            {
                f"{b['internal_api']} {b['version']} ({b.get('architecture')})"
                for b in blas
            }
        ),
    }


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


class Recording:
    """All that is written, growing."""

    def __init__(self, models: dict[str, Any], tokenizer: Any, limit: int) -> None:
        self.models, self.tokenizer, self.limit = models, tokenizer, limit
        self.curves: dict[str, CostCurve] = {}
        self.calls: dict[str, dict[int, list[float]]] = {}
        self.prompts: dict[str, Any] = {}
        self.runs: dict[tuple[str, str, str, int], Run] = {}
        self.sampled: list[Run] = []

    def measure_calls(self, repeats: int) -> None:
        for series, model in self.models.items():
            times = self.calls[series] = call_seconds(model, repeats)
            rounded = [round(1e3 * statistics.median(times[n]), 3) for n in SIZES]
            self.curves[series] = cost_curve(SIZES, rounded)

    def one_prompt(self, prompt: Prompt) -> None:
        """Each setting once, in turn; texts and counts must be those of before."""
        ids = self.tokenizer.chat(prompt.messages).tolist()
        for series, model in self.models.items():
            settings = settings_of(prompt, self.curves[series], sweep=series == "NumPy")
            for name, k, options in settings:
                done = run_once(
                    model, ids, self.tokenizer.stop_ids, self.limit, options
                )
                self._note(series, prompt, ids, name, k, done)

    def _note(
        self, series: str, prompt: Prompt, ids: Any, name: str, k: int, done: Run
    ) -> None:
        text = done.pop("tokens")
        if prompt.name not in self.prompts:
            self.prompts[prompt.name] = {
                "kind": prompt.kind,
                "asked": len(ids),
                "tokens": text,
                "gap": round(smallest_gap(self.models[series], ids, text), 4),
                "repeated": repeated(text),
            }
        key = series, prompt.name, name, k
        kept = self.runs.get(key)
        if kept is None:
            same = text == self.prompts[prompt.name]["tokens"]
            kept = self.runs[key] = {
                "series": series,
                "prompt": prompt.name,
                "draft": name,
                "k": k,
                "same": same,  # the text of plain NumPy
                "calls": len(done["sizes"]),
                "drafted": sum(done["sizes"]) - len(done["sizes"]),
                "tested": done["tested"],
                "accepted": done["accepted"],
            }
            if name == "paying":
                kept["sizes"] = done["sizes"]
            kept |= {"first": [], "seconds": [], "draft_seconds": []}
        elif kept["calls"] != len(done["sizes"]):
            raise RuntimeError(f"{key}: {kept['calls']} calls, now {done['sizes']}")
        for field, value in (
            ("first", done["first"]),
            ("seconds", done["seconds"]),
            ("draft_seconds", done["draft"]),
        ):
            kept[field].append(round(value, 4))

    def sample(self, prompt: Prompt) -> None:
        """Above temperature 0, by the exact rule, with plain NumPy.

        Plain and with guesses in turn. Their texts differ, so each has its length.
        """
        ids = self.tokenizer.chat(prompt.messages).tolist()
        for temperature, seed in product(TEMPERATURES, SEEDS):
            luck = {"sampler": sd.Sampler(temperature=temperature), "seed": seed}
            plain, done = (
                run_once(
                    self.models["NumPy"],
                    ids,
                    self.tokenizer.stop_ids,
                    self.limit,
                    luck | options,
                )
                for options in ({}, {"draft": sd.PromptLookup(), "k": K})
            )
            self.sampled.append(
                {
                    "prompt": prompt.name,
                    "temperature": temperature,
                    "seed": seed,
                    "emitted": len(done["tokens"]),
                    "sizes": done["sizes"],
                    "tested": done["tested"],
                    "accepted": done["accepted"],
                    "seconds": round(done["seconds"], 4),
                    "plain": {
                        "emitted": len(plain["tokens"]),
                        "first": round(plain["first"], 4),
                        "seconds": round(plain["seconds"], 4),
                    },
                }
            )

    def as_dict(self) -> dict[str, Any]:
        return {
            "about": "Written by tools/real_runs.py; read by chapter 14. Times are in "
            "seconds, curves in milliseconds; one list entry for each repeat.",
            "machine": machine(),
            "model": "SmolLM2-135M-Instruct",
            "limit": self.limit,
            "context": CONTEXT,
            "k": K,
            "ks": list(KS),
            "swept": [name for name in SWEPT if name in self.prompts],
            "curves": {
                series: {
                    str(n): [
                        round(1e3 * float(np.quantile(times[n], share)), 3)
                        for share in (0.25, 0.5, 0.75)
                    ]
                    for n in SIZES
                }
                for series, times in self.calls.items()
            },
            "prompts": self.prompts,
            "runs": list(self.runs.values()),
            "sampled": self.sampled,
        }


def record(prompts: Sequence[Prompt], limit: int, minutes: float) -> Recording:
    """The first pass in full, then repeats as long as there is time."""
    until = time.monotonic() + 60 * minutes
    models, tokenizer = {}, None
    for series, compiled in (("NumPy", False), ("compiled", True)):
        try:
            models[series], tokenizer = llama.load("smollm2", compiled=compiled)
        except ImportError:
            if not compiled:
                raise
    recording = Recording(models, tokenizer, limit)
    recording.measure_calls(5)  # which also compiles, and warms up
    recording.measure_calls(15)
    took: dict[str, float] = {}
    for prompt in prompts:
        started = time.monotonic()
        recording.one_prompt(prompt)
        took[prompt.name] = time.monotonic() - started
        print(f"{prompt.name:18}{took[prompt.name]:6.1f} s", flush=True)
    for prompt in prompts:
        if prompt.name in SWEPT:
            recording.sample(prompt)
    passes = 1
    again = sorted(prompts, key=lambda prompt: prompt.name not in SWEPT)
    while True:
        for prompt in again:
            if time.monotonic() + took[prompt.name] > until:
                print(f"{passes} whole passes", flush=True)
                return recording
            recording.one_prompt(prompt)
        passes += 1


def as_json(recorded: dict[str, Any]) -> str:
    """One run a line, so that a difference can be read."""
    lines = []
    for key, value in recorded.items():
        if key in ("runs", "sampled"):
            items = ",\n".join("  " + json.dumps(each) for each in value)
            lines.append(f" {json.dumps(key)}: [\n{items}\n ]")
        elif key == "prompts":
            items = ",\n".join(
                f"  {json.dumps(name)}: {json.dumps(each)}"
                for name, each in value.items()
            )
            lines.append(f" {json.dumps(key)}: {{\n{items}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT)
    parser.add_argument("--minutes", type=float, default=10, help="for all of it")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of an answer")
    parser.add_argument("--quick", action="store_true", help="two prompts, 16 tokens")
    options = parser.parse_args()
    prompts = load_prompts()
    if options.quick:
        if options.output == OUTPUT:
            parser.error("--quick needs an output of its own")
        prompts = tuple(p for p in prompts if p.name in SWEPT[::4])
        options.minutes, options.tokens = 0, 16
    recording = record(prompts, options.tokens, options.minutes)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(as_json(recording.as_dict()), encoding="utf-8")
    print(f"{options.output}: {options.output.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
