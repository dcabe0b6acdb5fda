"""OpenTelemetry: where the time of a request went, sent by OTLP.

    POST /generate           from its arrival to the end of its answer
        queue                waiting for its turn
        round                one for each call of the target
            draft            the guesses
            target           the call that scores them
            verify           the rule

A request with a ``traceparent`` header (W3C Trace Context) goes on with that trace.
Spans hold counts, never a prompt or an answer. While a part is called, its span is the
current one, so that what an instrumented model sends elsewhere belongs to it.

Nothing is shared with other users of OpenTelemetry in the process: the provider is this
service's own. The usual variables ``OTEL_*`` hold: ``OTEL_EXPORTER_OTLP_ENDPOINT``,
``_HEADERS``, ``_TIMEOUT``, ``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``,
``OTEL_TRACES_SAMPLER``, ``OTEL_BSP_*``, ``OTEL_SDK_DISABLED``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import (
    TraceContextTextMapPropagator,
)

from .. import __version__
from ..metrics import Round
from .calls import Call, Guard
from .hooks import Hooks
from .jobs import Job
from .watching import Exchange, Watching

T = TypeVar("T")
_current: ContextVar[Exchange | None] = ContextVar("exchange", default=None)

TIMEOUTS = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
TIMEOUT = 3.0  # seconds that the collector has for a batch, where no variable says
LAST_WORDS = 2.0  # seconds that may be spent on what is left, at the end
# What is seen of a part: its main calls. Others are rarely worth a span.
SPANS = {
    ("draft", "propose"): "draft",
    ("target", "extend"): "target",
    ("target", "extend_last"): "target",
    ("target", "extend_tree"): "target",
    ("verify", "verify"): "verify",
}


def exporter(endpoint: str | None = None) -> SpanExporter:
    """By OTLP over HTTP, to ``endpoint`` (``http://collector:4318``) or where the
    variables say. ValueError for what is no address."""
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise ValueError(f"otlp must begin with http:// or https://, got {endpoint!r}")
    timed = any(os.environ.get(name) for name in TIMEOUTS)
    return OTLPSpanExporter(
        endpoint=None if endpoint is None else endpoint.rstrip("/") + "/v1/traces",
        timeout=None if timed else TIMEOUT,
    )


class Tracing(Hooks):
    """Makes spans, and hands them to ``exporter`` in the background."""

    def __init__(self, exporter: SpanExporter) -> None:
        attributes = {"service.version": __version__}
        named = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in named:
            attributes["service.name"] = "specdec"
        self._provider = TracerProvider(
            resource=Resource.create(attributes), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("specdec_lib", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def startup(self, app: Any) -> None:
        app.add_middleware(Watching, current=_current, begin=self._begin, end=self._end)

    def shutdown(self) -> None:
        """Sends what is left, and gives up where the collector does not answer."""
        last = threading.Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        last.join(LAST_WORDS)

    def _begin(self, exchange: Exchange) -> None:
        if exchange.method != "POST":
            return  # /metrics and /health are asked again and again
        names = ("traceparent", "tracestate")
        carrier = {name: exchange.header(name) for name in names}
        span = self._tracer.start_span(
            f"POST {exchange.path}",
            # Of the headers alone: nothing that is current here.
            context=self._propagator.extract(carrier, context=Context()),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": "POST", "url.path": exchange.path},
        )
        exchange.scope["specdec.span"] = span
        trace_id = span.get_span_context().trace_id
        exchange.scope["specdec.trace_id"] = trace.format_trace_id(trace_id)

    def _end(self, exchange: Exchange) -> None:
        span: Span | None = exchange.scope.get("specdec.span")
        if span is None:
            return
        job, status = exchange.job, exchange.status or 0
        span.set_attribute("specdec.request_id", exchange.request_id)
        span.set_attribute("http.response.status_code", status)
        if status in (404, 405):
            span.update_name("POST")  # whatever a client asked for is no name
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        if job is not None:
            span.set_attribute("specdec.degraded", list(job.degraded))
            if job.refusal is not None:
                span.set_attribute("error.type", job.refusal.code)
                span.set_status(StatusCode.ERROR)
            if job.outcome is not None:
                self._tell(span, job)
        span.end()

    def _tell(self, span: Span, job: Job) -> None:
        assert job.outcome is not None
        completion = job.outcome.completion
        metrics = completion.metrics
        span.set_attributes(
            {
                "specdec.prompt_tokens": completion.prompt_tokens,
                "specdec.new_tokens": len(completion.tokens),
                "specdec.target_calls": metrics.target_calls,
                "specdec.drafted": metrics.drafted,
                "specdec.tested": metrics.tested,
                "specdec.accepted": metrics.accepted,
                "specdec.finish_reason": str(completion.finish_reason),
                "specdec.rule": job.task.rule,
            }
        )

    def accepted(self, job: Job) -> None:
        exchange = _current.get()
        if exchange is None or "specdec.span" not in exchange.scope:
            return
        exchange.job = job
        context = trace.set_span_in_context(exchange.scope["specdec.span"], Context())
        queue = self._tracer.start_span("queue", context)
        job.notes["spans"] = _Spans(self._tracer, context, queue)

    def started(self, job: Job) -> None:
        spans = job.notes.get("spans")
        if spans is not None:
            spans.queue.end()

    def guard(self, job: Job) -> Guard | None:
        spans: _Spans | None = job.notes.get("spans")
        return None if spans is None else spans.guard

    def round(self, job: Job, result: Round) -> None:
        spans = job.notes.get("spans")
        if spans is not None:
            spans.end_round(result, job.degraded)

    def finished(self, job: Job) -> None:
        spans = job.notes.get("spans")
        if spans is not None:
            spans.end_all(job)


class _Spans:
    """Those of one request."""

    def __init__(self, tracer: trace.Tracer, context: Context, queue: Span) -> None:
        self._tracer, self._context = tracer, context
        self.queue = queue
        self._round: Span | None = None
        self._inside = context

    def guard(self, call: Call, do: Callable[[], T]) -> T:
        if self._round is None:
            self._round = self._tracer.start_span("round", self._context)
            self._inside = trace.set_span_in_context(self._round, self._context)
        name = SPANS.get((call.part, call.method))
        if name is None:
            with trace.use_span(self._round, set_status_on_exception=False):
                return do()
        if name == "draft":
            self._round.set_attribute("specdec.k", call.tokens)
        with self._tracer.start_as_current_span(
            name, self._inside, attributes={"specdec.tokens": call.tokens}
        ):
            return do()

    def end_round(self, result: Round, degraded: list[str]) -> None:
        span, self._round = self._round, None
        if span is None:
            return
        span.set_attributes(
            {
                "specdec.drafted": len(result.drafted),
                "specdec.tested": result.tested,
                "specdec.accepted": result.accepted,
                "specdec.emitted": len(result.emitted),
                "specdec.degraded": list(degraded),
            }
        )
        span.end()

    def end_all(self, job: Job) -> None:
        if job.started is None:
            self.queue.end()
        span, self._round = self._round, None
        if span is not None:  # it was broken off
            if job.refusal is not None:
                span.set_status(StatusCode.ERROR)
            span.end()
