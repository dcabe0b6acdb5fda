"""Figures of the service for Prometheus, under /metrics."""

from __future__ import annotations

from typing import Any

from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter
from prometheus_client.exposition import generate_latest

from ..metrics import Round
from .errors import Refusal
from .hooks import Hooks
from .jobs import Job


class Prometheus(Hooks):
    """Counts what happens, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "specdec_requests", "requests by their end", ["end"], registry=registry
        )
        self.tokens = Counter("specdec_tokens", "tokens emitted", registry=registry)
        self.rounds = Counter("specdec_rounds", "calls of target", registry=registry)

    def startup(self, app: Any) -> None:
        summary = "Figures for Prometheus"
        app.add_api_route("/metrics", self._answer, methods=["GET"], summary=summary)

    def _answer(self) -> Response:
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)

    def refused(self, refusal: Refusal, path: str) -> None:
        self.requests.labels(refusal.code).inc()

    def round(self, job: Job, result: Round) -> None:
        self.rounds.inc()
        self.tokens.inc(len(result.emitted))

    def finished(self, job: Job) -> None:
        if job.outcome is not None:
            self.requests.labels(job.outcome.completion.finish_reason).inc()
        elif job.refusal is None:
            self.requests.labels("gone").inc()
