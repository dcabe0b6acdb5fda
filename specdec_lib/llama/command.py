"""``specdec generate`` with a real model: a streamed answer, then its figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .. import theory
from ..comparison import SIZES, measure_cost_curve
from ..decoding import DraftLength, Generation, stream
from ..draft_length import copies_that_pay
from ..drafts import Draft, SuffixDraft
from ..metrics import Round
from ..sampling import Sampler
from ..text import StreamDecoder
from . import fetch, load

if TYPE_CHECKING:
    from .tokenizer import LlamaTokenizer

MOST = SIZES[-1] - 1  # guesses a round, where the length is chosen as it goes


def is_real(model: str | None) -> bool:
    """Whether ``--model`` names a real model rather than a saved pair."""
    return model is not None and (
        model in fetch.MODELS or os.fspath(model).lower().endswith(".gguf")
    )


@dataclass(frozen=True)
class Answer:
    """One decoding of the prompt, timed as a whole."""

    generation: Generation
    text: str
    seconds: float

    @property
    def seconds_per_token(self) -> float:
        return self.seconds / max(len(self.generation.tokens), 1)


def generate(
    name: str,
    prompt: str,
    *,
    k: int | None = None,
    max_new_tokens: int = 60,
    sampler: Sampler,
    seed: int = 0,
    compiled: bool = False,
    chat: bool = True,
    show: Callable[[str], None] = lambda text: None,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Answer ``prompt`` with guesses copied from it, then without; both in figures.

    k
        guesses a round; None: as many as pay by the costs measured here and now.
    chat
        put the prompt into the model's chat template, where it has one.
    show
        given the answer with guesses piece by piece, as it comes.
    progress
        told in a word or two what is being done; an empty one before the answer.

    Other arguments as in :func:`specdec_lib.generate` and
    :func:`specdec_lib.llama.load`.
    """
    progress("reading the model")
    model, tokenizer = load(name, compiled=compiled)
    ids = _prompt_ids(tokenizer, prompt, chat)
    window = model.context_window
    if len(ids) >= window:
        raise ValueError(
            f"prompt must leave room in the context window of {window} tokens, "
            f"got {len(ids)}"
        )
    progress("measuring what a call costs")
    most = max(MOST if k is None else k, 1)
    sizes = sorted({*SIZES, most + 1})
    if sizes[-1] > window:
        raise ValueError(f"k must be less than the context window of {window}, got {k}")
    context = min(128, window - sizes[-1])
    curve = measure_cost_curve(model, sizes, context=context, repeats=3)
    draft: Draft
    length: int | DraftLength
    if k is None:
        draft, length = copies_that_pay(curve, max_k=most)
    else:
        draft, length = SuffixDraft(), k
    progress("")

    def answer(draft: Draft | None, show: Callable[[str], None]) -> Answer:
        rounds = stream(
            model,
            ids,
            draft=draft,
            k=length,
            max_new_tokens=max_new_tokens,
            sampler=sampler,
            stop_ids=tokenizer.stop_ids,
            seed=seed,
        )
        return _shown(rounds, StreamDecoder(tokenizer), show)

    guessed = answer(draft, show)
    plain = answer(None, lambda text: None)
    return _report(guessed, plain, curve, sampler.temperature)


def _prompt_ids(tokenizer: LlamaTokenizer, prompt: str, chat: bool) -> list[int]:
    """What the model reads: the prompt in its chat template, or as it is."""
    ids: list[int]
    if chat and tokenizer.chat_template is not None:
        ids = tokenizer.chat(prompt).tolist()
        return ids
    ids = tokenizer.encode(prompt).tolist()
    if tokenizer.bos_id is not None and (tokenizer.add_bos or not ids):
        ids.insert(0, tokenizer.bos_id)
    return ids


def _shown(
    rounds: Iterator[Round], decoder: StreamDecoder, show: Callable[[str], None]
) -> Answer:
    done, pieces = [], []
    started = perf_counter()
    with closing(rounds) as rounds:  # type: ignore[type-var]
        for each in rounds:
            done.append(each)
            pieces.append(decoder.feed(each.emitted))
            show(pieces[-1])
    seconds = perf_counter() - started
    pieces.append(decoder.finish())
    show(pieces[-1])
    return Answer(
        Generation.from_rounds(done, if_none="length"), "".join(pieces), seconds
    )


def _report(
    guessed: Answer, plain: Answer, curve: theory.CostCurve, temperature: float
) -> dict[str, Any]:
    def side(answer: Answer) -> dict[str, Any]:
        metrics = answer.generation.metrics
        return {
            "text": answer.text,
            "tokens": metrics.emitted,
            "rounds": metrics.target_calls,
            "drafted": metrics.drafted,
            "acceptance_rate": metrics.acceptance_rate,
            "tokens_per_call": metrics.tokens_per_call,
            "seconds": answer.seconds,
            "seconds_per_token": answer.seconds_per_token,
            "finish_reason": answer.generation.finish_reason,
        }

    same = guessed.generation.tokens == plain.generation.tokens
    speedup = plain.seconds_per_token / guessed.seconds_per_token
    refused = temperature == 0 and not same
    return {
        "speculative": side(guessed),
        "plain": side(plain),
        "same_tokens": same,
        "temperature": temperature,
        "speedup": None if refused else speedup,
        "predicted_speedup": _predicted(guessed, plain, curve),
        "verify_costs": {str(n): curve(n) for n in curve.ns},
    }


def _predicted(guessed: Answer, plain: Answer, curve: theory.CostCurve) -> float | None:
    """Tokens for the time, by the rounds that were seen and T(n) as measured.

    The first round of either also reads the prompt, which is left out: the prediction
    is of what comes after it.
    """
    rounds = guessed.generation.rounds[1:]
    if not rounds or len(plain.generation.rounds) < 2:
        return None
    one = sum(each.target_seconds for each in plain.generation.rounds[1:])
    one /= len(plain.generation.rounds) - 1
    cost = sum(
        curve(len(each.drafted) + 1) + each.draft_seconds / one for each in rounds
    )
    return sum(len(each.emitted) for each in rounds) / cost
