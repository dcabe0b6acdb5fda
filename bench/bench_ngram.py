"""Training and querying n-gram models, beside NLTK, dicts of dicts and KenLM.

    python bench/bench_ngram.py [--quick]

Text: the words of Python's standard library, as this Python has them. Times are CPU
seconds of this process, medians of several runs after one that is not counted. A target
is shown beside what was measured; nothing fails here.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sysconfig
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from specdec_lib.ngram import NGramModel
from specdec_lib.randomness import SeededRandom

ORDER = 5
Row = dict[str, Any]


# ---- text


def library_words(most: int) -> list[str]:
    """The first ``most`` words and signs of the standard library's sources."""
    folder = Path(sysconfig.get_path("stdlib"))
    words: list[str] = []
    for path in sorted(folder.rglob("*.py")):
        if "site-packages" in path.parts or "test" in path.parts:
            continue
        source = path.read_text(encoding="utf-8", errors="ignore")
        words += re.findall(r"\w+|[^\w\s]", source)
        if len(words) >= most:
            break
    return words[:most]


def as_tokens(words: list[str], vocab_size: int) -> np.ndarray:
    """Ids by frequency from 1; 0 for all words beyond ``vocab_size``."""
    common = Counter(words).most_common(vocab_size - 1)
    ids = {word: i for i, (word, _) in enumerate(common, 1)}
    return np.array([ids.get(word, 0) for word in words])


# ---- clocks


def seconds(work: Callable[[], Any], runs: int) -> float:
    """Median CPU seconds of ``work``, after one run that is not counted."""
    work()
    times = []
    for _ in range(runs):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return statistics.median(times)


def microseconds(query: Callable[[int], Any], count: int, runs: int = 7) -> float:
    """Median over ``runs`` of the mean time of query(0) .. query(count - 1)."""

    def all_queries() -> None:
        for i in range(count):
            query(i)

    return seconds(all_queries, runs) / count * 1e6


def row(
    what: str, value: float, unit: str, target: str = "", tokens: int | None = None
) -> Row:
    """One figure. ``tokens``: size of the text, for those that grow with it."""
    return {
        "what": what,
        "value": value,
        "unit": unit,
        "target": target,
        "tokens": tokens,
    }


# ---- training


def fit(tokens: np.ndarray, vocab_size: int) -> NGramModel:
    return NGramModel.fit([tokens], order=ORDER, vocab_size=vocab_size)


def nltk_fit(tokens: np.ndarray) -> None:
    from nltk.lm import KneserNeyInterpolated
    from nltk.util import everygrams

    words = [str(t) for t in tokens]
    peer = KneserNeyInterpolated(ORDER)
    peer.fit([everygrams(words, max_len=ORDER)], words)


def dict_fit(tokens: np.ndarray) -> tuple[Any, Any]:
    """Counts and continuation counts of all orders, as usually written."""
    text = tokens.tolist()
    counts: Any = defaultdict(lambda: defaultdict(int))
    continuations: Any = defaultdict(lambda: defaultdict(int))
    for i, token in enumerate(text):
        for m in range(min(i, ORDER - 1) + 1):
            context = tuple(text[i - m : i])
            after = counts[context]
            if m and token not in after:
                continuations[context[1:]][token] += 1
            after[token] += 1
    return counts, continuations


