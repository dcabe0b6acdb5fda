"""``specdec serve`` as a process: started, used, stopped by a signal."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from service_kit import PATIENCE, process, read_events

from specdec_lib.cli import _parser, main
from specdec_lib.service.command import FLAGS, settings_of
from specdec_lib.service.process import listen
from specdec_lib.service.settings import Settings

LONG = {"prompt": "The harbour", "seed": 1, "max_new_tokens": 3000, "k": 1}


@pytest.fixture(scope="module")
def saved(pair, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "pair.npz"
    pair.save(path)
    return str(path)


def test_a_process_answers_and_sigterm_lets_it_finish(engine, saved):
    flags = ("--max-new-tokens", "5000", "--workers-in-flight", "1")
    with process("--model", saved, *flags) as (running, url):
        post = dict(json=LONG, timeout=PATIENCE)
        with ThreadPoolExecutor(2) as pool:
            whole = pool.submit(httpx.post, url + "/generate", **post)
            wait_until_running(url)
            running.send_signal(signal.SIGTERM)
            answer = whole.result()
        assert answer.status_code == 200
        found = answer.json()
        assert found["finish_reason"] == "length"
        done = engine.complete("The harbour", seed=1, max_new_tokens=3000, k=1)
        assert found["text"] == done.text
        assert running.wait(PATIENCE) in (0, -signal.SIGTERM)
        with pytest.raises(httpx.TransportError):
            httpx.get(url + "/health", timeout=1)
        out, err = running.communicate()
    assert out == ""
    assert "Traceback" not in err
    assert "The harbour" not in err  # no prompt in the log


def test_after_the_grace_sigterm_ends_a_stream_clearly(saved):
    flags = ("--max-new-tokens", "1000000", "--grace", "0.2", "--deadline", "30")
    with process("--model", saved, *flags) as (running, url):
        body = {**LONG, "max_new_tokens": 1000000, "stream": True}
        with httpx.stream(
            "POST", url + "/generate", json=body, timeout=PATIENCE
        ) as answer:
            parts = answer.iter_text()
            text = next(parts)
            running.send_signal(signal.SIGTERM)
            sent = time.monotonic()
            text += "".join(parts)
        *_, (name, summary) = read_events(text)
        assert name == "summary"
        assert summary["finish_reason"] == "shutdown"
        assert running.wait(PATIENCE) in (0, -signal.SIGTERM)
        assert time.monotonic() - sent < 4
        assert "Traceback" not in running.communicate()[1]


def wait_until_running(url):
    end = time.monotonic() + PATIENCE
    while httpx.get(url + "/ready", timeout=PATIENCE).json()["running"] == 0:
        assert time.monotonic() < end


def test_with_no_flags_it_is_the_books_pair(engine):
    with process("--name", "little") as (_, url):
        body = {"prompt": "The", "max_new_tokens": 7, "seed": 1}
        done = httpx.post(url + "/generate", json=body, timeout=PATIENCE).json()
        assert done["model"] == "little"
        alone = engine.complete("The", max_new_tokens=7, seed=1)
        assert done["text"] == alone.text
        page = httpx.get(url + "/metrics", timeout=PATIENCE)
        assert page.headers["content-type"].startswith("text/plain")
        assert re.search(r"^specdec_tokens_total 7\.0$", page.text, re.M)


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn", "prometheus_client"])
def test_the_extra_is_named(missing, capsys, monkeypatch):
    for name in list(sys.modules):
        if name.startswith("specdec_lib.service."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    for name in ("app", "breakers", "logs", "metrics", "process", "tracing"):
        monkeypatch.delattr(f"specdec_lib.service.{name}", raising=False)
    assert main(["serve"]) == 2
    assert capsys.readouterr().err == (
        f"specdec: error: this needs {missing}: pip install 'specdec_lib[serve]'\n"
    )


def test_a_port_that_is_taken_is_one_line(book, capsys):
    assert main(["serve", "--port", str(book.port)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(
        f"specdec: error: cannot listen at 127.0.0.1, port {book.port}: "
    )
    assert err.count("\n") == 1


@pytest.mark.parametrize("flag, kind, name, _", FLAGS, ids=[f[0] for f in FLAGS])
def test_every_flag_changes_its_setting(flag, kind, name, _):
    value = getattr(Settings(), name) + kind(3)
    options = _parser().parse_args(["serve", flag, str(value)])
    assert settings_of(options, "x") == Settings(**{"name": "x", name: value})


def test_every_setting_has_its_flag():
    names = {name for _, _, name, _ in FLAGS} | {"name"}
    assert names == set(Settings.__dataclass_fields__)


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--queue", "-1"], "--queue must be finite and 0 or more, got -1"),
        (["--workers-in-flight", "0"], "--workers-in-flight must be finite and more"),
        (["--max-k", "0"], "--max-k must be finite and more than 0, got 0"),
        (["--k", "17"], "--k must be inside 0 .. 16 (--max-k), got 17"),
        (["--name", ""], "--name must not be empty"),
        (["--breaker-failures", "0"], "--breaker-failures must be 1 or more, got 0"),
        (["--breaker-seconds", "0"], "--breaker-seconds must be finite and more"),
        (["--draft-seconds", "0"], "--draft-seconds must be finite"),
        (["--deadline", "nan"], "--deadline must be finite"),
        (["--deadline", "inf"], "deadline must be finite"),
        (["--port", "70000"], "port must be inside 0 .. 65535, got 70000"),
        (["--k", "-1"], "--k must be inside 0 .. 16 (--max-k), got -1"),
        (["--model", "nowhere/nothing.npz"], "nowhere/nothing.npz"),
        (["--model", "nowhere.gguf"], "nowhere.gguf"),
    ],
)
def test_wrong_flags_are_one_line(flags, said, capsys):
    assert main(["serve", *flags]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_small_answers_are_sent_at_once():
    """Without TCP_NODELAY the body of an answer waits for its head to be acknowledged,
    which a client may put off for 40 ms."""

    async def option(listening):
        accepted = asyncio.get_running_loop().create_future()

        async def connected(_, writer):
            made = writer.get_extra_info("socket")
            accepted.set_result(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        server = await asyncio.start_server(connected, sock=listening)
        async with server:
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.close()
            return await accepted

    assert asyncio.run(option(listen("127.0.0.1", 0)))
