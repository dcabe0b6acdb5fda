"""A real language model: its floor, its calls, and plain and speculative decoding.

    python bench/bench_llama.py [--quick] [--prompts N] [--repeats N]

SmolLM2-135M-Instruct, by NumPy alone and with the compiled kernel where numba is
installed, beside transformers where torch is. Everything that is compared is run in
turn, in one process (transformers in one of its own, asked over a pipe), on the same
prompts and weights; seconds on the clock, medians. A speedup is that of the whole
answer, the reading of the prompt included, against plain decoding by the same model; it
is refused where the two texts differ. Skipped where the model was not fetched.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import specdec_lib as sd
from specdec_lib.comparison import measure_cost_curve
from specdec_lib.draft_length import copies_that_pay
from specdec_lib.experiments import _repeated as repeated
from specdec_lib.prompts import load_prompts

NS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
CONTEXT = 256
TOKENS = 160
LOOP = 0.25  # an answer that repeats itself in so large a part is a loop
GREEDY = sd.Sampler(temperature=0)
PEERS = {"transformers": {}, "transformers, lookup": {"prompt_lookup_num_tokens": 8}}
Row = dict[str, Any]


def row(what: str, value: float, unit: str, target: str = "") -> Row:
    return {"what": what, "value": value, "unit": unit, "target": target}


# The weights, and the memory they come from


def weight_bytes(model: Any) -> int:
    """Bytes that one token has to bring from memory: all matrices once."""

    def size(part: Any) -> int:
        if isinstance(part, np.ndarray):
            return part.nbytes
        if isinstance(part, (tuple, list)):
            return sum(map(size, part))
        if dataclasses.is_dataclass(part):
            return sum(size(getattr(part, f.name)) for f in dataclasses.fields(part))
        return 0

    weights = model.weights
    return size(weights.layers) + size(weights.norm) + size(weights.head)


def call_times(models: dict[str, Any], repeats: int) -> dict[str, dict[int, float]]:
    """Seconds of one call for n tokens after CONTEXT others; "sgemv": of 256 MB.

    All are taken in turn, so that what else the machine does meets all alike.
    """
    from specdec_lib.llama.linear import linear, one_blas_thread

    matrix = np.ones((65536, 1024), np.float32)
    vector = np.ones((1, 1024), np.float32)

    def sgemv() -> None:
        with one_blas_thread():  # ``linear`` has threads of its own
            linear(vector, matrix)

    tokens = [int(t) for t in np.random.default_rng(0).integers(1000, 9000, CONTEXT)]
    works: dict[tuple[str, int], Callable[[], Any]] = {("sgemv", 1): sgemv}
    for name, model in models.items():
        state = model.start()
        state.extend(tokens)

        def call(n: int, state: Any = state) -> None:
            state.extend(tokens[:n])
            state.rewind(CONTEXT)

        works |= {(name, n): lambda n=n, call=call: call(n) for n in NS}
    times: dict[tuple[str, int], list[float]] = {key: [] for key in works}
    for turn in range(repeats + 1):
        for key, work in works.items():
            started = time.perf_counter()
            work()
            if turn:
                times[key].append(time.perf_counter() - started)
    medians: dict[str, dict[int, float]] = {}
    for (name, n), seconds in times.items():
        medians.setdefault(name, {})[n] = statistics.median(seconds)
    return medians


# One answer


@dataclasses.dataclass
class Answer:
    """What was said, and the seconds to the first round's end and to the last's."""

    tokens: tuple[int, ...]
    first: float
    seconds: float
    calls: int = 0


def answer(model: Any, prompt: Any, stops: Any, limit: int, **options: Any) -> Answer:
    started = time.perf_counter()
    ends, rounds = [], []
    options = {"sampler": GREEDY, "seed": 0} | options
    for each in sd.stream(
        model, prompt, max_new_tokens=limit, stop_ids=stops, **options
    ):
        ends.append(time.perf_counter() - started)
        rounds.append(each)
    tokens = tuple(token for each in rounds for token in each.emitted)
    return Answer(tokens, ends[0], ends[-1], len(rounds))


# transformers, in a process of its own


@contextmanager
def peer() -> Iterator[Callable[..., Answer] | None]:
    """ask(prompt, stops, limit, options) -> its answer; None where it is not there."""
    if not all(map(importlib.util.find_spec, ("torch", "transformers"))):
        yield None
        return
    # Threads that wait in a loop would take the processor from whoever is next.
    quiet = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | quiet,
    )
    assert process.stdin
    assert process.stdout
    stdin, stdout = process.stdin, process.stdout

    def ask(prompt: Any, stops: Any, limit: int, options: dict[str, Any]) -> Answer:
        request = [list(map(int, prompt)), list(map(int, stops)), limit, options]
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        tokens, seconds = json.loads(stdout.readline())
        return Answer(tuple(tokens), float("nan"), seconds)

    try:
        ready = stdout.readline().strip() == "ready"
        yield ask if ready else None
    finally:
        stdin.close()
        process.wait()


def serve() -> None:
    """Answer requests with transformers, one a line."""
    import torch
    import transformers

    from specdec_lib.llama import fetch
    from specdec_lib.llama.linear import thread_count

    torch.set_num_threads(thread_count())
    path = fetch.find("smollm2")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    print("ready", flush=True)
    for line in sys.stdin:
        prompt, stops, limit, options = json.loads(line)
        started = time.perf_counter()
        with torch.no_grad():
            out = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
                max_new_tokens=limit,
                do_sample=False,
                eos_token_id=stops,
                pad_token_id=stops[0],
                **options,
            )
        seconds = time.perf_counter() - started
        print(json.dumps([out[0, len(prompt) :].tolist(), seconds]), flush=True)


# All of it


def run(
    quick: bool = False, prompts: int | None = None, repeats: int | None = None
) -> list[Row]:
    """All figures, one record each: what, value, unit, target."""
    from specdec_lib import llama

    try:
        llama.load("smollm2")
    except (FileNotFoundError, ImportError) as error:
        return [row(f"skipped: {error}", float("nan"), "")]
    models, tokenizer = {}, None
    for name, compiled in (("NumPy", False), ("compiled", True)):
        try:
            models[name], tokenizer = llama.load("smollm2", compiled=compiled)
        except ImportError:
            models.pop(name, None)
    assert tokenizer is not None
    repeats = repeats or (1 if quick else 3)
    times = call_times(models, 5 if quick else 15)
    bandwidth = 65536 * 1024 * 4 / times["sgemv"][1]
    rows = [row("memory, as sgemv reads it", bandwidth / 1e9, "GB/s")]
    curves = {}
    for name, model in models.items():
        of = times[name]
        floor = weight_bytes(model) / bandwidth
        curve = curves[name] = measure_cost_curve(model, context=CONTEXT)
        best = {"NumPy": ("at most 1.6", "1.5"), "compiled": ("", "1.3")}[name]
        rows += [
            row(f"{name}: weights / memory, the floor", floor * 1e3, "ms a token"),
            row(f"{name}: one token", of[1] * 1e3, "ms"),
            row(f"{name}: one token / floor", of[1] / floor, "×", best[0]),
        ]
        rows += [
            row(
                f"{name}: T({n}) / T(1)",
                of[n] / of[1],
                "×",
                f"at most {best[1]}" if n == 5 else "",
            )
            for n in NS[1:]
        ]
        rows += [
            row(f"{name}: T({n}) / T(1), as the policy takes it", curve(n), "×")
            for n in (2, 5)
        ]
    number = prompts or (2 if quick else len(load_prompts()))
    chosen = [spread(load_prompts(kind), number) for kind in ("grounded", "open")]
    limit = 48 if quick else TOKENS
    with peer() as ask:
        answers = {
            each: in_turn(models, curves, tokenizer, each, limit, repeats, ask)
            for each in [*chosen[0], *chosen[1]]
        }
    for name in models:
        rows += speed_rows(name, answers, ask is not None)
    if ask is None:
        rows.append(row("transformers: not installed", float("nan"), ""))
    if not (quick or prompts):
        for name in models:
            rows += warm_rows(name, models[name], curves[name], tokenizer, chosen)
    return rows


def spread(prompts: Sequence[Any], number: int) -> list[Any]:
    """At most ``number`` of them, from all over the list."""
    return list(prompts[:: max(1, len(prompts) // number)])[:number]


def in_turn(
    models: Any,
    curves: Any,
    tokenizer: Any,
    prompt: Any,
    limit: int,
    repeats: int,
    ask: Any,
) -> dict[str, list[Answer]]:
    """The same prompt by all, ``repeats`` times in turn."""
    ids, stops = tokenizer.chat(prompt.messages), tokenizer.stop_ids
    done: dict[str, list[Answer]] = {}
    for _ in range(repeats):
        for name, model in models.items():
            draft, k = copies_that_pay(curves[name])
            plain = answer(model, ids, stops, limit)
            guessed = answer(model, ids, stops, limit, draft=draft, k=k)
            done.setdefault(name, []).append(plain)
            done.setdefault(f"{name}, guessed", []).append(guessed)
        for name, options in PEERS.items() if ask else ():
            done.setdefault(name, []).append(ask(ids, stops, limit, options))
    return done


def seconds(runs: Sequence[Answer]) -> float:
    return statistics.median(each.seconds for each in runs)


def after_prompt(runs: Sequence[Answer]) -> float:
    return statistics.median(each.seconds - each.first for each in runs)


def geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if len(values) else float("nan")


def speed_rows(name: str, answers: dict[Any, Any], peers: bool) -> list[Row]:
    """Prompt by prompt, and their means; loops and differing texts are left out."""
    rows, gains, later = [], {"grounded": [], "open": []}, {"grounded": [], "open": []}
    best = {"NumPy": ("1.5", "2.2", "0.97"), "compiled": ("2.2", "3.5", "1.1")}[name]
    ratios: dict[str, list[float]] = {peer: [] for peer in PEERS}
    lookup: dict[str, list[float]] = {"grounded": [], "open": []}
    for prompt, done in answers.items():
        plain, guessed = done[name], done[f"{name}, guessed"]
        n, calls = len(plain[0].tokens), guessed[0].calls
        gain = seconds(plain) / seconds(guessed)
        note = f"{n / seconds(plain):.1f} to {n / seconds(guessed):.1f} tokens/s"
        note += f", {n / calls:.2f} a call"
        if any(each.tokens != plain[0].tokens for each in guessed):
            note, gain = f"the texts differ; {note}", float("nan")
        elif repeated(plain[0].tokens) > LOOP * n:
            note = f"a loop; {note}"
        else:
            gains[prompt.kind].append(gain)
            if n > 1:
                later[prompt.kind].append(after_prompt(plain) / after_prompt(guessed))
        if peers:
            same = [done[each][0].tokens == plain[0].tokens for each in PEERS]
            speeds = [len(done[e][0].tokens) / seconds(done[e]) for e in PEERS]
            note += "; transformers " + ", ".join(f"{each:.1f}" for each in speeds)
            note += "" if all(same) else ", another text"
            ratios["transformers"].append(n / seconds(plain) / speeds[0])
            lookup[prompt.kind].append(n / seconds(guessed) / speeds[1])
        rows.append(row(f"{name}: {prompt.kind}, {prompt.name}", gain, f"× ({note})"))
    for kind, target in zip(gains, (f"at least {best[0]}", ""), strict=True):
        rows += [
            row(f"{name}: {kind}, geometric mean", geometric(gains[kind]), "×", target),
            row(f"{name}: {kind}, after the prompt", geometric(later[kind]), "×"),
        ]
    four = sorted(gains["grounded"])[-4:]
    every = gains["grounded"] + gains["open"]
    rows += [
        row(f"{name}: the best four", min(four, default=float("nan")), "× at least",
            f"at least {best[1]}"),
        row(f"{name}: open, the worst", min(gains["open"], default=float("nan")), "×",
            f"at least {best[2]}"),
        row(f"{name}: the worst of all", min(every, default=float("nan")), "×",
            "at least 0.97"),
    ]  # fmt: skip
    if peers:
        rows += [
            row(f"{name}: plain / transformers plain",
                geometric(ratios["transformers"]), "×", "at least 1.8"),
            row(f"{name}: grounded, guessed / transformers with lookup",
                geometric(lookup["grounded"]), "×",
                f"at least {'1.5' if name == 'NumPy' else '2.5'}"),
        ]  # fmt: skip
    return rows


def warm_rows(
    name: str, model: Any, curve: Any, tokenizer: Any, chosen: Any, each_kind: int = 3
) -> list[Row]:
    """Sampled at temperatures above 0: seconds a token, over some prompts and seeds."""
    rows = []
    for temperature in (0.7, 1.0):
        for prompts in chosen:
            spent, came = np.zeros(2), np.zeros(2)
            calls = 0
            for seed, prompt in enumerate(prompts[:each_kind]):
                ids = tokenizer.chat(prompt.messages)
                draft, k = copies_that_pay(curve)
                for i, options in enumerate(({}, {"draft": draft, "k": k})):
                    done = answer(
                        model,
                        ids,
                        tokenizer.stop_ids,
                        TOKENS,
                        sampler=sd.Sampler(temperature),
                        seed=seed,
                        **options,
                    )
                    # Texts differ in length, so what reading the prompt took is out.
                    spent[i] += done.seconds - done.first
                    came[i] += max(len(done.tokens) - 1, 0)
                    calls += i * done.calls
            gain = (spent[0] / came[0]) / (spent[1] / came[1])
            kind = prompts[0].kind
            note = f"{came[1] / max(calls, 1):.2f} tokens a call"
            rows.append(
                row(f"{name}: {kind} at temperature {temperature}", gain, f"× ({note})")
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few prompts, once each")
    parser.add_argument("--prompts", type=int, help="so many of each kind")
    parser.add_argument("--repeats", type=int, help="runs of each, in turn")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    for r in run(options.quick, options.prompts, options.repeats):
        print(f"{r['what']:<56}{r['value']:>8.2f} {r['unit']:<12}  {r['target']}")


if __name__ == "__main__":
    main()
