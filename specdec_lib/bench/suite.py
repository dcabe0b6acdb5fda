"""What the gate measures, and the baseline that it is held to.

The workloads never depend on an option, since figures are compared over months. A
change here makes stored baselines void: raise ``VERSION`` with it.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..decoding import Generation, generate
from ..drafts import Draft, ModelDraft, PromptLookup
from ..experiments import cut_prompts
from ..files import AnyPath, parse_json, read_all, write_atomically
from ..metrics import Metrics
from ..models import check_count
from ..pair import Pair, book_pair
from ..text import load_corpus
from .machine import SAME, machine
from .noise import IGNORED, LEVEL, LIMIT, Judgement, judge
from .timing import Work, log_ratios, measure, planted

FORMAT, VERSION = "specdec bench baseline", 1
RUNS, BLOCKS = 6, 9
RECORDED_RUNS = 12
CALLS = 300  # tokens that the target reads, in calls for one or for five
# name -> the workload above, the one below, what the ratio of their seconds is times
RATIOS = {
    "order 2, k = 1 / plain": ("order 2, k = 1", "plain", 1.0),
    "order 2, k = 4 / plain": ("order 2, k = 4", "plain", 1.0),
    "lookup, k = 4 / plain": ("lookup, k = 4", "plain", 1.0),
    "the loop / calibration": ("the loop", "calibration", 1.0),
    "T(5) / T(1)": ("calls for 5", "calls for 1", 5.0),  # a fifth as many calls
}
Run = dict[str, dict[str, Any]]  # "log_ratios": name -> number, "counts": ..


def run_suite(
    *, blocks: int = BLOCKS, seed: int = 0, plant: float = 0.0, pair: Pair | None = None
) -> Run:
    """All workloads in this process: the median log-ratios, and the counts.

    blocks
        how often each workload is run.
    pair
        the models; None: the book's pair.
    plant
        make speculative decoding slower by this share, to see whether it is found.
    """
    workloads, counts = suite(pair or book_pair())
    if plant:
        for name in counts:
            workloads[name] = planted(workloads[name], plant)
    times = measure(workloads, blocks, seed=seed)
    return {
        "log_ratios": {
            name: float(np.median(log_ratios(times[above], times[below])))
            + math.log(factor)
            for name, (above, below, factor) in RATIOS.items()
        },
        "counts": counts,
    }


def suite(pair: Pair) -> tuple[dict[str, Work], dict[str, dict[str, int]]]:
    """The workloads, and the counts of those that decode with guesses."""
    documents = {
        each.name: pair.tokenizer.encode(each.text).tolist()
        for each in load_corpus().held_out.documents
    }
    prompts = cut_prompts(documents, count=3, length=16)
    drafts: dict[str, tuple[Draft, int]] = {
        "order 2, k = 1": (ModelDraft(pair.draft), 1),
        "order 2, k = 4": (ModelDraft(pair.draft), 4),
        "lookup, k = 4": (PromptLookup(), 4),
    }

    def decode(draft: Draft | None, k: int) -> list[Generation]:
        return [
            generate(
                pair.target, prompt, draft=draft, k=k, max_new_tokens=60, seed=seed
            )
            for seed, prompt in enumerate(prompts.values())
        ]

    context = next(iter(prompts.values()))
    state = pair.target.start()
    state.extend(context)

    def calls(n: int) -> None:
        for _ in range(CALLS // n):
            state.extend(context[:n])
            state.rewind(len(context))

    ready, guesses = ReadyModel(1.0), ReadyModel(0.9)
    loop = partial(
        generate, ready, [0], draft=ModelDraft(guesses), max_new_tokens=300, seed=0
    )
    decoders = {name: partial(decode, *each) for name, each in drafts.items()}
    counts = {}
    for name, work in decoders.items():
        rounds = [each for text in work() for each in text.rounds]
        found = asdict(Metrics.from_rounds(rounds))
        counts[name] = {key: n for key, n in found.items() if "seconds" not in key}
    workloads: dict[str, Work] = {
        "plain": partial(decode, None, 0),
        **decoders,
        "calls for 1": partial(calls, 1),
        "calls for 5": partial(calls, 5),
        "the loop": loop,
        "calibration": calibration,
    }
    return workloads, counts


class ReadyModel:
    """A model whose logits lie ready, so that what takes time is the loop."""

    vocab_size, bos_id, context_window, period = 1000, None, None, 64

    def __init__(self, scale: float) -> None:
        places = np.arange(2 * self.period) % self.period
        tokens = np.arange(self.vocab_size)
        self.logits = 3 * scale * np.sin(np.outer(places + 1, tokens + 1) ** 2.0)

    def start(self) -> ReadyState:
        return ReadyState(self.logits, self.period)


class ReadyState:
    def __init__(self, logits: NDArray[np.float64], period: int) -> None:
        self._logits, self._period, self.length = logits, period, 0

    def extend(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        start = self.length % self._period
        self.length += len(tokens)
        return self._logits[start : start + len(tokens)]

    def rewind(self, length: int) -> None:
        self.length = length


def calibration() -> None:
    """A fixed piece of arithmetic and of Python, of the loop's kind."""
    logits = np.sin(np.arange(5000.0)).reshape(5, 1000)
    seen: dict[tuple[int, int], int] = {}
    for i in range(300):
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        for j in range(40):
            seen[i, j] = seen.get((i, j - 1), 0) + 1


