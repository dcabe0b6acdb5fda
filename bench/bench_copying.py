"""Drafts that copy: what a guess costs beside a long text.

    python bench/bench_copying.py [--quick]

A text of 100,000 tokens is the prompt, and the tokens that follow it are decoded as if
they were the target's: propose 8, keep what is right, commit it and one token more.
Texts: sources of Python's standard library in the book's tokens, two that go in a loop,
and tosses of a coin, the hardest for an automaton. Microseconds of CPU time, one
thread, so that other work on the machine counts little.

Beside the drafts stand plain scans of the whole text for the same guess, and the prompt
lookup of transformers where it is installed; every guess is compared with theirs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import specdec_lib as sd
from specdec_lib.text import stdlib_corpus

K, MAX_MATCH = 8, 3
HISTORY = 100_000
Row = dict[str, Any]


# ---- plain scans


def scan_numpy(text: np.ndarray, earliest: bool) -> tuple[int, ...]:
    """Compare the last tokens with every window of the text."""
    for n in range(min(MAX_MATCH, len(text) - 1), 0, -1):
        windows = sliding_window_view(text[:-1], n)  # another token follows each
        places = np.flatnonzero((windows == text[-n:]).all(axis=1))
        if len(places):
            after = places[0 if earliest else -1] + n
            return tuple(text[after : after + K].tolist())
    return ()


def scan_backwards(text: Sequence[int]) -> tuple[int, ...]:
    """Go back from the end until the last tokens are met again."""
    for n in range(min(MAX_MATCH, len(text) - 1), 0, -1):
        last = text[-n:]
        for after in range(len(text) - 1, n - 1, -1):
            if text[after - n : after] == last:
                return tuple(text[after : after + K])
    return ()


def lookup_of_transformers() -> Callable[[Any], tuple[int, ...]] | None:
    """Its guess for a (1, n) tensor, or None where it is not installed."""
    try:
        from transformers.generation import candidate_generator
    except ImportError:
        return None
    peer = candidate_generator.PromptLookupCandidateGenerator(
        num_output_tokens=K, max_matching_ngram_size=MAX_MATCH, max_length=10**9
    )

    def guess(ids: Any) -> tuple[int, ...]:
        found, _ = peer.get_candidates(ids)
        return tuple(found[0, ids.shape[1] :].tolist())

    return guess


# ---- clocks


def decode(draft: Any, text: Sequence[int], history: int, tokens: int) -> Row:
    """Times of each proposal, and of each commit by its number of tokens."""
    session = draft.start(text[:history])
    proposals, commits, estimated, held = [], [], [], []
    at, clock = history, time.thread_time_ns
    while at < history + tokens:
        begin = clock()
        guess = session.propose(K, None).tokens
        proposals.append(clock() - begin)
        right = 0
        while right < len(guess) and guess[right] == text[at + right]:
            right += 1
        for i, chance in enumerate(getattr(session, "chances", ())):
            estimated.append(chance)
            held.append(i < right)
        kept = tuple(text[at : at + right + 1])
        begin = clock()
        session.commit(kept)
        commits.append((clock() - begin) / len(kept))
        at += len(kept)
    return {
        "propose": np.array(proposals) / 1e3,
        "commit": np.array(commits) / 1e3,
        "tokens a round": (at - history) / len(proposals),
        "estimated": np.mean(estimated) if estimated else None,
        "held": np.mean(held) if held else None,
    }


def microseconds(work: Callable[[Any], Any], arguments: Sequence[Any]) -> list[float]:
    """Time of each call, after one that is not counted."""
    work(arguments[0])
    times = []
    for argument in arguments:
        begin = time.thread_time_ns()
        work(argument)
        times.append((time.thread_time_ns() - begin) / 1e3)
    return times


# ---- rows


def row(
    what: str, value: float, unit: str = "µs", target: str = "", **more: Any
) -> Row:
    return {"what": what, "value": float(value), "unit": unit, "target": target, **more}


def cost_rows(name: str, text: Sequence[int], draft: Any, tokens: int) -> list[Row]:
    """What a proposal and a committed token cost, and what they bring."""
    found = decode(draft, text, HISTORY, tokens)
    rows = []
    for part, target in (("propose", "at most 30"), ("commit", "at most 10")):
        what = f"{name}: " + (f"propose {K}" if part == "propose" else "commit a token")
        rows.append(row(f"{what}, mean", found[part].mean(), target=target))
        middle, slow = np.percentile(found[part], (50, 99))
        rows.append(row("    half of them within", middle))
        rows.append(row("    99 of 100 within", slow))
    rows.append(row("    tokens a round", found["tokens a round"], ""))
    if found["estimated"] is not None:
        rows.append(row("    mean estimated chance of a guess", found["estimated"], ""))
        rows.append(row("    share of guesses that held", found["held"], ""))
    return rows


def growth_rows(text: Sequence[int], tokens: int) -> list[Row]:
    rows = []
    for history in (1_000, 10_000, HISTORY):
        found = decode(sd.SuffixDraft(), text, history, tokens)
        for part in ("propose", "commit"):
            what = f"suffix draft, {part}, {history:,} tokens"
            rows.append(row(what, found[part].mean(), tokens=history))
    return rows


def peer_rows(text: Sequence[int], places: int) -> list[Row]:
    """The same guesses by scans of the whole text; RuntimeError where they differ."""
    ends = np.linspace(HISTORY - 20_000, HISTORY, places, dtype=int).tolist()
    guesses: dict[bool, list[tuple[int, ...]]] = {}
    ours: dict[bool, float] = {}
    for earliest in (False, True):
        session = sd.PromptLookup(MAX_MATCH, earliest=earliest).start(text[: ends[0]])
        guesses[earliest], times = [], []
        for i, end in enumerate(ends):
            session.commit(text[ends[max(0, i - 1)] : end])
            begin = time.thread_time_ns()
            guesses[earliest].append(session.propose(K).tokens)
            times.append((time.thread_time_ns() - begin) / 1e3)
        ours[earliest] = float(np.mean(times))
    array = np.array(text)
    peers: list[tuple[str, bool, Callable[[Any], Any] | None, list[Any]]] = [
        ("scan with NumPy", False, lambda t: scan_numpy(t, False),
         [array[:end] for end in ends]),
        ("scan backwards in Python", False, scan_backwards,
         [text[:end] for end in ends]),
        ("scan with NumPy, earliest", True, lambda t: scan_numpy(t, True),
         [array[:end] for end in ends]),
    ]  # fmt: skip
    transformers = lookup_of_transformers()
    tensors = []
    if transformers is not None:
        import torch

        torch.set_num_threads(1)
        tensors = [torch.tensor([text[:end]]) for end in ends]
    peers.append(("transformers' prompt lookup", True, transformers, tensors))
    rows = []
    for name, earliest, work, arguments in peers:
        if work is None:
            rows.append(row(f"{name} (not installed)", np.nan))
            continue
        for argument, guess in zip(arguments, guesses[earliest], strict=True):
            if work(argument) != guess:
                raise RuntimeError(f"{name} differs after {len(argument)} tokens")
        times = microseconds(work, arguments)
        rows.append(row(f"{name}, same {places} guesses, mean", np.mean(times)))
        times_faster = np.mean(times) / ours[earliest]
        rows.append(row("    prompt lookup is faster by", times_faster, "times"))
    return rows


def run(quick: bool = False) -> list[Row]:
    """All figures, one record each: what, value, unit, target, and tokens."""
    tokens, places = (1_000, 20) if quick else (10_000, 200)
    size = HISTORY + tokens + K + 1
    encode = sd.book_pair().tokenizer.encode
    sources: list[int] = []
    for source in stdlib_corpus().texts:
        sources += encode(source).tolist()
    texts = {
        "sources": sources[:size],
        "a loop of 7": (list(range(7)) * size)[:size],
        "one token": [5] * size,
        "coin tosses": np.random.default_rng(0).integers(0, 2, size).tolist(),
    }
    history = sd.SuffixHistory()
    history.add(sources[size : size + HISTORY])
    rows = []
    for of_what, text in texts.items():
        lookup = sd.PromptLookup(MAX_MATCH)
        rows += cost_rows(f"prompt lookup, {of_what}", text, lookup, tokens)
        rows += cost_rows(f"suffix draft, {of_what}", text, sd.SuffixDraft(), tokens)
    shared = sd.SuffixDraft(history)
    rows += cost_rows("suffix draft, sources, history", sources, shared, tokens)
    rows += peer_rows(texts["sources"], places)
    return rows + growth_rows(texts["sources"], tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer tokens")
    for r in run(parser.parse_args().quick):
        print(f"{r['what']:<56}{r['value']:>10.2f} {r['unit']:<6}{r['target']}")


if __name__ == "__main__":
    main()
