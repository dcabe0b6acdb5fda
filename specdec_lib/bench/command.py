"""``specdec bench``: the table of speeds, and the gate."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from ..comparison import SIZES, measure_cost_curve
from ..draft_length import copies_that_pay
from ..drafts import Draft, ModelDraft, PromptLookup, SuffixDraft
from ..experiments import cut_prompts
from ..files import write_atomically
from ..pair import Pair, book_pair
from ..prompts import KINDS, load_prompts
from ..records import write_records
from ..sampling import Sampler
from ..text import load_corpus
from . import suite
from .machine import describe, machine
from .noise import IGNORED, LIMIT
from .speeds import Row, Setting, measure_speeds

Progress = Callable[[str], None]
DRAFTS = ("model", "lookup", "suffix", "paying")
PROMPT_TOKENS = 16


def add(commands: Any, positive: Any, count: Any, progress: Any) -> None:
    """The command and its flags.

    ``positive`` and ``count`` read whole numbers from 1 and from 0; ``progress()`` is
    a context, and what it gives is told in a word or two what is being done.
    """
    parser = commands.add_parser(
        "bench",
        help="measure plain and speculative decoding; a gate that finds slowness",
        description="Time plain and speculative decoding over drafts and lengths on a "
        "fixed set of prompts, in turn in one process. Without --model with the book's "
        "models on held-out text. With --gate, hold ratios measured now to others.",
    )

    def bench(options: argparse.Namespace) -> int:
        with progress() as tell:
            text, code = run(options, tell)
        print(text)
        return code

    parser.set_defaults(command=bench, about=parser.format_help)
    # No defaults for what does not go with --gate: a flag that was given must be seen.
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help="made by specdec train; or a real model, as for specdec generate",
    )
    parser.add_argument(
        "--compiled",
        action="store_true",
        default=None,
        help="a real model by the compiled kernel",
    )
    parser.add_argument(
        "--draft",
        nargs="+",
        choices=DRAFTS,
        metavar="NAME",
        help=f"of {', '.join(DRAFTS)} (all that the model has)",
    )
    parser.add_argument(
        "--k", nargs="+", type=positive, metavar="K", help="guesses a round (1 2 4 8)"
    )
    parser.add_argument(
        "--prompts", type=positive, metavar="N", help="so many (8; a real model 4)"
    )
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="(64)")
    parser.add_argument(
        "--temperature", type=float, metavar="T", help="0 is greedy (1; a real model 0)"
    )
    parser.add_argument("--seed", type=count, metavar="S", help="(0)")
    parser.add_argument(
        "--repeats", type=positive, metavar="N", help="of each text (5; a real model 3)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        help="write bench.csv there, and bench.png and bench.svg with matplotlib",
    )
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument(
        "--gate",
        metavar="FILE",
        help="compare ratios with those of this baseline instead; exit code 1 where "
        "something is slower",
    )
    parser.add_argument(
        "--record", action="store_true", help="measure that baseline, and write it"
    )
    parser.add_argument(
        "--runs",
        type=positive,
        metavar="N",
        help=f"of the gate ({suite.RUNS}; to record {suite.RECORDED_RUNS})",
    )
    parser.add_argument(
        "--blocks", type=positive, metavar="N", help=f"of a run ({suite.BLOCKS})"
    )
    parser.add_argument(
        "--plant",
        type=float,
        metavar="SHARE",
        help="make speculative decoding slower by this share, to try the gate: 0.05",
    )


TABLE_FLAGS = (
    *("model", "compiled", "draft", "k", "prompts", "max_tokens", "temperature"),
    *("seed", "repeats", "output"),
)


def run(options: argparse.Namespace, progress: Progress) -> tuple[str, int]:
    """What to print, and the exit code."""
    if options.gate is None:
        for name in ("record", "runs", "blocks", "plant"):
            if getattr(options, name):
                raise ValueError(f"--{name} goes with --gate")
        return _table(options, progress), 0
    for name in TABLE_FLAGS:
        if getattr(options, name) is not None:
            flag = "--" + name.replace("_", "-")
            raise ValueError(f"{flag} does not go with --gate: what it measures is set")
    return _record(options, progress) if options.record else _gate(options, progress)


# The table


def _table(options: argparse.Namespace, progress: Progress) -> str:
    if options.output is not None:
        Path(options.output).mkdir(parents=True, exist_ok=True)
    rows, found = speeds(options, progress)
    lines = [describe(found), "", *table(rows)]
    if options.output is not None:
        files = write_report(rows, found, Path(options.output))
        lines += ["", "Written: " + ", ".join(files)]
    if options.json:
        return json.dumps({"machine": found, "rows": rows})
    return "\n".join(lines)


def speeds(
    options: argparse.Namespace, progress: Progress
) -> tuple[list[Row], dict[str, Any]]:
    """The rows, and the machine."""
    given = vars(options)
    real = _is_real(options.model)

    def chosen(name: str, default: Any, default_real: Any) -> Any:
        value = given[name]
        return (default_real if real else default) if value is None else value

    sampler = Sampler(chosen("temperature", 1.0, 0.0))
    ks = sorted(set(chosen("k", [1, 2, 4, 8], [2, 4, 8])))
    number = chosen("prompts", 8, 4)
    progress("reading the model")
    make = _real if real else _pair
    target, drafts, prompts, stops, adaptive = make(options, sampler, number)
    wanted = options.draft or [name for name in DRAFTS if name in {*drafts, *adaptive}]
    settings = []
    for name in wanted:
        if name in adaptive:
            progress("measuring what a call costs")
            draft, k = adaptive[name](target)
            settings.append(Setting("paying copies", draft, k))
        elif name in drafts:
            settings += [Setting(*drafts[name], k) for k in ks]
        else:
            model = "a real model" if real else "an n-gram pair"
            raise ValueError(f"draft: {model} has no draft {name!r}")
    rows = measure_speeds(
        target,
        settings,
        prompts,
        max_new_tokens=chosen("max_tokens", 64, 64),
        sampler=sampler,
        stop_ids=stops,
        seed=chosen("seed", 0, 0),
        repeats=chosen("repeats", 5, 3),
        progress=progress,
    )
    return rows, machine()


Ingredients = tuple[
    Any, dict[str, tuple[str, Draft]], dict[str, list[int]], list[int], dict[str, Any]
]


def _pair(options: argparse.Namespace, sampler: Sampler, number: int) -> Ingredients:
    """Held-out text of the book's corpus, and no stops: every text is as long."""
    if options.compiled:
        raise ValueError(
            "--compiled is for a real model: --model smollm2 or a GGUF file"
        )
    pair = Pair.load(options.model) if options.model else book_pair()
    documents = {
        each.name: pair.tokenizer.encode(each.text).tolist()
        for each in load_corpus().held_out.documents
    }
    prompts = cut_prompts(documents, count=number, length=PROMPT_TOKENS)
    model = ModelDraft(pair.draft, sampler)
    drafts = {"model": (f"order {pair.draft.order}", model), **_copies()}
    return pair.target, drafts, {n: list(p) for n, p in prompts.items()}, [], {}


