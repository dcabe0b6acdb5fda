"""``specdec generate`` with a real model: a streamed answer, then its figures.

And ``specdec models distill``, which keeps answers to copy from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from .. import theory
from ..comparison import SIZES, measure_cost_curve
from ..drafts import Draft
from ..engine import Completion
from ..files import AnyPath
from ..prompts import Prompt
from ..sampling import Sampler
from . import answers, fetch
from .targets import Target, load_target

ORDER = answers.ORDER
MOST = SIZES[-1] - 1  # guesses a round, where the length is chosen as it goes


@dataclass(frozen=True)
class Answer:
    """One decoding of the prompt, and the seconds that all its rounds took."""

    completion: Completion
    seconds: float

    @property
    def seconds_per_token(self) -> float:
        return self.seconds / max(len(self.completion.tokens), 1)


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
    history: AnyPath | None = None,
    earlier: bool = True,
    show: Callable[[str], None] = lambda text: None,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Answer ``prompt`` with guesses copied from it, then without; both in figures.

    k
        guesses a round; None: as many as pay by the costs measured here and now.
    chat
        put the prompt into the model's chat template, where it has one.
    history
        a file of the model's earlier answers, to copy from too; None: the one that
        ``specdec models distill`` has put by for this model, if it has.
    earlier
        False: copy from no earlier answers.
    show
        given the answer with guesses piece by piece, as it comes, then a line end.
    progress
        told in a word or two what is being done; an empty one when that is over.

    Other arguments as in :func:`specdec_lib.generate` and :func:`.targets.load_target`.
    """
    known = None if history is None else answers.Answers.load(history)
    progress("reading the model")
    target = load_target(name, compiled=compiled)
    if known is not None:
        answers.check_fits(known, target.vocabulary, history)
    elif earlier:
        history = answers_place(name)
        known = _put_by(target, history)
    engine = replace(target.engine, chat=chat and target.engine.has_chat)
    model, ids = engine.target, engine.encode(prompt)
    window = model.context_window
    if window is not None and len(ids) >= window:
        raise ValueError(
            f"prompt must leave room in the context window of {window} tokens, "
            f"got {len(ids)}"
        )
    progress("measuring what a call costs")
    most = max(MOST if k is None else k, 1)
    sizes = sorted({*SIZES, most + 1})
    context = 128
    if window is not None:
        if sizes[-1] > window:
            raise ValueError(
                f"k must be less than the context window of {window}, got {k}"
            )
        context = min(context, window - sizes[-1])
    curve = measure_cost_curve(model, sizes, context=context, repeats=3)
    draft, length = answers.copies(curve, known, k=k, max_k=most)
    progress("")

    def answer(draft: Draft | None, show: Callable[[str], None]) -> Answer:
        pieces = replace(engine, draft=draft).stream(
            prompt, max_new_tokens=max_new_tokens, k=length, sampler=sampler, seed=seed
        )
        seconds = 0.0  # without those in which a piece is shown
        with closing(pieces):
            while True:
                started = perf_counter()
                piece = next(pieces, None)
                seconds += perf_counter() - started
                if piece is None:
                    return Answer(pieces.completion, seconds)
                show(piece)

    guessed = answer(draft, show)
    show("\n")
    progress("the same without guesses")
    plain = answer(None, lambda text: None)
    progress("")
    report = _report(guessed, plain, curve, sampler.temperature)
    report["history"] = known and {
        "file": str(history),
        "answers": len(known.texts),
        "tokens": known.tokens,
        "knows_prompt": known.know(ids),
    }
    return report


def answers_place(name: str) -> Path:
    """Where the earlier answers of a model are put by."""
    own = name in fetch.MODELS or not Path(name).expanduser().exists()
    short = name if own else Path(name).expanduser().resolve().name
    short = short.removesuffix(".gguf").replace("/", "--")
    return fetch.folder() / f"{short}.answers"


def _put_by(target: Target, path: Path) -> answers.Answers | None:
    """The earlier answers at this place, if there are any and of the same tokens."""
    if not path.exists():
        return None
    found = answers.Answers.load(path)
    return found if found.vocabulary == target.vocabulary else None


def distill(
    name: str,
    prompts: Sequence[Prompt],
    *,
    path: AnyPath | None = None,
    max_new_tokens: int = 160,
    temperature: float = 0.0,
    seed: int = 0,
    compiled: bool = False,
    ngram: AnyPath | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> tuple[Path, answers.Answers]:
    """Let the model answer ``prompts`` and keep its answers; their file, and they.

    ``path`` is where; None: where :func:`generate` looks for them. ``ngram``: a file
    for an n-gram model of them too. Others as in :func:`.answers.distill`.
    """
    path = answers_place(name) if path is None else Path(path)
    progress("reading the model")
    target = load_target(name, compiled=compiled)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = answers.distill(
        target.model,
        [target.encode(prompt.messages, True) for prompt in prompts],
        path,
        vocabulary=target.vocabulary,
        stop_ids=target.stop_ids,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        progress=progress,
    )
    if ngram is not None:
        kept.ngram().save(ngram)
    return path, kept


def _report(
    guessed: Answer, plain: Answer, curve: theory.CostCurve, temperature: float
) -> dict[str, Any]:
    def side(answer: Answer) -> dict[str, Any]:
        metrics = answer.completion.metrics
        return {
            "text": answer.completion.text,
            "tokens": metrics.emitted,
            "rounds": metrics.target_calls,
            "drafted": metrics.drafted,
            "acceptance_rate": metrics.acceptance_rate,
            "tokens_per_call": metrics.tokens_per_call,
            "seconds": answer.seconds,
            "seconds_per_token": answer.seconds_per_token,
            "finish_reason": answer.completion.finish_reason,
        }

    same = guessed.completion.tokens == plain.completion.tokens
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
    rounds = guessed.completion.rounds[1:]
    if not rounds or len(plain.completion.rounds) < 2:
        return None
    one = sum(each.target_seconds for each in plain.completion.rounds[1:])
    one /= len(plain.completion.rounds) - 1
    cost = sum(
        curve(len(each.drafted) + 1) + each.draft_seconds / one for each in rounds
    )
    return sum(len(each.emitted) for each in rounds) / cost
