"""Plain and speculative decoding over drafts and lengths, timed fairly: a table.

Everything is run in one process: each prompt by every setting, in an order that is
drawn anew each time, after one prompt that is not counted. Seconds on the clock; the
time of a text is the median of its repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from ..decoding import DraftLength, stream
from ..drafts import Draft
from ..metrics import Metrics, Round
from ..models import LanguageModel, check_count
from ..randomness import SeededRandom
from ..records import _draws as draws_of_clusters
from ..sampling import DEFAULT_SAMPLER, Sampler
from .timing import Clock, in_random_order

Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One way to decode.

    name
        of the draft; "" without one.
    draft, k
        as in :func:`specdec_lib.generate`.
    """

    name: str = ""
    draft: Draft | None = None
    k: int | DraftLength = 0


PLAIN = Setting()


@dataclass(frozen=True)
class _Run:
    """One text: its rounds, and the seconds of each as seen from outside."""

    rounds: tuple[Round, ...]
    seconds: tuple[float, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for each in self.rounds for token in each.emitted)

    @property
    def target_parts(self) -> list[float]:
        """Of each round, its seconds less the draft's."""
        both = zip(self.rounds, self.seconds, strict=True)
        return [seconds - each.draft_seconds for each, seconds in both]


def measure_speeds(
    target: LanguageModel,
    settings: Sequence[Setting],
    prompts: Mapping[str, Sequence[int]],
    *,
    max_new_tokens: int,
    sampler: Sampler = DEFAULT_SAMPLER,
    stop_ids: Sequence[int] = (),
    seed: int = 0,
    repeats: int = 5,
    clock: Clock = perf_counter,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Row]:
    """One row for plain decoding, then one for each of ``settings``.

    ``draft``, ``k``, ``temperature``
        the setting; k is None where it is chosen on the way.
    ``tokens``, ``calls``, ``drafted``, ``tested``, ``accepted``, ``acceptance_rate``,
    ``tokens_per_call``
        over all prompts, as in :mod:`specdec_lib.metrics`.
    ``seconds``, ``draft_seconds``, ``target_seconds``, ``tokens_per_second``
        over all prompts, the reading of them included.
    ``spread``
        how far the repeats lie apart: the middle half of their seconds, over the
        median.
    ``speedup``, ``low``, ``high``
        plain seconds per token over these, and an interval of 95 % by a bootstrap over
        the prompts. None where the temperature is 0 and ``same_tokens`` is False: a
        speedup of a wrong answer is not a speedup.
    ``verify_cost``, ``draft_cost``
        T(k + 1) / T(1), T(n) being the median time of a round that scores n tokens,
        less the draft's part, in whichever setting it came; and the draft's time for
        one guess / T(1), its rounds by their medians too.
    ``predicted_speedup``
        from these costs, and the rounds that came.

    prompts
        name -> tokens. Each has a seed of its own, made from ``seed``, which is the
        same for every setting.
    repeats
        >= 1.

    Other arguments as in :func:`specdec_lib.generate`. Raises ValueError for them, and
    for a prompt that leaves no room in the context window.
    """
    check_count("repeats", repeats, least=1)
    check_count("max_new_tokens", max_new_tokens, least=1)
    if not prompts:
        raise ValueError("prompts must be one or more")
    for each in settings:
        if each.draft is None:
            raise ValueError("settings must have drafts; plain decoding is always done")
    every = [PLAIN, *settings]
    names = list(prompts)

    def decode(setting: Setting, name: str) -> _Run:
        rounds = stream(
            target,
            prompts[name],
            draft=setting.draft,
            k=setting.k,
            max_new_tokens=max_new_tokens,
            sampler=sampler,
            stop_ids=stop_ids,
            seed=seed + names.index(name),
        )
        return _timed(rounds, clock)

    for setting in every:
        decode(setting, names[0])
    rng = SeededRandom(seed)
    runs: dict[tuple[int, str], list[_Run]] = {}
    for turn in range(repeats):
        for name in names:
            progress(f"repeat {turn + 1} of {repeats}, prompt {name}")
            for i in in_random_order(range(len(every)), rng):
                runs.setdefault((i, name), []).append(decode(every[i], name))
    of_setting = [[runs[i, name] for name in names] for i in range(len(every))]
    times = _call_times(run for texts in of_setting for each in texts for run in each)
    return [
        {
            **_row(setting, texts, of_setting[0], times, sampler.temperature, seed),
            "prompts": len(names),
            "repeats": repeats,
        }
        for setting, texts in zip(every, of_setting, strict=True)
    ]


