"""``specdec sweep``: decode in every combination of settings, and keep the counts."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from ..experiments import Sweep, progress_line
from ..records import Record, group_records, summarise
from . import processors, run
from .setups import RULES, pair_sweep, real_sweep

TRAINING = ("corpus", "order", "draft_order", "merges", "smoothing")


def add(
    commands: Any,
    positive: Callable[[str], int],
    count: Callable[[str], int],
    add_training: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add the command to the others, with the kinds of numbers that they share."""

    def workers(text: str) -> int:
        return processors() if text == "all" else positive(text)

    workers.__name__ = "whole number, or 'all'"  # as argparse names it in errors
    sweep = commands.add_parser(
        "sweep",
        help="decode in every combination of k, temperature, draft, seed and prompt",
        description="Decode in every combination of k, temperature, draft, seed and "
        "prompt, and keep a record of counts for each: on one process, on all cores, "
        "or on Ray, with the same records. Without --model or --corpus the models are "
        "trained on the text that ships with the library.",
    )
    sweep.set_defaults(command=main, about=sweep.format_help)
    sweep.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="records, one a line (JSON Lines); a file that was begun is gone on with",
    )
    sweep.add_argument(
        "--model",
        metavar="MODEL",
        help="made by specdec train; or a real model: smollm2, a GGUF file, or for "
        "transformers a folder or a Hugging Face name",
    )
    add_training(sweep)
    group = sweep.add_argument_group("what is combined")
    group.add_argument(
        "--k",
        type=count,
        nargs="+",
        default=[1, 2, 4, 8],
        metavar="K",
        help="guesses a round (1 2 4 8)",
    )
    group.add_argument(
        "--temperature",
        type=float,
        nargs="+",
        default=[1.0],
        metavar="T",
        help="0 is greedy (1)",
    )
    group.add_argument(
        "--draft",
        nargs="+",
        metavar="NAME",
        help="model (the pair's own, the default), order-1 .. order-8 (trained on the "
        "same text), lookup, suffix; for a real model suffix (the default), lookup, or "
        "the name of another model with the same tokens",
    )
    group.add_argument(
        "--seed", type=count, nargs="+", default=[0], metavar="S", help="(0)"
    )
    group = sweep.add_argument_group("prompts and texts")
    group.add_argument(
        "--prompts", type=positive, default=24, metavar="N", help="so many (24)"
    )
    group.add_argument(
        "--prompt-tokens", type=positive, metavar="N", help="of each (16)"
    )
    group.add_argument(
        "--text",
        metavar="PATH",
        help="a file or folder to cut prompts from (held-out text that ships; with "
        "--corpus or --model the target writes them itself)",
    )
    group.add_argument(
        "--kind",
        choices=("grounded", "open"),
        help="requests to a real model (both kinds)",
    )
    group.add_argument(
        "--max-tokens", type=positive, default=200, metavar="N", help="(200)"
    )
    group.add_argument(
        "--top-k", type=int, metavar="N", help="only the N likeliest tokens (all)"
    )
    group.add_argument(
        "--top-p", type=float, metavar="P", help="only the likeliest, up to P (all)"
    )
    group.add_argument("--rule", choices=[*RULES], default="tokens", help="(tokens)")
    group.add_argument(
        "--compiled", action="store_true", help="a real model by the compiled kernel"
    )
    group.add_argument(
        "--timed", action="store_true", help="record seconds too (on one process)"
    )
    group = sweep.add_argument_group("where it runs")
    group.add_argument(
        "--workers",
        type=workers,
        metavar="N",
        help="processes, or 'all' for one on each core (1; on Ray all)",
    )
    group.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="on Ray: 'local' for a cluster on this machine, or HOST:PORT",
    )
    group = sweep.add_argument_group("what is kept besides")
    group.add_argument(
        "--track",
        nargs="?",
        const="",
        metavar="URI",
        help="keep the run in MLflow: a file.db, the URI of a server, or by default "
        "what MLFLOW_TRACKING_URI names, else mlflow.db here",
    )
    group.add_argument(
        "--experiment", metavar="NAME", help="of MLflow, for --track (specdec)"
    )
    group.add_argument("--run-name", metavar="NAME", help="for --track (--output's)")
    group.add_argument("--json", action="store_true", help="for machines")


