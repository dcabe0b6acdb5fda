"""Figures of the service for Prometheus, under /metrics.

Counters add up what the answers say of themselves, so that for any time between two
readings

    rate(specdec_accepted_total) / rate(specdec_tested_total)   is the acceptance rate,
    rate(specdec_tokens_total) / rate(specdec_rounds_total)     are tokens per call.

Times are in seconds. Those of draft and target are the rounds' own; a round begins with
its first call and ends before its text is sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

from fastapi.responses import Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
)
from prometheus_client.exposition import generate_latest

from ..metrics import Round
from .breakers import STATES, Faults
from .calls import Call, Guard
from .errors import Refusal
from .hooks import Hooks
from .jobs import Job

T = TypeVar("T")

# Of one call or round: from a tenth of a millisecond, as with n-grams, to seconds.
CALLS = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
REQUESTS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
SHARES = tuple(i / 10 for i in range(1, 11))


@dataclass
class _Times:
    """Of the round that is going on."""

    begun: float | None = None
    verify: float = 0.0


class Prometheus(Hooks):
    """Counts what happens, in a registry of its own; with ``faults``, the breakers
    too."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"specdec_{name}", what, labels, registry=registry)

        def histogram(name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(
                f"specdec_{name}", what, buckets=buckets, registry=registry
            )

        self.requests = counter("requests", "requests by their end", "end")
        self.prompt_tokens = counter("prompt_tokens", "tokens of prompts")
        self.tokens = counter("tokens", "tokens emitted")
        self.rounds = counter("rounds", "calls of the target, one a round")
        self.drafted = counter("drafted", "guesses")
        self.tested = counter("tested", "guesses to the first refusal of a round")
        self.accepted_ = counter("accepted", "guesses that were kept")
        self.degraded = counter(
            "degraded_rounds", "rounds of answers without a part", "missing"
        )
        self.failures = counter("failures", "calls that failed", "part", "kind")
        self.acceptance = histogram(
            "acceptance", "acceptance rate of a request", SHARES
        )
        self.request_seconds = histogram(
            "request_seconds", "from a request to its last token", REQUESTS
        )
        self.first_text_seconds = histogram(
            "first_text_seconds", "from a request to its first text", REQUESTS
        )
        self.queue_seconds = histogram(
            "queue_seconds", "from a request to its turn", REQUESTS
        )
        self.round_seconds = histogram("round_seconds", "of a round", CALLS)
        self.draft_seconds = histogram("draft_seconds", "the draft in a round", CALLS)
        self.target_seconds = histogram(
            "target_seconds", "the target in a round", CALLS
        )
        self.verify_seconds = histogram("verify_seconds", "the rule in a round", CALLS)
        self._lock = threading.Lock()
        if faults is not None:
            self._watch(faults)

    def _watch(self, faults: Faults) -> None:
        def failed(part: str, kind: str) -> None:
            self.failures.labels(part, kind).inc()

        def shows(part: Any, state: str) -> Callable[[], float]:
            return lambda: float(part.state == state)

        faults.listeners.append(failed)
        states = Gauge(
            "specdec_breaker",
            "1 for the state in which the breaker is",
            ("part", "state"),
            registry=self.registry,
        )
        for breaker in (faults.draft, faults.target):
            for state in STATES:
                states.labels(breaker.part, state).set_function(shows(breaker, state))

    def startup(self, app: Any) -> None:
        workers = app.state.workers
        for name, what, read in (
            ("queue_length", "requests that wait", lambda: workers.waiting),
            ("in_flight", "requests that are decoded", lambda: workers.running),
        ):
            gauge = Gauge(f"specdec_{name}", what, registry=self.registry)
            gauge.set_function(read)
        summary = "Figures for Prometheus"
        app.add_api_route("/metrics", self._answer, methods=["GET"], summary=summary)

    def _answer(self) -> Response:
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)

    def refused(self, refusal: Refusal, path: str) -> None:
        self._count_refusal(refusal)

    def started(self, job: Job) -> None:
        self.queue_seconds.observe(job.queue_seconds)

    def guard(self, job: Job) -> Guard:
        times = job.notes["times"] = _Times()

        def guard(call: Call, do: Callable[[], T]) -> T:
            now = perf_counter()
            if times.begun is None:
                times.begun = now
            if call.part != "verify":
                return do()
            try:
                return do()
            finally:
                times.verify += perf_counter() - now

        return guard

    def round(self, job: Job, result: Round) -> None:
        self.rounds.inc()
        self.tokens.inc(len(result.emitted))
        self.drafted.inc(len(result.drafted))
        self.tested.inc(result.tested)
        self.accepted_.inc(result.accepted)
        for missing in job.degraded:
            self.degraded.labels(missing).inc()
        times = job.notes["times"]
        self.draft_seconds.observe(result.draft_seconds)
        self.target_seconds.observe(result.target_seconds)
        self.verify_seconds.observe(times.verify)
        self.round_seconds.observe(perf_counter() - times.begun)
        times.begun, times.verify = None, 0.0

    def finished(self, job: Job) -> None:
        if job.outcome is None:
            if job.refusal is not None:
                self._count_refusal(job.refusal)
            else:
                self.requests.labels("gone").inc()
            return
        completion, metrics = job.outcome.completion, job.outcome.completion.metrics
        self.requests.labels(completion.finish_reason).inc()
        self.prompt_tokens.inc(completion.prompt_tokens)
        self.request_seconds.observe(job.outcome.seconds)
        if job.outcome.first_text_seconds is not None:
            self.first_text_seconds.observe(job.outcome.first_text_seconds)
        if metrics.acceptance_rate is not None:
            self.acceptance.observe(metrics.acceptance_rate)

    def _count_refusal(self, refusal: Refusal) -> None:
        """Once, though a job's refusal is told of at its end and at its answer."""
        with self._lock:
            if getattr(refusal, "counted", False):
                return
            refusal.counted = True  # type: ignore[attr-defined]
        self.requests.labels(refusal.code).inc()