def training_rows(words: list[str], sizes: list[int], quick: bool) -> Iterator[Row]:
    speed = {}
    for size in sizes:
        tokens = as_tokens(words[:size], 10_000)
        speed[size] = size / seconds(lambda t=tokens: fit(t, 10_000), 5)
        model = fit(tokens, 10_000)
        name = f"{size:.0e} tokens"
        yield row(
            f"training, order {ORDER}, {name}", speed[size], "tokens/s", tokens=size
        )
        yield row(
            f"memory, order {ORDER}, {name}",
            model.nbytes / size,
            "bytes/token",
            "<= 40",
            tokens=size,
        )
        half = tokens[: size // 2]
        base = fit(half, 10_000)
        took = seconds(lambda b=base, h=half: b.extend([h]), 3)
        yield row(
            f"extending by half, {name}", len(half) / took, "tokens/s", tokens=size
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.npz"
            took = seconds(lambda m=model, p=path: m.save(p), 3)
            yield row(f"saving, {name}", took * 1e3, "ms", tokens=size)
            took = seconds(lambda p=path: NGramModel.load(p), 3)
            yield row(f"loading, {name}", took * 1e3, "ms", tokens=size)
    small, large = sizes[0], sizes[-1]
    tokens = as_tokens(words[:small], 10_000)
    nltk_speed = small / seconds(lambda: nltk_fit(tokens), 1)
    yield row(f"NLTK, {small:.0e} tokens", nltk_speed, "tokens/s")
    for size in sizes:
        ratio = speed[size] / nltk_speed
        yield row(f"  ours at {size:.0e} / NLTK", ratio, "times", ">= 100")
    for size in (small,) if quick else (small, large):
        tokens = as_tokens(words[:size], 10_000)
        begin = time.process_time()
        dict_fit(tokens)
        dict_speed = size / (time.process_time() - begin)
        yield row(f"dict of dicts, {size:.0e} tokens", dict_speed, "tokens/s")
        yield row(
            f"  ours / dict of dicts, {size:.0e} tokens",
            speed[size] / dict_speed,
            "times",
            ">= 10",
        )


# ---- queries


def write_arpa(model: NGramModel, path: Path) -> None:
    """The model's n-grams in KenLM's format. Their numbers are made up: for timing."""
    grams = np.arange(model.vocab_size)[:, None]
    levels = [grams]
    for table in model._tables[1:]:
        start = table.start.astype(np.int64)
        if model.bos_id is None:  # without those of an unnamed beginning, the last
            start = start[: len(grams) + 1]
        context = np.repeat(grams, np.diff(start), axis=0)
        grams = np.column_stack((context, table.token[: start[-1]]))
        levels.append(grams)
    with open(path, "w", encoding="ascii") as file:
        file.write("\\data\\\n")
        for m, grams in enumerate(levels, 1):
            file.write(f"ngram {m}={len(grams) + (3 if m == 1 else 0)}\n")
        for m, grams in enumerate(levels, 1):
            file.write(f"\n\\{m}-grams:\n")
            if m == 1:
                file.write("-5\t<unk>\t0\n0\t<s>\t0\n-2\t</s>\t0\n")
            tail = "\t-0.3\n" if m < len(levels) else "\n"
            file.writelines(
                f"-1\t{' '.join(map(str, gram))}{tail}" for gram in grams.tolist()
            )
        file.write("\n\\end\\\n")


def kenlm_row(words: list[str], vocab_size: int) -> Row | None:
    """Microseconds of one full distribution with KenLM's Python module."""
    try:
        import kenlm
    except ImportError:
        return None
    tokens = as_tokens(words[:100_000], vocab_size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.arpa"
        write_arpa(fit(tokens, vocab_size), path)
        config = kenlm.Config()
        config.show_progress = False
        peer = kenlm.Model(str(path), config)
    vocabulary = [str(t) for t in range(vocab_size)]
    text = [str(t) for t in tokens[: ORDER + 20]]
    out = kenlm.State()

    def distribution(i: int) -> list[float]:
        state, after = kenlm.State(), kenlm.State()
        peer.NullContextWrite(state)
        for word in text[i : i + ORDER - 1]:
            peer.BaseScore(state, word, after)
            state, after = after, state
        return [peer.BaseScore(state, word, out) for word in vocabulary]

    took = microseconds(distribution, 10, 3)
    return row(f"KenLM's module, full distribution, V = {vocab_size}", took, "µs")


def query_rows(words: list[str], vocab_size: int) -> Iterator[Row]:
    tokens = as_tokens(words, vocab_size)
    half = len(tokens) // 2
    model = fit(tokens[:half], vocab_size)
    name = f"V = {vocab_size}"
    count = 500
    places = np.random.default_rng(0).integers(half + ORDER, len(tokens), count)
    contexts = [tokens[p - ORDER + 1 : p] for p in places]
    states = [model.start() for _ in contexts]
    for state, context in zip(states, contexts, strict=True):
        state.advance(context)
    rng = SeededRandom(0)

    full = microseconds(lambda i: states[i].probabilities(), count)
    target = "<= KenLM's / 20" if vocab_size >= 10_000 else ""
    yield row(f"full distribution, {name}", full, "µs", target)
    peer = kenlm_row(words, vocab_size)
    if peer is None:
        yield row("KenLM's module is not installed", float("nan"), "")
    else:
        yield peer
        ratio = peer["value"] / full
        target = ">= 20" if vocab_size >= 10_000 else ""
        yield row("  KenLM's / ours", ratio, "times", target)

    def from_context(i: int) -> Any:
        return model.probabilities(contexts[i])

    yield row(
        f"  with a look-up of its context, {name}",
        microseconds(from_context, count),
        "µs",
    )

    def sampled(i: int) -> int:
        return rng.categorical(states[i].probabilities())

    target = "<= 100" if vocab_size >= 10_000 else ""
    yield row(
        f"sampled guess and its distribution, {name}",
        microseconds(sampled, count),
        "µs",
        target,
    )

    fresh = fit(tokens[:half], vocab_size)
    begin = time.process_time()
    for context in contexts:
        fresh.greedy(context)
    first = (time.process_time() - begin) / count * 1e6
    yield row(f"greedy guess, contexts never asked, {name}", first, "µs")
    yield row(
        f"greedy guess, {name}",
        microseconds(lambda i: states[i].greedy(), count),
        "µs",
        "< 10",
    )

    chain = model.start()
    chain.extend(contexts[0])

    def guess_and_read(_: int) -> None:
        chain.advance([chain.greedy()])

    yield row(
        f"greedy guess, then reading it, {name}",
        microseconds(guess_and_read, count),
        "µs",
        "< 10",
    )
    text = tokens[half : half + 2000]
    took = microseconds(lambda _: model.perplexity(text), 1, 3) / len(text)
    yield row(f"one log probability of held-out text, {name}", took, "µs")


def run(quick: bool = False) -> list[Row]:
    """All figures, one record each: what, value, unit, target, tokens."""
    sizes = [10**5, 3 * 10**5] if quick else [10**5, 3 * 10**5, 10**6]
    words = library_words(sizes[-1])
    rows = list(training_rows(words, [s for s in sizes if s <= len(words)], quick))
    for vocab_size in (2_000, 10_000):
        rows += query_rows(words, vocab_size)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller texts")
    for r in run(parser.parse_args().quick):
        value = f"{r['value']:,.0f}" if r["value"] >= 100 else f"{r['value']:.2f}"
        print(f"{r['what']:<58}{value:>12} {r['unit']:<12}{r['target']}", flush=True)


if __name__ == "__main__":
    main()