def main(options: argparse.Namespace) -> None:
    """Run the command; errors are those of :mod:`specdec_lib.cli`."""
    settings = _settings(options)
    where = _where(options)
    if options.track is None and (options.experiment or options.run_name):
        raise ValueError("--experiment and --run-name go with --track")
    make: partial[Sweep] = partial(
        real_sweep if _is_real(options.model) else pair_sweep, **settings
    )
    sweep = make()
    started = _start(options, settings | where)
    progress = _Progress()
    file = Path(options.output)
    is_new = not file.exists()
    clock = perf_counter()
    try:
        records = run(
            sweep,
            options.output,
            # Weights are read where they are needed; a pair is smaller than its text.
            make=make if _is_real(options.model) else None,
            progress=progress,
            on_loss=_say_loss,
            **where,
        )
    except BaseException:
        if started is not None:
            _try(started.failed)
        if is_new and file.exists() and not file.stat().st_size:
            file.unlink()  # as where Ray is missing, or does not answer
        if progress.made:
            print(
                f"\nspecdec: {progress.made} records more are in {options.output}; the "
                "same command goes on from there",
                file=sys.stderr,
            )
        raise
    seconds = perf_counter() - clock
    report = {
        "output": options.output,
        "records": len(records),
        "found": progress.found,
        "seconds": seconds,
        **where,
        "run": None if started is None else started.id,
        "table": _rows(records),
    }
    print(json.dumps(report) if options.json else _table(report), flush=True)
    if started is not None:
        kept = {"seconds": seconds, "records_found": progress.found}
        try:
            started.finish(records, metrics=kept)
        except OSError as error:
            raise OSError(
                f"the run is not tracked: {error}. All records are in {options.output}"
            ) from error


