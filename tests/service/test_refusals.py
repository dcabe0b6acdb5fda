"""What is refused, with which status, and that nothing of the inside is told."""

from __future__ import annotations

import logging
import socket
import time

import pytest
from service_kit import serving, writes

HUGE = "9" * 5000

# What is sent, and the field that is to be named.
WRONG = [
    ("{}", "prompt"),
    ('{"prompt": 3}', "prompt"),
    ('{"prompt": null}', "prompt"),
    ('{"prompt": ["a"]}', "prompt"),
    (r'{"prompt": "\ud800"}', "prompt"),
    (r'{"prompt": "a", "stop": ["\ud800"]}', "stop"),
    (r'{"prompt": "a", "\ud800": 1}', "body"),
    ('{"prompt": "a", "max_new_tokens": -1}', "max_new_tokens"),
    ('{"prompt": "a", "max_new_tokens": 1025}', "max_new_tokens"),
    ('{"prompt": "a", "max_new_tokens": 1.5}', "max_new_tokens"),
    ('{"prompt": "a", "max_new_tokens": "5"}', "max_new_tokens"),
    ('{"prompt": "a", "max_new_tokens": true}', "max_new_tokens"),
    ('{"prompt": "a", "max_new_tokens": 1e400}', "max_new_tokens"),
    ('{"prompt": "a", "max_new_tokens": 99999999999999999999999}', "max_new_tokens"),
    ('{"prompt": "a", "k": 17}', "k"),
    ('{"prompt": "a", "k": -1}', "k"),
    ('{"prompt": "a", "temperature": NaN}', "temperature"),
    ('{"prompt": "a", "temperature": Infinity}', "temperature"),
    ('{"prompt": "a", "temperature": -Infinity}', "temperature"),
    ('{"prompt": "a", "temperature": 1e999}', "temperature"),
    ('{"prompt": "a", "temperature": -0.1}', "temperature"),
    ('{"prompt": "a", "temperature": "1"}', "temperature"),
    ('{"prompt": "a", "temperature": ' + "9" * 400 + "}", "temperature"),
    ('{"prompt": "a", "top_k": 0}', "top_k"),
    ('{"prompt": "a", "top_p": 0}', "top_p"),
    ('{"prompt": "a", "top_p": 1.0001}', "top_p"),
    ('{"prompt": "a", "top_p": NaN}', "top_p"),
    ('{"prompt": "a", "seed": -1}', "seed"),
    ('{"prompt": "a", "seed": 9223372036854775808}', "seed"),
    ('{"prompt": "a", "seed": 0.5}', "seed"),
    ('{"prompt": "a", "stop": ""}', "stop"),
    ('{"prompt": "a", "stop": ["a", ""]}', "stop"),
    ('{"prompt": "a", "stop": 3}', "stop"),
    ('{"prompt": "a", "stop": [["a"]]}', "stop"),
    ('{"prompt": "a", "stop": ["1","2","3","4","5","6","7","8","9"]}', "stop"),
    ('{"prompt": "a", "stop": "' + "x" * 129 + '"}', "stop"),
    ('{"prompt": "a", "rule": "fast"}', "rule"),
    ('{"prompt": "a", "rule": "threshold"}', "tau"),
    ('{"prompt": "a", "tau": 0.5}', "tau"),
    ('{"prompt": "a", "rule": "threshold", "tau": 1.5}', "tau"),
    ('{"prompt": "a", "rule": "threshold", "tau": NaN}', "tau"),
    ('{"prompt": "a", "stream": 1}', "stream"),
    ('{"prompt": "a", "max_tokens": 3}', "max_tokens"),
    ('{"prompt": "a", "seed": ' + HUGE + "}", "body"),
    ("[" * 100_000, "body"),
    ('{"prompt": ' + '{"a":' * 100_000, "body"),
    ('{"prompt": "a"', "body"),
    ("{" + ", ".join(f'"{i}": 1' for i in range(60_000)) + "}", "body"),
    ('{"prompt": "a", "' + "x" * 900_000 + '": 1}', "x" * 64 + "…"),
    ("[]", "body"),
    ("3", "body"),
    ("", "body"),
]