# Many runs, each in a fresh process


def fresh_runs(
    runs: int,
    *,
    blocks: int = BLOCKS,
    plant: float = 0.0,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Run]:
    """:func:`run_suite` in ``runs`` processes, one after the other."""
    check_count("runs", runs, least=2)
    check_count("blocks", blocks, least=1)
    if not 0 <= plant < math.inf:
        raise ValueError(f"plant must be finite and 0 or more, got {plant}")
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    code = "from specdec_lib.bench import suite; suite.main()"
    done = []
    for i in range(runs):
        progress(f"run {i + 1} of {runs}")
        options = json.dumps({"blocks": blocks, "seed": i, "plant": plant})
        result = subprocess.run(
            [sys.executable, "-c", code, options],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
        )
        if result.returncode:
            raise ChildProcessError(
                f"run {i + 1} of {runs} failed, with exit code {result.returncode}"
            )
        done.append(json.loads(result.stdout))
    return done


def main() -> None:
    """In such a process: options in, one run out, both as JSON."""
    json.dump(run_suite(**json.loads(sys.argv[1])), sys.stdout)


# The baseline, and the gate


def record(runs: Sequence[Run]) -> dict[str, Any]:
    """A baseline of some runs on this machine; ValueError where their counts differ."""
    if any(each["counts"] != runs[0]["counts"] for each in runs):
        raise ValueError("runs must have the same counts: something random is unseeded")
    return {
        "format": FORMAT,
        "version": VERSION,
        "machine": machine(),
        "counts": runs[0]["counts"],
        "log_ratios": _by_name(runs),
    }


def write_baseline(baseline: Mapping[str, Any], path: AnyPath) -> None:
    """Write ``baseline`` whole or not at all, as JSON with one number a line."""
    text = json.dumps(baseline, indent=1) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def read_baseline(path: AnyPath) -> dict[str, Any]:
    """What ``write_baseline`` wrote; ValueError naming the file for anything else."""
    try:
        baseline = parse_json(read_all(path))
        found = baseline["format"], baseline["version"]
        ratios, counts = baseline["log_ratios"], baseline["counts"]
        whole = set(ratios) == set(RATIOS) and min(map(len, ratios.values())) >= 2
        known = isinstance(counts, dict) and isinstance(baseline["machine"], dict)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no baseline of specdec bench: {error}") from error
    if found != (FORMAT, VERSION) or not (whole and known):
        raise ValueError(
            f"{path} must be a {FORMAT} of version {VERSION} with the ratios that are "
            f"measured now; record a new one (got {found[0]!r} of version {found[1]})"
        )
    return baseline  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Gate:
    """What the gate says.

    judgements
        ratio -> what may be said of it; empty where the baseline is of another machine.
    counts
        what differs from the baseline's counts, in words.
    other_machine
        what differs between the machines, in words; empty on the same one.
    """

    judgements: dict[str, Judgement]
    counts: tuple[str, ...]
    other_machine: tuple[str, ...]

    @property
    def slower(self) -> tuple[str, ...]:
        """The ratios that are slower."""
        return tuple(n for n, j in self.judgements.items() if j.verdict == "slower")

    @property
    def passed(self) -> bool:
        """False where something is slower or counts differ; else True, also where
        nothing can be told."""
        return not (self.slower or self.counts)

    @property
    def verdict(self) -> str:
        """One of "slower", "other counts", "cannot tell" and "fine"."""
        if self.counts:
            return "other counts"
        if self.slower:
            return "slower"
        fine = all(j.verdict == "fine" for j in self.judgements.values())
        return "fine" if self.judgements and fine else "cannot tell"


def gate(
    runs: Sequence[Run],
    baseline: Mapping[str, Any],
    *,
    level: float = LEVEL,
    ignored: float = IGNORED,
    limit: float = LIMIT,
) -> Gate:
    """Hold some runs to a baseline.

    runs
        two or more of :func:`run_suite`, each from a process of its own.
    baseline
        of :func:`record` or :func:`read_baseline`. Ratios, too, differ between
        machines, and so with another processor, Python or NumPy the times are not
        judged; counts are.
    level, ignored, limit
        as in :func:`judge`; the level is that of all ratios together.
    """
    here = record(runs)
    other = tuple(
        f"{name} {_short(name, before)}, here {_short(name, now)}"
        for name in SAME
        if _short(name, before := baseline["machine"].get(name))
        != _short(name, now := here["machine"][name])
    )
    differing = tuple(
        f"{name}: {here['counts'].get(name)}, was {baseline['counts'].get(name)}"
        for name in sorted({*here["counts"], *baseline["counts"]})
        if here["counts"].get(name) != baseline["counts"].get(name)
    )
    judgements = {}
    if not other:
        judgements = {
            name: judge(
                values,
                baseline["log_ratios"][name],
                level=level,
                tests=len(here["log_ratios"]),
                ignored=ignored,
                limit=limit,
            )
            for name, values in here["log_ratios"].items()
        }
    return Gate(judgements, differing, other)


def _by_name(runs: Sequence[Run]) -> dict[str, list[float]]:
    names = runs[0]["log_ratios"]
    return {name: [run["log_ratios"][name] for run in runs] for name in names}


def _short(name: str, value: Any) -> Any:
    """Two versions of Python or NumPy are the same up to their second number."""
    if name in ("python", "numpy") and isinstance(value, str):
        return ".".join(value.split(".")[:2])
    return value