def _is_real(model: str | None) -> bool:
    if model is None:
        return False
    from ..llama.targets import kind_of

    return kind_of(model) is not None


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of a function of setups; ValueError for flags that do not fit."""
    output = Path(options.output)
    if not output.parent.is_dir():
        raise FileNotFoundError(f"output: there is no folder {output.parent}")
    if output.suffix == ".csv":
        raise ValueError("output must be JSON Lines, which can be gone on with: .jsonl")
    given = {name: getattr(options, name) for name in TRAINING}
    given = {name: value for name, value in given.items() if value is not None}
    settings: dict[str, Any] = {
        "prompts": options.prompts,
        "top_k": options.top_k,
        "top_p": options.top_p,
        "rule": options.rule,
        "ks": options.k,
        "temperatures": options.temperature,
        "seeds": options.seed,
        "max_new_tokens": options.max_tokens,
        "timed": options.timed,
    }
    if options.draft is not None:
        if len(set(options.draft)) < len(options.draft):
            raise ValueError(f"draft must be some names, none twice: {options.draft}")
        settings["drafts"] = options.draft
    if options.model and given:
        flag = next(iter(given)).replace("_", "-")
        raise ValueError(f"--{flag} trains a model; it does not go with --model")
    pair_only = {"prompt_tokens": options.prompt_tokens, "text": options.text}
    real_only = {"kind": options.kind, "compiled": options.compiled or None}
    real = _is_real(options.model)
    for name, value in (pair_only if real else real_only).items():
        if value is not None:
            flag = f"--{name.replace('_', '-')}"
            kind = "n-gram models" if real else "a real model: --model smollm2, say"
            raise ValueError(f"{flag} is for {kind}")
    more = real_only if real else pair_only
    settings |= {name: value for name, value in more.items() if value is not None}
    if options.model:
        settings["model"] = options.model
    elif given:
        settings["corpus"] = given.pop("corpus", None)
        settings["training"] = given
    return settings


def _where(options: argparse.Namespace) -> dict[str, Any]:
    if options.timed and (options.ray or (options.workers or 1) > 1):
        raise ValueError("--timed is for one process: times of several are not fair")
    if options.ray:
        address = None if options.ray == "local" else options.ray
        if address and not re.fullmatch(r".+:\d+|\w+://.+|auto", address):
            raise ValueError(f"--ray must be 'local' or HOST:PORT, got {address!r}")
        return {"where": "ray", "workers": options.workers, "address": address}
    if (options.workers or 1) > 1:
        return {"where": "processes", "workers": options.workers}
    return {"where": "here"}


def _start(options: argparse.Namespace, parameters: dict[str, Any]) -> Any:
    """The run that is tracked, begun before any work so that a bad store is named."""
    if options.track is None:
        return None
    from .. import tracking

    return tracking.start_run(
        name=options.run_name or Path(options.output).stem,
        parameters={
            name: value for name, value in parameters.items() if value is not None
        },
        uri=options.track or None,
        experiment=options.experiment or tracking.EXPERIMENT,
    )


class _Progress:
    """A line on a terminal; and how many records were found and made."""

    def __init__(self) -> None:
        self._show = progress_line(sys.stderr)
        self.found = self.made = 0
        self._begun = False

    def __call__(self, done: int, total: int) -> None:
        if not self._begun:
            self.found, self._begun = done, True
        self.made = done - self.found
        self._show(done, total)


def _try(act: Callable[[], None]) -> None:
    """What is said of a run that broke off must not hide why it did."""
    try:
        act()
    except OSError as error:
        print(f"specdec: {error}", file=sys.stderr)


def _say_loss(count: int) -> None:
    print(f"\nspecdec: a worker was lost; {count} cells are run again", file=sys.stderr)


def _rows(records: list[Record]) -> list[dict[str, Any]]:
    """For each draft, temperature and k: texts, and both ratios with their bounds."""
    ratios = {
        "acceptance_rate": ("accepted", "tested"),
        "tokens_per_call": ("emitted", "target_calls"),
    }
    by = ("draft", "temperature", "k")
    groups = group_records(records, by)
    rows = [
        {**dict(zip(by, key, strict=True)), "texts": len(group)}
        for key, group in groups.items()
    ]
    for name, columns in ratios.items():
        for row, found in zip(rows, summarise(records, *columns), strict=True):
            row[name] = [found["estimate"], found["low"], found["high"]]
    return rows


def _table(report: dict[str, Any]) -> str:
    head = (
        f"{'draft':<14}{'T':>6}{'k':>4}{'texts':>7}  {'acceptance rate':<22}"
        "tokens per call"
    )
    lines = [head]
    for row in report["table"]:
        lines.append(
            f"{row['draft']:<14}{row['temperature']:>6g}{row['k']:>4}{row['texts']:>7}"
            f"  {_interval(row['acceptance_rate'], 3):<22}"
            f"{_interval(row['tokens_per_call'], 2)}"
        )
    made = report["records"] - report["found"]
    lines += [
        "",
        "In brackets: 95 % intervals, by a bootstrap over texts.",
        f"{report['output']}: {report['records']} records"
        + (f", {report['found']} of them found there" if report["found"] else "")
        + (f"; {made} made in {report['seconds']:.1f} s" if made > 0 else ""),
    ]
    return "\n".join(lines)


def _interval(values: list[float | None], digits: int) -> str:
    estimate, low, high = values
    if estimate is None:
        return "-"
    text = f"{estimate:.{digits}f}"
    if low is None or high is None:
        return text
    return f"{text} [{low:.{digits}f}, {high:.{digits}f}]"