def refused(answer, status, param):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code", "request_id"}
    assert error["param"] == param
    assert error["request_id"] == answer.headers["x-request-id"]
    for secret in ("Traceback", "File ", "specdec_lib", "pydantic", "line "):
        assert secret not in answer.text
    assert len(answer.text) < 1000
    return error


@pytest.mark.parametrize("content, field", WRONG, ids=lambda v: str(v)[:60])
def test_wrong_input_is_a_422_that_names_the_field(book, content, field):
    headers = {"content-type": "application/json"}
    answer = book.client.post("/generate", content=content, headers=headers)
    error = refused(answer, 422, field)
    assert error["message"].startswith(field)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
def test_only_json_is_read(book, kind):
    answer = book.client.post(
        "/generate", content='{"prompt": "a"}', headers={"content-type": kind}
    )
    refused(answer, 422, "body")


def test_bytes_that_are_no_text(book):
    answer = book.client.post(
        "/generate",
        content=b'{"prompt": "\xff\xfe"}',
        headers={"content-type": "application/json"},
    )
    refused(answer, 422, "body")


def test_every_wrong_field_is_named(book):
    answer = book.post({"prompt": 1, "temperature": -1, "top_k": "a"})
    message = answer.json()["error"]["message"]
    for name in ("prompt: ", "temperature: ", "top_k: "):
        assert name in message