def _real(options: argparse.Namespace, sampler: Sampler, number: int) -> Ingredients:
    """The prompts that ship, as many of one kind as of the other."""
    from ..llama.targets import load_target

    target = load_target(options.model, compiled=bool(options.compiled))
    prompts: dict[str, list[int]] = {}
    for i, kind in enumerate(KINDS):
        every, n = load_prompts(kind), (number + 1 - i) // 2
        for each in every[:: max(1, len(every) // max(n, 1))][:n]:
            prompts[each.name] = target.encode(each.messages, True)

    def paying(target: Any) -> Any:
        return copies_that_pay(measure_cost_curve(target, SIZES, repeats=5))

    return target.model, _copies(), prompts, list(target.stop_ids), {"paying": paying}


def _is_real(model: str | None) -> bool:
    from ..llama.targets import kind_of

    return model is not None and kind_of(model) is not None


def _copies() -> dict[str, tuple[str, Draft]]:
    return {"lookup": ("lookup", PromptLookup()), "suffix": ("suffix", SuffixDraft())}


HEAD = (
    f"{'draft':<13}{'k':>5}{'accept':>7}{'tok/call':>9}{'tok/s':>8}"
    f"{'draft':>7}{'target':>8}{'total':>8}  {'speed':<19}{'model':>5}"
    f"{'T(k+1)':>7}{'guess':>6}"
)
NOTE = """\
draft, target, total: milliseconds, all prompts together; the rest is the loop's. speed:
times plain decoding, by medians (repeats: {repeats}), 95 % over prompts ({prompts});
model: what the cost model makes of T(k+1) and of a guess, both in units of T(1), and of
the rounds that came."""
SPREAD = "Repeats lie {:.1%} apart (middle half, the worst row)."


def table(rows: list[Row]) -> list[str]:
    """Lines for a terminal."""
    lines = [HEAD]
    for row in rows:
        k = "auto" if row["k"] is None else row["k"] or ""
        line = f"{row['draft'] or 'plain':<13}{k:>5}"
        line += _number(row["acceptance_rate"], 7, 3)
        line += _number(row["tokens_per_call"], 9, 2)
        line += _number(row["tokens_per_second"], 8, 1)
        line += _number(1e3 * row["draft_seconds"], 7, 1)
        line += _number(1e3 * row["target_seconds"], 8, 1)
        line += _number(1e3 * row["seconds"], 8, 1)
        if row["draft"]:
            line += f"  {_speed(row):<19}" + _number(row["predicted_speedup"], 5, 2)
            line += _number(row["verify_cost"], 7, 2) + _number(row["draft_cost"], 6, 2)
        lines.append(line)
    lines += ["", NOTE.format(**rows[0])]
    if rows[0]["repeats"] > 1:
        lines.append(SPREAD.format(max(row["spread"] for row in rows)))
    if any(r["draft"] and r["speedup"] is None for r in rows):
        lines += [
            "OTHER TEXT: at temperature 0 both must agree; no speed is given for "
            "another answer."
        ]
    return lines


def _number(value: float | None, width: int, digits: int) -> str:
    return f"{'-' if value is None else format(value, f'.{digits}f'):>{width}}"


def _speed(row: Row) -> str:
    if row["speedup"] is None:
        return "OTHER TEXT"
    if row["low"] is None:
        return f"{row['speedup']:.2f}"
    return f"{row['speedup']:.2f} ({row['low']:.2f} - {row['high']:.2f})"


def write_report(rows: list[Row], found: dict[str, Any], folder: Path) -> list[str]:
    """bench.csv, and the figure where matplotlib is there; the paths."""
    files = [folder / "bench.csv"]
    write_records([row | found for row in rows], files[0])
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        return list(map(str, files))
    from .. import plots
    from .figure import speeds_against_k

    with mpl.rc_context({**plots.STYLE}):
        figure = Figure(figsize=(7.0, 3.6))  # of no window, and forgotten after this
        speeds_against_k(rows, ax=figure.subplots())
        for name, options in (
            ("bench.png", {"dpi": 200}),
            ("bench.svg", {"metadata": {"Date": None}}),
        ):
            picture = io.BytesIO()
            kind = name.rpartition(".")[2]
            figure.savefig(picture, format=kind, **options)
            files.append(folder / name)
            write_atomically(files[-1], partial(_put, picture.getvalue()))
    return list(map(str, files))


def _put(content: bytes, file: BinaryIO) -> None:
    file.write(content)


# The gate


def _record(options: argparse.Namespace, progress: Progress) -> tuple[str, int]:
    if options.plant:
        raise ValueError("--plant does not go with --record")
    folder = Path(options.gate).parent
    if not folder.is_dir():
        raise FileNotFoundError(f"gate: there is no folder {folder}")
    runs = suite.fresh_runs(
        options.runs or suite.RECORDED_RUNS,
        blocks=options.blocks or suite.BLOCKS,
        progress=progress,
    )
    baseline = suite.record(runs)
    suite.write_baseline(baseline, options.gate)
    text = f"{options.gate}: {len(runs)} runs on {describe(baseline['machine'])}"
    return (json.dumps(baseline) if options.json else text), 0


def _gate(options: argparse.Namespace, progress: Progress) -> tuple[str, int]:
    baseline = suite.read_baseline(options.gate)  # said before the work, not after it
    runs = suite.fresh_runs(
        options.runs or suite.RUNS,
        blocks=options.blocks or suite.BLOCKS,
        plant=options.plant or 0.0,
        progress=progress,
    )
    result = suite.gate(runs, baseline)
    text = json.dumps(as_json(result)) if options.json else report(result)
    return text, 0 if result.passed else 1


def as_json(result: suite.Gate) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(result), "verdict": result.verdict, "passed": result.passed}


def report(result: suite.Gate) -> str:
    """The gate's answer, for a reader."""
    lines = []
    if result.judgements:
        lines.append(f"{'ratio':<26}{'change':>8}  {'interval':<19}{'spread':>7}  ")
    for name, each in result.judgements.items():
        interval = f"{each.low:+.1%} .. {each.high:+.1%}"
        line = f"{name:<26}{each.change:>+8.1%}  {interval:<19}{each.spread:>7.1%}"
        line += f"  {each.verdict}"
        if each.verdict == "cannot tell":
            line += (
                ": record the baseline with more runs"
                if each.needed is None
                else f": about {each.needed} runs would, in place of {each.pairs}"
            )
        lines.append(line)
    if result.other_machine:
        lines.append(
            "The times are not judged, as the baseline is of another machine: "
            + "; ".join(result.other_machine)
            + ".\nRecord one here: specdec bench --gate FILE --record"
        )
    if result.counts:
        lines.append("Counts differ, which have no noise:")
        lines += [f"  {each}" for each in result.counts]
    else:
        lines.append("Counts of guesses, tokens and calls: equal, as they must be.")
    lines.append(
        {
            "fine": f"Fine: nothing is {LIMIT:.0%} slower.",
            "cannot tell": "Cannot tell. That is no failure.",
            "slower": f"SLOWER, surely by more than {IGNORED:.0%}: "
            + ", ".join(result.slower),
            "other counts": "OTHER COUNTS: other text, or other guesses.",
        }[result.verdict]
    )
    return "\n".join(lines)
