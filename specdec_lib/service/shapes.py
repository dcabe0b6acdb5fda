"""Answers: in the service's own shape, and in those that OpenAI's clients read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol

from .errors import Refusal
from .jobs import Job, Outcome
from .schemas import ChatRequest, CompletionRequest
from .sse import DONE, event


class Shape(Protocol):
    def whole(self, job: Job, outcome: Outcome) -> dict[str, Any]:
        """The answer as one JSON object."""

    def begin(self, job: Job) -> Iterator[str]:
        """The events before any text."""

    def piece(self, job: Job, text: str) -> str:
        """The event of one piece."""

    def end(self, job: Job, outcome: Outcome) -> Iterator[str]:
        """The events after the last piece."""

    def error(self, job: Job, refusal: Refusal) -> Iterator[str]:
        """The events of a failure after some text."""


def summary(job: Job, outcome: Outcome, name: str) -> dict[str, Any]:
    """All there is to say of an answer but its text.

    Times are in milliseconds. ``latency_ms`` is from the request to the last token,
    ``queue_ms`` the part of it before its turn came, ``first_text_ms`` from the request
    to the first text. ``degraded`` names what was missing.
    """
    completion, metrics, task = outcome.completion, outcome.completion.metrics, job.task
    return {
        "id": job.request_id,
        "model": name,
        "prompt_tokens": completion.prompt_tokens,
        "new_tokens": len(completion.tokens),
        "finish_reason": completion.finish_reason,
        "stop": completion.stop,
        "seed": task.seed,
        "rule": task.rule,
        "tau": task.tau,
        "exact": task.exact and "target" not in job.degraded,
        "degraded": job.degraded,
        "target_calls": metrics.target_calls,
        "drafted": metrics.drafted,
        "tested": metrics.tested,
        "accepted": metrics.accepted,
        "acceptance_rate": metrics.acceptance_rate,
        "tokens_per_call": metrics.tokens_per_call,
        "latency_ms": _ms(outcome.seconds),
        "queue_ms": _ms(outcome.queue_seconds),
        "first_text_ms": _ms(outcome.first_text_seconds),
        "draft_ms": _ms(metrics.draft_seconds),
        "target_ms": _ms(metrics.target_seconds),
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)


class GenerateShape:
    """``text`` and the summary; streamed: events with ``text``, then one "summary"."""

    def __init__(self, name: str) -> None:
        self._name = name

    def whole(self, job: Job, outcome: Outcome) -> dict[str, Any]:
        return {"text": outcome.completion.text, **summary(job, outcome, self._name)}

    def begin(self, job: Job) -> Iterator[str]:
        yield from ()

    def piece(self, job: Job, text: str) -> str:
        return event({"text": text})

    def end(self, job: Job, outcome: Outcome) -> Iterator[str]:
        yield event(summary(job, outcome, self._name), "summary")

    def error(self, job: Job, refusal: Refusal) -> Iterator[str]:
        yield event(refusal.body(job.request_id), "error")


class OpenAIShape:
    """Text completions; the summary stands under "specdec"."""

    kind = stream_kind = "text_completion"
    prefix = "cmpl-"

    def __init__(self, name: str, body: CompletionRequest | ChatRequest) -> None:
        self._name = name
        options = body.stream_options
        self._with_usage = options is not None and options.include_usage
        self._created = int(time.time())

    def whole(self, job: Job, outcome: Outcome) -> dict[str, Any]:
        return {
            **self._head(job, self.kind),
            "choices": [self._choice(outcome.completion.text, _reason(outcome))],
            "usage": _usage(outcome),
            "specdec": summary(job, outcome, self._name),
        }

    def begin(self, job: Job) -> Iterator[str]:
        yield from ()

    def piece(self, job: Job, text: str) -> str:
        return self._chunk(job, [self._part(text, None)])

    def end(self, job: Job, outcome: Outcome) -> Iterator[str]:
        specdec = summary(job, outcome, self._name)
        last = [self._part("", _reason(outcome))]
        yield self._chunk(job, last, specdec=specdec)
        if self._with_usage:
            yield self._chunk(job, [], usage=_usage(outcome))
        yield DONE

    def error(self, job: Job, refusal: Refusal) -> Iterator[str]:
        yield event(refusal.body(job.request_id))
        yield DONE

    def _head(self, job: Job, kind: str) -> dict[str, Any]:
        return {
            "id": self.prefix + job.request_id,
            "object": kind,
            "created": self._created,
            "model": self._name,
        }

    def _chunk(self, job: Job, choices: list[dict[str, Any]], **more: Any) -> str:
        return event({**self._head(job, self.stream_kind), "choices": choices, **more})

    def _choice(self, text: str, reason: str | None) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}

    _part = _choice


class ChatShape(OpenAIShape):
    """Chat completions."""

    kind, stream_kind = "chat.completion", "chat.completion.chunk"
    prefix = "chatcmpl-"

    def begin(self, job: Job) -> Iterator[str]:
        first = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": first, "logprobs": None, "finish_reason": None}
        yield self._chunk(job, [choice])

    def _choice(self, text: str, reason: str | None) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": reason,
        }

    def _part(self, text: str, reason: str | None) -> dict[str, Any]:
        delta = {"content": text} if reason is None else {}
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _reason(outcome: Outcome) -> str:
    """OpenAI has no word for the other ends; "specdec" in the answer says which it
    was."""
    return "stop" if outcome.completion.finish_reason == "stop" else "length"


def _usage(outcome: Outcome) -> dict[str, int]:
    prompt, new = outcome.completion.prompt_tokens, len(outcome.completion.tokens)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": new,
        "total_tokens": prompt + new,
    }
