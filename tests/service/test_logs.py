"""One line of JSON for each request that ends."""

from __future__ import annotations

import io
import json
import logging
import sys

import httpx
import pytest
from service_kit import PATIENCE, process, read_events, serving, wait_for, writes

from specdec_lib.service import logs
from specdec_lib.service.breakers import Faults
from specdec_lib.service.logs import JSONLines, RequestLog

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
BODY = {"prompt": "The secret harbour", "max_new_tokens": 12, "seed": 3}


@pytest.fixture
def lines():
    """What is logged meanwhile, read as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONLines())
    logger = logging.getLogger("specdec")
    logger.addHandler(handler)
    before, level = logger.level, logging.INFO
    logger.setLevel(level)

    def read(count=None):
        if count is not None:
            wait_for(lambda: stream.getvalue().count("\n") >= count, "the lines")
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    yield read
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_line_has_the_counts_of_its_answer(engine, lines, stream, path):
    with serving(engine, [RequestLog()]) as service:
        key = "max_new_tokens" if path == "/generate" else "max_tokens"
        body = {"prompt": "The secret harbour", "seed": 3, key: 12}
        headers = {"x-request-id": "mine", "traceparent": TRACEPARENT}
        if stream:
            with service.client.stream(
                "POST", path, json={**body, "stream": True}, headers=headers
            ) as answer:
                text = answer.read().decode()
            last = [data for _, data in read_events(text) if data != "[DONE]"][-1]
            told = last.get("specdec", last)
        else:
            answer = service.post(body, path, headers=headers).json()
            told = answer.get("specdec", answer)
        (line,) = lines(1)
    assert (line["request_id"], line["trace_id"]) == ("mine", TRACE)
    assert (line["method"], line["path"], line["status"]) == ("POST", path, 200)
    assert (line["stream"], line["seed"], line["rule"]) == (stream, 3, "exact")
    assert (line["outcome"], line["degraded"]) == ("length", [])
    assert line["message"] == f"POST {path} 200"
    assert line["level"] == "info"
    for name in (
        *("prompt_tokens", "new_tokens", "target_calls"),
        *("drafted", "tested", "accepted"),
    ):
        assert line[name] == told[name], name
    assert line["new_tokens"] == 12
    assert 0 <= line["queue_seconds"] <= line["latency_seconds"] <= line["seconds"]
    whole = json.dumps(line)
    assert "secret" not in whole
    assert "harbour" not in whole


def test_text_where_it_is_asked_for(engine, lines):
    with serving(engine, [RequestLog(with_text=True)]) as service:
        answer = service.post(BODY).json()
        (line,) = lines(1)
    assert line["prompt"] == BODY["prompt"]
    assert line["text"] == answer["text"]


def test_refusals_have_a_line_and_no_text(engine, lines):
    with serving(engine, [RequestLog()], body_bytes=500) as service:
        service.post({**BODY, "temperature": -1})
        service.post({"prompt": "secret " * 100})  # before anything is read
        service.client.get("/secret?prompt=secret")
        service.client.get("/health")  # asked too often for a line
        found = lines(3)
    assert [line["status"] for line in found] == [422, 413, 404]
    assert all(len(line["request_id"]) == 32 for line in found)
    assert "prompt=" not in json.dumps(found)
    assert "harbour" not in json.dumps(found)


def test_a_failure_has_its_code_and_its_trace_goes_to_the_operator(lines):
    with serving(writes("a", fails_after=0), [RequestLog(), Faults()]) as service:
        service.post(BODY, headers={"x-request-id": "mine"})
        failure, line = lines(2)
    assert (line["outcome"], line["status"]) == ("unavailable", 503)
    assert failure["message"] == "request mine: the target failed"
    assert failure["level"] == "warning"
    assert "RuntimeError: secret of the inside" in failure["exception"]


def test_a_client_that_leaves(lines):
    slow = writes("ab", seconds=0.05)
    with serving(slow, [RequestLog()]) as service:
        body = {"prompt": "", "max_new_tokens": 1000}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(service.url + "/generate", json=body, timeout=0.2)
        (line,) = lines(1)
    assert (line["outcome"], line["status"]) == ("gone", 499)


@pytest.mark.parametrize(
    "header, trace",
    [
        (TRACEPARENT, TRACE),
        (TRACEPARENT.upper(), None),
        ("ff" + TRACEPARENT[2:], None),
        ("00-abc-def-01", None),
        ("", None),
        ("\n" + TRACEPARENT, None),
    ],
)
def test_the_trace_it_came_with(header, trace):
    exchange = logs.Exchange(
        {"headers": [(b"traceparent", header.encode())], "method": "GET", "path": "/"}
    )
    assert logs._trace_id(exchange) == trace


def test_nothing_breaks_a_line():
    text = "a\nb\r\u2028\u0085\x1b[31m 🙂 \ud800"
    record = logging.LogRecord("x", logging.ERROR, "", 0, "%s", (text,), None)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record.exc_info = sys.exc_info()
    record.fields = {"odd": object()}
    line = JSONLines().format(record)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["message"] == text
    assert "ValueError: two\nlines" in json.loads(line)["exception"]


def test_all_of_a_process_is_json():
    with process("--log-text") as (running, url):
        httpx.post(url + "/generate", json=BODY, timeout=PATIENCE)
        running.terminate()
        running.wait(PATIENCE)
        out, err = running.communicate()
    assert out == ""
    found = [json.loads(line) for line in err.splitlines()]
    assert {"uvicorn.error", "specdec.request"} <= {line["logger"] for line in found}
    (line,) = [line for line in found if line["logger"] == "specdec.request"]
    assert line["prompt"] == BODY["prompt"]
