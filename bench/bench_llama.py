"""A real language model: its floor, its calls, and plain and speculative decoding.

    python bench/bench_llama.py [--quick] [--prompts N] [--repeats N] [--calls]
        [--temperatures T ...] [--processor Haswell] [--output FOLDER]

SmolLM2-135M-Instruct, by NumPy alone and with the compiled kernel where numba is
installed, beside transformers where torch is, and llama.cpp where xllamacpp is.
Everything that is compared is run in turn (peers in processes of their own, asked over
a pipe), on the same prompts, weights and number of threads; seconds on the clock,
medians. A speedup is that of the whole answer, the reading of the prompt included,
against plain decoding by the same model; it is refused where the two texts differ.
Above temperature 0 texts differ rightly: there it is that of the time for a token after
the prompt. Skipped where the model was not fetched.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
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
TEMPERATURES = (0.7, 1.0)
PEERS = {  # the packages it takes, and the ways in which it is asked
    "transformers": (
        ("torch", "transformers"),
        {"transformers": {}, "transformers, lookup": {"prompt_lookup_num_tokens": 8}},
    ),
    "llama.cpp": (("xllamacpp",), {"llama.cpp": False, "llama.cpp, lookup": True}),
}
AVX2 = {  # what NumPy and the compiled kernel are told, to do without AVX-512
    "OPENBLAS_CORETYPE": "Haswell",
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+popcnt,+sse4.2",
}
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
    text: str | None = None  # of a peer that says no tokens, only how many

    @property
    def speed(self) -> float:
        return len(self.tokens) / self.seconds

    @property
    def seconds_a_token(self) -> float:
        """After the first round, and so after the prompt."""
        return (self.seconds - self.first) / max(len(self.tokens) - 1, 1)


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


# Peers, each in a process of its own


@contextmanager
def peer(name: str) -> Iterator[Callable[..., Answer] | None]:
    """ask(prompt, stops, limit, way) -> its answer; None where it is not there."""
    if not all(map(importlib.util.find_spec, PEERS[name][0])):
        yield None
        return
    # Threads that wait in a loop would take the processor from whoever is next.
    quiet = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | quiet,
    )
    assert process.stdin
    assert process.stdout
    stdin, stdout = process.stdin, process.stdout

    def ask(prompt: Any, stops: Any, limit: int, way: Any) -> Answer:
        request = [list(map(int, prompt)), list(map(int, stops)), limit, way]
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        tokens, text, seconds = json.loads(stdout.readline())
        return Answer(tuple(tokens), float("nan"), seconds, text=text)

    try:
        ready = stdout.readline().strip() == "ready"
        yield ask if ready else None
    finally:
        stdin.close()
        process.wait()


Served = tuple[Sequence[int], str | None]


def serve(name: str) -> None:
    """Answer requests, one a line, each with tokens, text and seconds."""
    complete = {"transformers": transformers, "llama.cpp": llama_cpp}[name]()
    print("ready", flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        tokens, text = complete(*json.loads(line))
        seconds = time.perf_counter() - started
        print(json.dumps([list(tokens), text, seconds]), flush=True)


def transformers() -> Callable[..., Served]:
    import torch
    import transformers

    from specdec_lib.llama import fetch
    from specdec_lib.llama.linear import thread_count

    torch.set_num_threads(thread_count())
    path = fetch.find("smollm2")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()

    def complete(prompt: Any, stops: Any, limit: int, options: Any) -> Served:
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
        return out[0, len(prompt) :].tolist(), None

    return complete


def llama_cpp() -> Callable[..., Served]:
    """llama.cpp on the same file; its lookup is what it calls "ngram simple"."""
    import xllamacpp

    from specdec_lib.llama import fetch
    from specdec_lib.llama.linear import thread_count

    def server(lookup: bool) -> Any:
        params = xllamacpp.CommonParams()
        params.model.path = str(fetch.find("smollm2"))
        params.n_ctx, params.n_parallel, params.verbosity = 2048, 1, 0
        for each in (params.cpuparams, params.cpuparams_batch):
            each.n_threads = thread_count()
        if lookup:
            kinds = xllamacpp.common_speculative_type
            kind = kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE
            params.speculative.types = [kind]
        return xllamacpp.Server(params)

    servers = {way: server(way) for way in (False, True)}

    def complete(prompt: Any, stops: Any, limit: int, lookup: bool) -> Served:
        request = {"prompt": prompt, "n_predict": limit, "temperature": 0}
        said = servers[lookup].handle_completions(request | {"cache_prompt": False})
        # It stops at the same tokens, and counts them; which they are it does not say.
        return [0] * said["timings"]["predicted_n"], said["choices"][0]["text"]

    return complete


# All of it


def run(
    quick: bool = False,
    prompts: int | None = None,
    repeats: int | None = None,
    temperatures: Sequence[float] | None = None,
    calls: bool = False,
) -> list[Row]:
    """All figures, one record each: what, value, unit, target."""
    from specdec_lib import llama

    try:
        _, tokenizer = llama.load("smollm2")
    except (FileNotFoundError, ImportError) as error:
        return [row(f"skipped: {error}", float("nan"), "")]
    models = {}
    for name, compiled in (("NumPy", False), ("compiled", True)):
        try:
            models[name], _ = llama.load("smollm2", compiled=compiled)
        except ImportError:
            models.pop(name, None)
    repeats = repeats or (1 if quick else 3)
    rows = call_rows(models, 5 if quick else 15)
    if calls:
        return rows
    curves = {}
    for name, model in models.items():
        curve = curves[name] = measure_cost_curve(model, context=CONTEXT)
        what = f"{name}: T(5) / T(1), as the policy takes it"
        rows.append(row(what, curve(5), "×"))
    number = prompts or (2 if quick else len(load_prompts()))
    chosen = [
        prompt
        for kind in ("grounded", "open")
        for prompt in spread(load_prompts(kind), number)
    ]
    limit = 48 if quick else TOKENS
    with ExitStack() as stack:
        found = {name: stack.enter_context(peer(name)) for name in PEERS}
        asks = {
            way: partial(ask, way=options)
            for name, ask in found.items()
            for way, options in PEERS[name][1].items()
            if ask is not None
        }
        answers = {}
        for each in chosen:
            print(f"{each.kind}, {each.name}", file=sys.stderr, flush=True)
            answers[each] = in_turn(
                models, curves, tokenizer, each, limit, repeats, asks
            )
    for name, ask in found.items():
        if ask is None:
            rows.append(row(f"{name}: not installed", float("nan"), ""))
    rows += plain_rows([*models, *asks], answers)
    for name in models:
        rows += speed_rows(name, answers, list(asks), tokenizer)
    if temperatures is None:
        temperatures = () if quick else TEMPERATURES
    for temperature in temperatures:
        for name in models:
            rows += warm_rows(
                name,
                models[name],
                curves[name],
                tokenizer,
                chosen,
                temperature,
                repeats,
            )
    return rows


def call_rows(models: dict[str, Any], repeats: int) -> list[Row]:
    """The floor, and what calls for one and for several tokens take."""
    times = call_times(models, repeats)
    bandwidth = 65536 * 1024 * 4 / times["sgemv"][1]
    rows = [row("memory, as sgemv reads it", bandwidth / 1e9, "GB/s")]
    for name, model in models.items():
        of = times[name]
        floor = weight_bytes(model) / bandwidth
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
    return rows


def plain_rows(names: Sequence[str], answers: dict[Any, Any]) -> list[Row]:
    """Tokens per second, with the reading of the prompt; geometric means."""
    rows = []
    for name in names:
        for kind in ("grounded", "open"):
            speeds = [
                statistics.median(run.speed for run in done[name])
                for prompt, done in answers.items()
                if prompt.kind == kind
            ]
            rows.append(row(f"{name}: {kind}", geometric(speeds), "tokens/s"))
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
    asks: dict[str, Any],
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
        for name, ask in asks.items():
            done.setdefault(name, []).append(ask(ids, stops, limit))
    return done


def seconds(runs: Sequence[Answer]) -> float:
    return statistics.median(each.seconds for each in runs)


def after_prompt(runs: Sequence[Answer]) -> float:
    return statistics.median(each.seconds - each.first for each in runs)


def geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if len(values) else float("nan")


def same_text(theirs: Answer, ours: Answer, tokenizer: Any) -> bool:
    if theirs.text is None:
        return theirs.tokens == ours.tokens
    tokens = [t for t in ours.tokens if t not in tokenizer.stop_ids]
    return theirs.text == tokenizer.decode(tokens)


def speed_rows(
    name: str, answers: dict[Any, Any], peers: Sequence[str], tokenizer: Any
) -> list[Row]:
    """Prompt by prompt, and their means; loops and differing texts are left out."""
    rows, gains, later = [], {"grounded": [], "open": []}, {"grounded": [], "open": []}
    best = {"NumPy": ("1.5", "2.2", "0.97"), "compiled": ("2.2", "3.5", "1.1")}[name]
    ratios: dict[str, list[float]] = {peer: [] for peer in peers}
    grounded: dict[str, list[float]] = {peer: [] for peer in peers}
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
        for each in peers:
            theirs = statistics.median(run.speed for run in done[each])
            same = same_text(done[each][0], plain[0], tokenizer)
            note += f"; {each} {theirs:.1f}" + ("" if same else " (another text)")
            ratios[each].append(n / seconds(plain) / theirs)
            if prompt.kind == "grounded":
                grounded[each].append(n / seconds(guessed) / theirs)
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
    for each in peers:
        if "lookup" in each:
            what, values = f"grounded, guessed / {each}", grounded[each]
            least = "1.5" if name == "NumPy" or "llama" in each else "2.5"
        else:
            what, values = f"plain / {each} plain", ratios[each]
            least = "1" if "llama" in each else "1.8"
        target = f"at least {least}"
        rows.append(row(f"{name}: {what}", geometric(values), "×", target))
    return rows


def warm_rows(
    name: str,
    model: Any,
    curve: Any,
    tokenizer: Any,
    prompts: Sequence[Any],
    temperature: float,
    repeats: int,
) -> list[Row]:
    """Sampled: plain seconds a token / guessed, prompt by prompt, a seed a repeat."""
    rows, gains = [], {"grounded": [], "open": []}
    sampler = sd.Sampler(temperature)
    for prompt in prompts:
        print(f"{temperature}: {prompt.name}", file=sys.stderr, flush=True)
        ids, stops = tokenizer.chat(prompt.messages), tokenizer.stop_ids
        draft, k = copies_that_pay(curve)
        ways = {"plain": {}, "guessed": {"draft": draft, "k": k}}
        runs: dict[str, list[Answer]] = {way: [] for way in ways}
        for seed in range(repeats):
            for way, options in ways.items():
                options = options | {"sampler": sampler, "seed": seed}
                runs[way].append(answer(model, ids, stops, TOKENS, **options))
        # Texts differ in length, so it is the time for a token, over all of them.
        plain, guessed = (
            sum(each.seconds - each.first for each in runs[way])
            / max(sum(len(each.tokens) - 1 for each in runs[way]), 1)
            for way in ways
        )
        came = sum(len(each.tokens) for each in runs["guessed"])
        note = f"{came / sum(each.calls for each in runs['guessed']):.2f} a call"
        gain = plain / guessed if plain and guessed else float("nan")
        if gain == gain:
            gains[prompt.kind].append(gain)
        what = f"{name} at {temperature}: {prompt.kind}, {prompt.name}"
        rows.append(row(what, gain, f"× ({note})"))
    for kind, values in gains.items():
        what = f"{name} at {temperature}: {kind}"
        rows += [
            row(f"{what}, geometric mean", geometric(values), "×"),
            row(f"{what}, the worst", min(values, default=float("nan")), "×"),
        ]
    return rows


def write(rows: Sequence[Row], folder: Path) -> None:
    """llama.csv and llama.json."""
    from specdec_lib.bench import machine

    folder.mkdir(parents=True, exist_ok=True)
    clean = [
        r | {"value": None if r["value"] != r["value"] else r["value"]} for r in rows
    ]
    (folder / "llama.json").write_text(
        json.dumps({"machine": machine(), "rows": clean}, indent=1) + "\n"
    )
    with open(folder / "llama.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["what", "value", "unit", "target"])
        writer.writeheader()
        writer.writerows(clean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few prompts, once each")
    parser.add_argument("--prompts", type=int, help="so many of each kind")
    parser.add_argument("--repeats", type=int, help="runs of each, in turn")
    parser.add_argument("--calls", action="store_true", help="floor and T(n) only")
    parser.add_argument(
        "--temperatures",
        nargs="*",
        type=float,
        metavar="T",
        help="above 0, besides greedy (0.7 1; --quick: none)",
    )
    parser.add_argument(
        "--processor", choices=["Haswell"], help="as on one without AVX-512"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="llama.csv, .json"
    )
    parser.add_argument("--serve", choices=list(PEERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if options.processor and os.environ.get("OPENBLAS_CORETYPE") != options.processor:
        # Both look at it when they are loaded, so it takes a new process.
        again = [sys.executable, *sys.argv]
        sys.exit(subprocess.run(again, env=os.environ | AVX2).returncode)
    rows = run(
        options.quick,
        options.prompts,
        options.repeats,
        options.temperatures,
        options.calls,
    )
    for r in rows:
        print(f"{r['what']:<56}{r['value']:>8.2f} {r['unit']:<12}  {r['target']}")
    if options.output:
        write(rows, options.output)


if __name__ == "__main__":
    main()
