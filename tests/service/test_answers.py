"""Answers over HTTP are those of the library with the same seed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import openai
import pytest
from service_kit import read_events, serving, writes

import specdec_lib as sd
from specdec_lib.verification.lossy import probability_threshold

REQUESTS = [
    {"prompt": "The harbour", "seed": 1},
    {"prompt": "", "seed": 2, "max_new_tokens": 30},
    {"prompt": "Once upon a time", "seed": 3, "temperature": 0, "k": 7},
    {"prompt": "The 🙂 sea", "seed": 4, "top_k": 5, "k": 0},
    {"prompt": "She said", "seed": 5, "top_p": 0.8, "temperature": 0.7, "k": 2},
    {"prompt": "The", "seed": 6, "stop": "the", "max_new_tokens": 200},
    {"prompt": "The", "seed": 7, "stop": ["\n", ". "], "max_new_tokens": 200},
    {"prompt": "The", "seed": 8, "rule": "threshold", "tau": 0.3},
    {"prompt": "The", "seed": 9, "max_new_tokens": 0},
    {"prompt": "The", "seed": 2**53, "max_new_tokens": 1},
]


def alone(engine, request):
    """The same request through the library."""
    rule = sd.verify_tokens
    if request.get("rule") == "threshold":
        rule = probability_threshold(request["tau"])
    return engine.complete(
        request["prompt"],
        max_new_tokens=request.get("max_new_tokens", 64),
        k=request.get("k"),
        sampler=sd.Sampler(
            request.get("temperature", 1.0), request.get("top_k"), request.get("top_p")
        ),
        verify=rule,
        stop=request.get("stop", ()),
        seed=request["seed"],
    )


def check(answer, done, text):
    assert text == done.text
    assert answer["new_tokens"] == len(done.tokens)
    assert answer["prompt_tokens"] == done.prompt_tokens
    assert answer["finish_reason"] == done.finish_reason
    assert answer["stop"] == done.stop
    for name in (
        *("target_calls", "drafted", "tested", "accepted"),
        *("acceptance_rate", "tokens_per_call"),
    ):
        assert answer[name] == getattr(done.metrics, name), name


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_an_answer_is_the_librarys(book, engine, request_):
    answer = book.post(request_)
    assert answer.status_code == 200
    found = answer.json()
    check(found, alone(engine, request_), found["text"])
    assert found["seed"] == request_["seed"]
    assert found["model"] == "book"
    assert found["rule"] == request_.get("rule", "exact")
    assert found["exact"] == ("rule" not in request_)
    assert found["degraded"] == []
    assert found["id"] == answer.headers["x-request-id"]
    assert 0 <= found["queue_ms"] <= found["latency_ms"] < 20_000
    assert 0 <= found["draft_ms"] + found["target_ms"] <= found["latency_ms"]


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_a_stream_is_the_same_answer(book, engine, request_):
    *pieces, (name, summary) = book.events(request_)
    assert {name for name, _ in pieces} <= {"message"}
    assert name == "summary"
    assert all(data["text"] for _, data in pieces)
    check(summary, alone(engine, request_), "".join(data["text"] for _, data in pieces))


def test_a_seed_is_chosen_and_told_where_none_is_given(book):
    first, second = (book.post({"prompt": "The"}).json() for _ in range(2))
    assert first["seed"] != second["seed"]
    again = book.post({"prompt": "The", "seed": first["seed"]}).json()
    assert again["text"] == first["text"]


def test_many_at_once_are_not_mixed_up(book, engine):
    requests = [
        {"prompt": prompt, "seed": seed, "max_new_tokens": 40, "k": seed % 5}
        for seed in range(8)
        for prompt in ("The harbour", "Once", "A long way off", "")
    ]

    def ask(request):
        if request["seed"] % 2:
            return book.post(request).json()["text"]
        *pieces, _ = book.events(request)
        return "".join(data["text"] for _, data in pieces)

    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(ask, requests))
    for request, text in zip(requests, texts, strict=True):
        assert text == alone(engine, request).text, request


def test_no_piece_ends_inside_a_character():
    text = "né 🙂 한 👩‍👩‍👧 \u2028\u0085\r\n \x00 "
    with serving(writes(text)) as service:
        whole = len(text.encode())
        raw = service.post({"prompt": "", "max_new_tokens": whole, "stream": True})
        *pieces, _ = read_events(raw.content.decode())  # strict
        assert "".join(data["text"] for _, data in pieces) == text
        assert not any("\ufffd" in data["text"] for _, data in pieces)
        # A standard reader of lines ends a line at none of what is in the text.
        assert set("\u2028\u0085\r\x00").isdisjoint(raw.content.decode())
        cut = {"prompt": "", "max_new_tokens": whole, "stop": "👩‍👧"}
        assert service.post(cut).json()["text"] == text.partition("👩‍👧")[0]


@pytest.fixture(scope="module")
def client(book):
    with openai.OpenAI(
        base_url=book.url + "/v1", api_key="none", max_retries=0
    ) as client:
        yield client


def test_openais_client_completes(client, engine):
    options = {"temperature": 0.8, "top_p": 0.9, "seed": 3, "stop": [". "]}
    answer = client.completions.create(
        model="book", prompt="The harbour", max_tokens=50, **options
    )
    done = alone(engine, {"prompt": "The harbour", "max_new_tokens": 50, **options})
    (choice,) = answer.choices
    assert choice.text == done.text
    assert choice.finish_reason == done.finish_reason == "stop"
    assert answer.object == "text_completion"
    assert answer.usage.prompt_tokens == done.prompt_tokens
    assert answer.usage.completion_tokens == len(done.tokens)
    assert answer.usage.total_tokens == done.prompt_tokens + len(done.tokens)
    assert answer.model_extra["specdec"]["acceptance_rate"] == (
        done.metrics.acceptance_rate
    )


@pytest.mark.parametrize("with_usage", [True, False])
def test_openais_client_streams(client, engine, with_usage):
    chunks = list(
        client.completions.create(
            model="book",
            prompt=["The harbour"],
            max_tokens=20,
            seed=5,
            stream=True,
            stream_options={"include_usage": with_usage},
            extra_body={"k": 2, "top_k": 40},
        )
    )
    done = alone(
        engine,
        {"prompt": "The harbour", "max_new_tokens": 20, "seed": 5, "k": 2, "top_k": 40},
    )
    if with_usage:
        *chunks, last = chunks
        assert last.usage.completion_tokens == 20
        assert last.choices == []
    assert "".join(chunk.choices[0].text for chunk in chunks) == done.text
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].model_extra["specdec"]["target_calls"] == len(done.rounds)


def test_openais_defaults(client):
    assert client.completions.create(model="book", prompt="The").usage == (
        openai.types.CompletionUsage(
            prompt_tokens=2, completion_tokens=16, total_tokens=18
        )
    )


def test_openais_client_lists_the_model(client):
    assert [model.id for model in client.models.list()] == ["book"]


def test_openais_client_reads_errors(client):
    with pytest.raises(openai.UnprocessableEntityError) as error:
        client.completions.create(model="book", prompt="", temperature=-1)
    assert error.value.param == "temperature"
    assert error.value.type == "invalid_request_error"
    with pytest.raises(openai.UnprocessableEntityError, match="n: ") as error:
        client.completions.create(model="book", prompt="", n=2)
    with pytest.raises(openai.NotFoundError, match="model must be 'book'"):
        client.completions.create(model="gpt-4", prompt="")
    with pytest.raises(openai.NotFoundError, match="no chat template"):
        client.chat.completions.create(
            model="book", messages=[{"role": "user", "content": "Hello"}]
        )


class Chats(sd.Tokenizer):
    """Its template: each message on a line; a tilde is a special token."""

    chat_template = "…"

    def encode(self, text, special=True):
        ids = super().encode(text)
        return np.where(ids == ord("~") + 2, 1, ids) if special else ids

    def chat(self, messages):
        if messages[-1]["role"] == "assistant":
            raise RuntimeError("the last word is the user's")
        lines = [f"{each['role']}: {each['content']}\n" for each in messages]
        return [0, *self.encode("".join(lines))]


def test_openais_client_chats():
    def logits(sequence):
        row = np.zeros(258)
        row[ord("yes"[len(sequence) % 3]) + 2] = 9.0
        return row

    engine = sd.Engine(sd.FunctionModel(logits, 258, bos_id=0), Chats(), k=0)
    with (
        serving(engine, name="talker") as service,
        openai.OpenAI(base_url=service.url + "/v1", api_key="none") as client,
    ):
        messages = [
            {"role": "developer", "content": "Be short."},
            {"role": "user", "content": "Hello"},
        ]
        told = [{**messages[0], "role": "system"}, messages[1]]
        done = engine.complete(told, max_new_tokens=9, seed=4)
        options = {"model": "talker", "messages": messages, "seed": 4}
        answer = client.chat.completions.create(**options, max_completion_tokens=9)
        (choice,) = answer.choices
        assert choice.message.role == "assistant"
        assert choice.message.content == done.text
        assert choice.finish_reason == "length"
        assert answer.usage.prompt_tokens == done.prompt_tokens
        chunks = list(
            client.chat.completions.create(**options, max_tokens=9, stream=True)
        )
        assert chunks[0].choices[0].delta.role == "assistant"
        parts = [chunk.choices[0].delta.content or "" for chunk in chunks]
        assert "".join(parts) == done.text
        assert chunks[-1].choices[0].finish_reason == "length"
        messages[1]["content"] = "He~llo"
        with pytest.raises(openai.UnprocessableEntityError, match="special") as error:
            client.chat.completions.create(**options)
        assert error.value.param == "messages"
        messages[1] = {"role": "assistant", "content": "I said"}
        with pytest.raises(openai.UnprocessableEntityError, match="user's") as error:
            client.chat.completions.create(**options)
        assert error.value.param == "messages"
