"""Spans as they arrive at a collector: a real HTTP server that reads OTLP."""

from __future__ import annotations

import gzip
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from service_kit import PATIENCE, process, serving, wait_for, writes

import specdec_lib as sd
from specdec_lib.cli import main
from specdec_lib.service import tracing
from specdec_lib.service.breakers import Faults
from specdec_lib.service.hooks import Hooks
from specdec_lib.service.tracing import Tracing, exporter
from specdec_lib.service.watching import spans_wanted

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}
BODY = {"prompt": "The secret harbour", "max_new_tokens": 24, "seed": 3, "k": 3}
SERVER = 2  # SpanKind of OTLP
ERROR = 2  # its StatusCode


class Collector:
    """Takes what is sent to /v1/traces."""

    def __init__(self):
        requests = self.requests = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                assert self.headers["content-type"] == "application/x-protobuf"
                requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(ExportTraceServiceResponse().SerializeToString())

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    @property
    def spans(self):
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def named(self, name):
        return [span for span in self.spans if span.name == name]


def attributes(span):
    def plain(value):
        kind = value.WhichOneof("value")
        if kind == "array_value":
            return [plain(each) for each in value.array_value.values]
        return getattr(value, kind)

    return {each.key: plain(each.value) for each in span.attributes}


def under(spans, parent):
    return [span for span in spans if span.parent_span_id == parent.span_id]


@pytest.fixture(scope="module")
def traced(engine):
    """What a collector has after one request with a trace, one without, one refused;
    and the answer to the first."""
    with Collector() as collector:
        with serving(engine, [Tracing(exporter(collector.url))]) as service:
            answer = service.post(BODY, headers={**HEADERS, "x-request-id": "mine"})
            service.events(BODY)
            service.post({"prompt": 1}, headers=HEADERS)
            service.client.get("/health")
            service.client.get("/ready")
        assert answer.status_code == 200
        yield collector, answer.json()


@pytest.fixture(scope="module")
def request_span(traced):
    collector, _ = traced
    (span,) = [
        span
        for span in collector.named("POST /generate")
        if attributes(span).get("specdec.request_id") == "mine"
    ]
    return span


def test_a_request_goes_on_with_its_trace(traced, request_span):
    assert request_span.trace_id.hex() == TRACE
    assert request_span.parent_span_id.hex() == PARENT
    assert request_span.kind == SERVER
    assert request_span.trace_state == "a=b"
    collector, _ = traced
    assert {span.trace_id for span in collector.spans if span.name == "round"} > {
        request_span.trace_id
    }
    others = [s for s in collector.spans if s.trace_id != request_span.trace_id]
    assert len({span.trace_id for span in others}) == 1
    assert "GET /health" not in {span.name for span in collector.spans}
    (root,) = [span for span in others if not span.parent_span_id]
    assert root.name == "POST /generate"


def test_spans_are_nested_as_the_work_was(traced, request_span):
    collector, answer = traced
    children = under(collector.spans, request_span)
    assert Counter(span.name for span in children) == {
        "queue": 1,
        "round": answer["target_calls"],
    }
    rounds = [span for span in children if span.name == "round"]
    drafted = tested = accepted = emitted = 0
    for span in rounds:
        told = attributes(span)
        parts = under(collector.spans, span)
        names = [
            part.name for part in sorted(parts, key=lambda s: s.start_time_unix_nano)
        ]
        guessed = told["specdec.drafted"] > 0
        assert names == (["draft"] if guessed else []) + ["target", "verify"]
        for part in parts:
            assert span.start_time_unix_nano <= part.start_time_unix_nano
            assert part.end_time_unix_nano <= span.end_time_unix_nano
        if guessed:
            assert 1 <= told["specdec.k"] <= BODY["k"]
        drafted += told["specdec.drafted"]
        tested += told["specdec.tested"]
        accepted += told["specdec.accepted"]
        emitted += told["specdec.emitted"]
    assert (drafted, tested, accepted, emitted) == (
        answer["drafted"],
        answer["tested"],
        answer["accepted"],
        answer["new_tokens"],
    )
    (queue,) = [span for span in children if span.name == "queue"]
    waited = (queue.end_time_unix_nano - queue.start_time_unix_nano) / 1e6
    assert waited == pytest.approx(answer["queue_ms"], abs=20)


def test_a_request_tells_its_counts(traced, request_span):
    _, answer = traced
    told = attributes(request_span)
    for name in ("prompt_tokens", "new_tokens", "target_calls", "accepted"):
        assert told[f"specdec.{name}"] == answer[name]
    assert told["specdec.finish_reason"] == answer["finish_reason"]
    assert told["http.response.status_code"] == 200
    assert told["url.path"] == "/generate"
    assert request_span.status.code != ERROR


def test_who_is_refused_has_a_span_too(traced):
    collector, _ = traced
    statuses = Counter(
        attributes(span)["http.response.status_code"]
        for span in collector.named("POST /generate")
    )
    assert statuses == {200: 2, 422: 1}


def test_no_text_is_sent(traced):
    collector, answer = traced
    sent = b"".join(each.SerializeToString() for each in collector.requests)
    assert b"secret" not in sent
    assert b"harbour" not in sent
    assert answer["text"][:12].encode() not in sent


