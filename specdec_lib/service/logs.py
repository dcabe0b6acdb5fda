"""Structured logs: one JSON object a line.

Every request ends with one line of the logger ``specdec.request``: its id, its trace,
its counts, times and end. No prompt and no answer, unless the operator asked for them.
It takes the place of uvicorn's access log; what uvicorn itself has to say is written in
the same way.
"""

from __future__ import annotations

import json
import logging
import re
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

from .hooks import Hooks
from .jobs import Job
from .watching import Exchange, Watching

__all__ = ["JSONLines", "RequestLog", "configure"]

requests = logging.getLogger("specdec.request")
_current: ContextVar[Exchange | None] = ContextVar("exchange", default=None)
# Of W3C Trace Context: version, trace id, parent id, flags; later ones may have more.
TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")


class JSONLines(logging.Formatter):
    r"""A record as JSON on one line; what a record has under ``extra={"fields": …}``
    stands beside the rest.

    >>> record = logging.LogRecord("a", logging.INFO, "", 0, "two\nlines", (), None)
    >>> line = JSONLines().format(record)
    >>> {**json.loads(line), "time": "now"}
    {'time': 'now', 'level': 'info', 'logger': 'a', 'message': 'two\nlines'}
    >>> "\n" in line
    False
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of ``record``, without its end."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        # ASCII: no character of a text can end the line or move the cursor.
        return json.dumps(line, default=str)


def configure(stream: TextIO, level: int = logging.INFO) -> None:
    """All logging of this process goes to ``stream``, as JSON lines."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONLines())
    logging.basicConfig(handlers=[handler], level=level, force=True)


class RequestLog(Hooks):
    """One line for each request that ends.

    Those for /health, /ready and /metrics, which are asked again and again, are of
    level DEBUG. ``with_text`` adds what was asked and what was answered.
    """

    def __init__(self, *, with_text: bool = False) -> None:
        self._with_text = with_text

    def startup(self, app: Any) -> None:
        app.add_middleware(
            Watching, current=_current, begin=lambda _: None, end=self._end
        )

    def accepted(self, job: Job) -> None:
        exchange = _current.get()
        if exchange is not None:
            exchange.job = job

    def _end(self, exchange: Exchange) -> None:
        often = exchange.path in ("/health", "/ready", "/metrics")
        level = logging.DEBUG if often else logging.INFO
        if not requests.isEnabledFor(level):
            return
        fields: dict[str, Any] = {
            "request_id": exchange.request_id,
            "trace_id": _trace_id(exchange),
            "method": exchange.method,
            "path": exchange.path,
            "status": exchange.status,
            "seconds": round(exchange.seconds, 6),
        }
        if exchange.job is not None:
            fields.update(self._of(exchange.job))
        message = f"{exchange.method} {exchange.path} {exchange.status}"
        requests.log(level, message, extra={"fields": fields})

    def _of(self, job: Job) -> dict[str, Any]:
        task, outcome = job.task, job.outcome
        fields: dict[str, Any] = {
            "outcome": "gone",
            "stream": task.stream,
            "seed": task.seed,
            "rule": task.rule,
            "degraded": list(job.degraded),
            "queue_seconds": round(job.queue_seconds, 6),
        }
        if self._with_text:
            fields["prompt"] = task.prompt
        if job.refusal is not None:
            fields["outcome"] = job.refusal.code
        if outcome is not None:
            completion, metrics = outcome.completion, outcome.completion.metrics
            fields |= {
                "outcome": completion.finish_reason,
                "prompt_tokens": completion.prompt_tokens,
                "new_tokens": len(completion.tokens),
                "target_calls": metrics.target_calls,
                "drafted": metrics.drafted,
                "tested": metrics.tested,
                "accepted": metrics.accepted,
                "draft_seconds": round(metrics.draft_seconds, 6),
                "target_seconds": round(metrics.target_seconds, 6),
                "latency_seconds": round(outcome.seconds, 6),
            }
            if self._with_text:
                fields["text"] = completion.text
        return fields


def _trace_id(exchange: Exchange) -> str | None:
    """That of the spans, where there are any; else the one it came with."""
    own: str | None = exchange.scope.get("specdec.trace_id")
    if own is not None:
        return own
    found = TRACEPARENT.fullmatch(exchange.header("traceparent"))
    return None if found is None else found[1]