def _timed(rounds: Any, clock: Clock) -> _Run:
    done, ends = [], [clock()]
    with closing(rounds):
        for each in rounds:
            done.append(each)
            ends.append(clock())
    if not done:
        raise ValueError("prompts must leave room in the target's context window")
    return _Run(tuple(done), tuple(np.diff(ends).tolist()))


def _call_times(runs: Iterable[_Run]) -> dict[int, float]:
    """T(n) for every n that came; first rounds also read the prompt, and are out."""
    seconds: dict[int, list[float]] = {}
    for run in runs:
        parts = zip(run.rounds[1:], run.target_parts[1:], strict=True)
        for each, second in parts:
            seconds.setdefault(len(each.drafted) + 1, []).append(second)
    return {n: median(values) for n, values in seconds.items()}


Texts = list[list[_Run]]  # one list of repeats for each prompt


def _row(
    setting: Setting,
    texts: Texts,
    plain: Texts,
    times: dict[int, float],
    temperature: float,
    seed: int,
) -> Row:
    first = [repeats[0] for repeats in texts]
    metrics = Metrics.from_rounds(each for run in first for each in run.rounds)
    same = all(a.tokens == b[0].tokens for a, b in zip(first, plain, strict=True))
    seconds = _text_seconds(texts)
    turns = [sum(sum(each[i].seconds) for each in texts) for i in range(len(texts[0]))]
    low, high = np.quantile(turns, [0.25, 0.75])
    drafting = sum(map(_draft_seconds, texts))
    k = None if hasattr(setting.k, "next_k") else int(setting.k)
    one = times.get(1)
    row: Row = {
        "draft": setting.name,
        "k": k,
        "temperature": temperature,
        "tokens": metrics.emitted,
        "calls": metrics.target_calls,
        "drafted": metrics.drafted,
        "tested": metrics.tested,
        "accepted": metrics.accepted,
        "acceptance_rate": metrics.acceptance_rate,
        "tokens_per_call": metrics.tokens_per_call,
        "seconds": float(seconds.sum()),
        "draft_seconds": _sum_of_medians(texts, "draft_seconds"),
        "target_seconds": _sum_of_medians(texts, "target_seconds"),
        "tokens_per_second": metrics.emitted / float(seconds.sum()),
        "spread": float((high - low) / median(turns)),
        "same_tokens": same,
    }
    row |= dict.fromkeys(
        ("speedup", "low", "high", "verify_cost", "draft_cost", "predicted_speedup")
    )
    if setting.draft is None:
        return row
    if temperature > 0 or same:
        row["speedup"], row["low"], row["high"] = _speedup(texts, plain, seed)
    if one is not None:
        if k is not None and k + 1 in times:
            row["verify_cost"] = times[k + 1] / one
        if metrics.drafted:
            row["draft_cost"] = drafting / metrics.drafted / one
        before = _predicted_seconds(plain, plain, times) / _tokens(plain).sum()
        after = _predicted_seconds(texts, plain, times) + drafting
        row["predicted_speedup"] = before * _tokens(texts).sum() / after
    return row


def _text_seconds(texts: Texts) -> Any:
    return np.array([median(sum(run.seconds) for run in each) for each in texts])


def _tokens(texts: Texts) -> Any:
    return np.array([len(each[0].tokens) for each in texts])


def _sum_of_medians(texts: Texts, name: str) -> float:
    def total(run: _Run) -> float:
        return sum(float(getattr(each, name)) for each in run.rounds)

    return float(sum(median(map(total, each)) for each in texts))


def _draft_seconds(repeats: list[_Run]) -> float:
    """Of the draft, round by round: with fixed seeds every repeat has the same ones."""
    rounds = zip(*(run.rounds for run in repeats), strict=True)
    return float(sum(median(each.draft_seconds for each in same) for same in rounds))


def _predicted_seconds(texts: Texts, plain: Texts, times: dict[int, float]) -> float:
    """Of the target: the prompts as plain decoding read them, then a T(n) a round."""
    reading = sum(median(run.target_parts[0] for run in each) for each in plain)
    rounds = [each for repeats in texts for each in repeats[0].rounds[1:]]
    return reading + sum(times[len(each.drafted) + 1] for each in rounds)


def _speedup(
    texts: Texts, plain: Texts, seed: int
) -> tuple[float, float | None, float | None]:
    parts = [_text_seconds(plain), _tokens(plain), _text_seconds(texts), _tokens(texts)]

    def speedup(weights: Any) -> Any:
        a, b, c, d = (weights @ part for part in parts)
        return (a / b) / (c / d)

    estimate = float(speedup(np.ones(len(texts))))
    if len(texts) < 2:
        return estimate, None, None
    drawn = speedup(draws_of_clusters(len(texts), 1000, seed))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return estimate, float(low), float(high)
