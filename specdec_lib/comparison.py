"""Plain and speculative decoding side by side, timed fairly.

A speedup says little alone. It depends on what one call for k + 1 tokens costs beside a
call for one, and on what a guess costs; so these are measured in the same run, and the
speedup that they predict stands beside the one that was seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np

from . import theory
from .decoding import Generation, stream
from .drafts import Draft
from .metrics import Metrics, Round
from .models import LanguageModel, check_count
from .sampling import DEFAULT_SAMPLER, Sampler


@dataclass(frozen=True)
class Comparison:
    """The same request decoded without and with guesses.

    plain, speculative
        what came out of both.
    plain_seconds, speculative_seconds
        per emitted token; medians over the repeats, which alternate after a warm-up.
    verify_cost
        T(k + 1) / T(1), T(n) being the median time of a round that scores n tokens,
        less the draft's part: the target's call, its distributions and the verdict.
    draft_cost
        time of one drafted token / T(1).
    """

    plain: Generation
    speculative: Generation
    k: int
    temperature: float
    repeats: int
    plain_seconds: float
    speculative_seconds: float
    verify_cost: float
    draft_cost: float

    @property
    def same_tokens(self) -> bool:
        """Whether both gave the same text; at temperature 0 they must."""
        return self.plain.tokens == self.speculative.tokens

    @property
    def speedup(self) -> float | None:
        """Plain seconds per token / speculative seconds per token.

        None where the temperature is 0 and the outputs differ: a speedup of a wrong
        answer is not a speedup.
        """
        if self.temperature == 0 and not self.same_tokens:
            return None
        return self.plain_seconds / self.speculative_seconds

    @property
    def predicted_speedup(self) -> float | None:
        """What the cost model says for the acceptance rate that was seen.

        None where no guess was tested.
        """
        alpha = self.speculative.metrics.acceptance_rate
        if alpha is None:
            return None
        return theory.speedup(
            alpha, self.k, self.draft_cost, lambda n: self.verify_cost
        )


def compare(
    target: LanguageModel,
    prompt: Sequence[int],
    *,
    draft: Draft,
    k: int = 4,
    max_new_tokens: int,
    sampler: Sampler = DEFAULT_SAMPLER,
    stop_ids: Sequence[int] = (),
    seed: int | None = 0,
    repeats: int = 5,
) -> Comparison:
    """Decode ``prompt`` with and without ``draft``, ``repeats`` times in turn.

    By the token rule, so that the draft proposes chains: ValueError for trees.
    Arguments are those of :func:`generate`; ``k``, ``max_new_tokens`` and ``repeats``
    are at least 1. Raises ValueError otherwise.
    """
    numbers = {"k": k, "max_new_tokens": max_new_tokens, "repeats": repeats}
    for name, value in numbers.items():
        if not value >= 1:
            raise ValueError(f"{name} must be 1 or more to compare, got {value}")

    def decode(draft: Draft | None) -> _Run:
        rounds = stream(
            target,
            prompt,
            draft=draft,
            k=k,
            max_new_tokens=max_new_tokens,
            sampler=sampler,
            stop_ids=stop_ids,
            seed=seed,
        )
        return _timed(rounds)

    runs: dict[bool, list[_Run]] = {False: [], True: []}
    for _ in range(repeats + 1):
        runs[False].append(decode(None))
        runs[True].append(decode(draft))
    plain, speculative = runs[False][1:], runs[True][1:]  # the first was the warm-up
    one = median(run.round_seconds for run in plain)
    return Comparison(
        plain=Generation.from_rounds(plain[-1].rounds, if_none="length"),
        speculative=Generation.from_rounds(speculative[-1].rounds, if_none="length"),
        k=k,
        temperature=sampler.temperature,
        repeats=repeats,
        plain_seconds=median(run.token_seconds for run in plain),
        speculative_seconds=median(run.token_seconds for run in speculative),
        verify_cost=median(run.round_seconds for run in speculative) / one,
        draft_cost=median(run.draft_seconds for run in speculative) / one,
    )


@dataclass(frozen=True)
class _Run:
    rounds: tuple[Round, ...]
    token_seconds: float  # per emitted token, all included
    round_seconds: float  # of a usual round, less the draft's part
    draft_seconds: float  # per drafted token


def _timed(rounds: Iterator[Round]) -> _Run:
    done, seconds = [], []
    started = perf_counter()
    for each in rounds:
        done.append(each)
        seconds.append(perf_counter())
    if not done:
        raise ValueError("prompt leaves no room in the target's context window")
    spent = np.diff([started, *seconds]) - [each.draft_seconds for each in done]
    # The first round also reads the prompt; the last ones may draft less than k.
    most = max(len(each.drafted) for each in done)
    usual = [
        second
        for second, each in zip(spent[1:], done[1:], strict=True)
        if len(each.drafted) == most
    ]
    metrics = Metrics.from_rounds(done)
    return _Run(
        rounds=tuple(done),
        token_seconds=(seconds[-1] - started) / metrics.emitted,
        round_seconds=median(usual or spent.tolist()),
        draft_seconds=metrics.draft_seconds / max(metrics.drafted, 1),
    )


SIZES = (1, 2, 3, 5, 8, 12, 16)  # tokens per call that give a curve its shape


def measure_cost_curve(
    model: LanguageModel,
    ns: Sequence[int] = SIZES,
    *,
    context: int = 128,
    repeats: int = 11,
) -> theory.CostCurve:
    """T(n) / T(1) of a model on this machine: what a call for n tokens costs.

    ns
        tokens per call, increasing integers from 1.
    context
        how many tokens the model has read before each call, >= 0.
    repeats
        calls of each size that count, >= 1, after one that does not. Sizes take turns,
        so that what disturbs the machine disturbs all of them alike; the curve is made
        of the quickest of each, since other work only ever adds.

    Taking back what a call has read belongs to it. Raises ValueError where context and
    the largest n do not fit the model's context window. It takes some seconds with a
    model whose call takes thirty milliseconds.

    >>> from specdec_lib import FunctionModel
    >>> curve = measure_cost_curve(FunctionModel(lambda seq: [0.0, 0.0], 2), (1, 4))
    >>> curve.ns, curve(1)
    ((1, 4), 1.0)
    """
    check_count("context", context)
    check_count("repeats", repeats, least=1)
    ns = theory.cost_curve(ns, [1.0] * len(ns)).ns  # in order, or refused
    window = model.context_window
    if window is not None and context + ns[-1] > window:
        raise ValueError(
            f"context and the largest n must fit the context window of {window}, "
            f"got {context} and {ns[-1]}"
        )
    tokens = [i % model.vocab_size for i in range(context + ns[-1])]
    state = model.start()
    if context:
        state.extend(tokens[:context])
    times: dict[int, list[float]] = {n: [] for n in ns}
    for _ in range(repeats + 1):
        for n in ns:
            started = perf_counter()
            state.extend(tokens[context : context + n])
            state.rewind(context)
            times[n].append(perf_counter() - started)
    return theory.cost_curve(ns, [min(each[1:]) for each in times.values()])