def test_who_sends_them(traced):
    collector, _ = traced
    (resource,) = {
        str(request.resource_spans[0].resource): request.resource_spans[0].resource
        for request in collector.requests
    }.values()
    told = {each.key: each.value.string_value for each in resource.attributes}
    assert told["service.name"] == "specdec"
    assert told["service.version"]


@pytest.mark.parametrize("part", ["draft", "target"])
def test_a_failure_is_on_its_span(engine, part):
    def fail(sequence):
        raise RuntimeError("no")

    model = sd.FunctionModel(fail, engine.target.vocab_size, bos_id=0)
    broken = replace(engine, **{part: model})
    with Collector() as collector:
        hooks = [Tracing(exporter(collector.url)), Faults()]
        with serving(broken, hooks) as service:
            service.post(BODY)
        failed = [span for span in collector.spans if span.status.code == ERROR]
        names = {"draft"} if part == "draft" else {"target", "round", "POST /generate"}
        assert {span.name for span in failed} == names
        (whole,) = collector.named("POST /generate")
        if part == "draft":
            assert attributes(whole)["specdec.degraded"] == ["draft"]
        else:
            assert attributes(whole)["error.type"] == "unavailable"
            assert attributes(whole)["http.response.status_code"] == 503


def test_a_client_that_leaves_and_one_that_waits_in_vain(engine):
    with Collector() as collector:
        hooks = [Tracing(exporter(collector.url))]
        slow = writes("ab", seconds=0.05)
        with serving(slow, hooks, workers=1, deadline=0.6) as service:
            long = {"prompt": "", "max_new_tokens": 1000}
            threads = [threading.Thread(target=service.post, args=[long])]
            threads[0].start()
            wait_for(lambda: service.workers.running == 1, "the first")
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(service.url + "/generate", json=long, timeout=0.2)
            assert service.post(long).status_code in (200, 504)
            threads[0].join()
        whole = collector.named("POST /generate")
        assert len(whole) == 3
        assert len(collector.named("queue")) == 3  # all are ended
        statuses = [attributes(s)["http.response.status_code"] for s in whole]
        assert 499 in statuses


def test_spans_of_calls_inside_a_part_belong_to_it(engine):
    """What an instrumented model does is below the span of its call."""
    with Collector() as collector:
        traces = Tracing(exporter(collector.url))
        tracer = traces._provider.get_tracer("model")

        class Inner(Hooks):
            def guard(self, job):
                def guard(call, do):
                    with tracer.start_as_current_span(f"inside {call.part}"):
                        return do()

                return guard

        with serving(engine, [traces, Inner()]) as service:
            service.post(BODY)
        ids = {span.span_id: span.name for span in collector.spans}
        for inside in collector.named("inside verify"):
            assert ids[inside.parent_span_id] == "verify"


def test_a_process_sends_them(tmp_path):
    with Collector() as collector, process("--otlp", collector.url) as (running, url):
        httpx.post(url + "/generate", json=BODY, timeout=PATIENCE, headers=HEADERS)
        running.terminate()
        running.wait(PATIENCE)
        assert TRACE in {span.trace_id.hex() for span in collector.spans}
        assert TRACE in running.communicate()[1]  # in the log as well


@pytest.mark.parametrize(
    "endpoint, environment, sent",
    [
        (None, {}, False),
        ("http://a", {}, True),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, True),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a/x"}, True),
        ("http://a", {"OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_off_unless_wanted(endpoint, environment, sent):
    assert spans_wanted(endpoint, environment) is sent


def test_what_is_no_address(capsys):
    assert main(["serve", "--otlp", "localhost:4318"]) == 2
    assert "otlp must begin with http:// or https://" in capsys.readouterr().err


def test_a_service_without_spans_does_not_even_import_them():
    code = (
        "import sys, specdec_lib.service.command, specdec_lib.service.process, "
        "specdec_lib.service.breakers, specdec_lib.service.metrics, "
        "specdec_lib.service.logs; "
        "print(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_the_usual_variables_hold(engine, monkeypatch):
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
        with serving(engine, [Tracing(exporter())]) as service:
            service.post(BODY)
            service.post(BODY, headers=HEADERS)
        resource = collector.requests[0].resource_spans[0].resource
        told = {each.key: each.value.string_value for each in resource.attributes}
        assert told["service.name"] == "mine"
        # Only the one whose caller wants it to be seen.
        assert {span.trace_id.hex() for span in collector.spans} == {TRACE}


@pytest.mark.parametrize("kind", ["refuses", "hangs"])
def test_a_collector_that_is_down_harms_nobody(engine, kind, monkeypatch):
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setattr(tracing, "LAST_WORDS", 0.5)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        if kind == "hangs":
            listening.listen()
        hooks = [Tracing(exporter(f"http://127.0.0.1:{port}"))]
        alone = engine.complete(
            BODY["prompt"], max_new_tokens=BODY["max_new_tokens"], seed=3, k=3
        ).text
        with serving(engine, hooks) as service:
            for _ in range(5):
                answer = service.post(BODY)
                assert answer.json()["text"] == alone
            leaving = time.monotonic()
        assert time.monotonic() - leaving < 4
