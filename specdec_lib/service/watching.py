"""Whoever wants to know of every request, also of those that never became a job."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from .jobs import Job

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
LONGEST_PATH = 200  # characters of one that are written down
NEVER_SENT = 499  # the client went away before there was an answer


@dataclass
class Exchange:
    """A request, and what became of it."""

    scope: Any  # of ASGI
    job: Job | None = None
    status: int | None = None
    seconds: float = 0.0

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        """Without the query, and no longer than ours may be."""
        return str(self.scope["path"])[:LONGEST_PATH]

    @property
    def request_id(self) -> str:
        return str(self.scope.get("state", {}).get("request_id", ""))

    def header(self, name: str) -> str:
        wanted = name.encode()
        return next(
            (value.decode("latin-1") for key, value in self.scope["headers"]
             if key == wanted), "",
        )  # fmt: skip


class Watching:
    """ASGI middleware that tells of the beginning and the end of every request.

    ``current`` holds the exchange while the request is served.
    """

    def __init__(
        self,
        app: Any,
        current: ContextVar[Exchange | None],
        begin: Callable[[Exchange], None],
        end: Callable[[Exchange], None],
    ) -> None:
        self._app, self._current = app, current
        self._begin, self._end = begin, end

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope)
        began = perf_counter()

        async def seen(message: Any) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
            await send(message)

        self._begin(exchange)
        token = self._current.set(exchange)
        try:
            await self._app(scope, receive, seen)
        finally:
            self._current.reset(token)
            if exchange.status is None:
                exchange.status = NEVER_SENT
            exchange.seconds = perf_counter() - began
            self._end(exchange)


def spans_wanted(
    endpoint: str | None, environment: Mapping[str, str] = os.environ
) -> bool:
    """Whether spans are to be sent: an endpoint is named, by the operator or in the
    environment, and OpenTelemetry is not disabled."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return bool(endpoint or any(environment.get(name) for name in ENDPOINTS))