@pytest.mark.parametrize(
    "body, field",
    [
        ({"model": "book"}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": "a", "n": 2}, "n"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "logprobs": 1}, "logprobs"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "presence_penalty": 0.5}, "presence_penalty"),
        ({"prompt": "a", "max_tokens": 1025}, "max_tokens"),
        ({"prompt": "a", "stream_options": {"x": 1}}, "stream_options"),
        ({"prompt": "a", "logit_bias": {"1": 1}}, "logit_bias"),
    ],
)
def test_what_openai_has_and_this_has_not_is_refused(book, body, field):
    refused(book.post(body, "/v1/completions"), 422, field)


def test_a_null_is_a_field_that_is_not_there(book):
    given = {"prompt": "a", "seed": 1}
    for path, length, text in (
        ("/generate", "max_new_tokens", "text"),
        ("/v1/completions", "max_tokens", "choices"),
    ):
        nulls = dict.fromkeys((length, "temperature", "stream", "rule"))
        found = book.post({**given, **nulls}, path)
        assert found.status_code == 200
        assert found.json()[text] == book.post(given, path).json()[text]


@pytest.mark.parametrize(
    "path, name",
    [
        ("/generate", "stop"),
        ("/v1/completions", "prompt"),
        ("/v1/chat/completions", "messages"),
    ],
)
def test_a_long_list_of_wrong_things_is_refused_at_the_first(book, path, name):
    """A complaint of each would take seconds, in which no one else is answered."""
    content = f'{{"prompt": "a", "{name}": [{"1," * 400_000}1]}}'
    headers = {"content-type": "application/json"}
    began = time.process_time()
    refused(book.client.post(path, content=content, headers=headers), 422, name)
    assert time.process_time() - began < 1  # the service runs in this process


def test_other_addresses_and_methods(book):
    refused(book.client.get("/generat"), 404, None)
    refused(book.client.get("/generate/"), 404, None)
    answer = book.client.get("/generate")
    refused(answer, 405, None)
    assert answer.headers["allow"] == "POST"
    refused(book.client.get("/docs"), 404, None)
    refused(book.client.post("/health"), 405, None)


def test_a_prompt_that_is_too_long():
    with serving(writes("a"), prompt_characters=50, prompt_tokens=20) as service:
        refused(service.post({"prompt": "a" * 51}), 422, "prompt")
        error = refused(service.post({"prompt": "a" * 20}), 422, "prompt")
        assert error["message"] == "prompt must have at most 20 tokens, got 21"
        assert service.post({"prompt": "a" * 19, "max_new_tokens": 1}).json()["text"]


def test_a_prompt_that_does_not_fit_the_window():
    engine = writes("a")
    object.__setattr__(engine.target, "context_window", 8)
    with serving(engine) as service:
        error = refused(service.post({"prompt": "a" * 30}), 422, "prompt")
        assert "context window of 8" in error["message"]
        done = service.post({"prompt": "abc"}).json()
        assert (done["new_tokens"], done["finish_reason"]) == (4, "context")
        openai = service.post({"prompt": "abc"}, "/v1/completions").json()
        assert openai["choices"][0]["finish_reason"] == "length"
        assert openai["specdec"]["finish_reason"] == "context"


def test_a_body_that_is_too_large():
    with serving(writes("a"), body_bytes=1000) as service:
        fits = {"prompt": "a" * 900, "max_new_tokens": 1}
        assert service.post(fits).status_code == 200
        refused(service.post({"prompt": "a" * 1000}), 413, "body")
        # No length is told beforehand: it is counted as it comes.
        chunks = iter([b'{"prompt": "'] + [b"a" * 100] * 20 + [b'"}'])
        headers = {"content-type": "application/json"}
        answer = service.client.post("/generate", content=chunks, headers=headers)
        refused(answer, 413, "body")


def test_a_body_that_does_not_come():
    with serving(writes("a"), body_seconds=0.2) as service:
        with socket.create_connection(("127.0.0.1", service.port), 5) as slow:
            slow.sendall(
                b"POST /generate HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n"
                b"Content-Type: application/json\r\n\r\n{"
            )
            answer = ""
            while "}}" not in answer:  # the body may come after the headers
                answer += slow.recv(10_000).decode()
        assert answer.startswith("HTTP/1.1 408")
        assert "connection: close" in answer.lower()
        assert "the body did not arrive in time" in answer
        assert service.post({"prompt": "", "max_new_tokens": 1}).status_code == 200


class Panic(BaseException):
    """As a library raises that is not Python inside."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", [RuntimeError, Panic])
def test_a_fault_inside_is_a_500_without_a_trace(stream, fault, caplog):
    engine = writes("a", fails_after=0, fault=fault)
    with serving(engine, workers=1) as service:
        body = {"prompt": "a", "stream": stream}
        with caplog.at_level(logging.ERROR, "specdec.service"):
            answer = service.post(body, headers={"x-request-id": "mine-1"})
        error = refused(answer, 500, None)
        assert error["request_id"] == "mine-1"
        assert "secret" not in answer.text
        # The operator finds it by the id.
        (record,) = caplog.records
        assert "mine-1" in record.getMessage()
        assert "secret of the inside" in str(record.exc_info)
        # And the worker goes on.
        assert service.post(body).status_code == 500


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
def test_a_fault_after_some_text_ends_the_stream_with_an_error(path, caplog):
    with serving(writes("abc", fails_after=3)) as service:
        events = service.events({"prompt": ""}, path)
        assert "secret" not in str(events)
        if path == "/generate":
            *pieces, (name, data) = events
            assert name == "error"
        else:
            *pieces, (_, data), (_, done) = events
            assert done == "[DONE]"
        assert len(pieces) == 3
        assert data["error"]["code"] == "internal"
        assert service.client.get("/health").status_code == 200
    assert caplog.records


def test_request_ids(book):
    given = {"x-request-id": "abc-1.2_3"}
    assert book.client.get("/health", headers=given).headers["x-request-id"] == (
        "abc-1.2_3"
    )
    for bad in ("a b", "", "x" * 65, "<script>"):
        answer = book.client.get("/health", headers={"x-request-id": bad})
        assert answer.headers["x-request-id"] != bad
        assert len(answer.headers["x-request-id"]) == 32


def test_a_description_for_machines(book):
    paths = book.client.get("/openapi.json").json()["paths"]
    assert {"/generate", "/v1/completions", "/v1/chat/completions"} <= set(paths)
