"""Servers for the tests of the service: in this process, or one of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

import specdec_lib as sd
from specdec_lib.models import extend_by_branches
from specdec_lib.service.app import create_app
from specdec_lib.service.process import Connection
from specdec_lib.service.settings import Settings

PATIENCE = 20.0  # seconds after which a test gives up


def wait_for(condition: Any, what: str, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.005)


class Serving:
    """An application on a port of its own, in a thread."""

    def __init__(self, app: Any, send_buffer: int | None = None) -> None:
        self.app = app
        self.workers = app.state.workers
        self._socket = socket.socket()
        if send_buffer is not None:  # those of its connections
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            app,
            http=Connection,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), daemon=True
        )

    def __enter__(self) -> Serving:
        self._thread.start()
        wait_for(lambda: self._server.started, "the server")
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE)
        return self

    def __exit__(self, *exception: object) -> None:
        self.client.close()
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self._socket.close()
        assert not self._thread.is_alive()

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    def post(self, body: Any, path: str = "/generate", **options: Any) -> Any:
        return self.client.post(path, json=body, **options)

    def events(self, body: Any, path: str = "/generate") -> list[tuple[str, Any]]:
        """The events of a stream: their names and data."""
        with self.client.stream("POST", path, json={**body, "stream": True}) as answer:
            answer.read()
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-type"].startswith("text/event-stream")
            return list(read_events(answer.text))


def read_events(text: str) -> Iterator[tuple[str, Any]]:
    """A reader of server-sent events, as in the standard."""
    assert text.endswith("\n\n")
    for block in text[:-2].split("\n\n"):
        name, data = "message", []
        for line in block.split("\n"):
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            else:
                assert field == "data"
                data.append(value)
        joined = "\n".join(data)
        yield name, joined if joined == "[DONE]" else json.loads(joined)


def figures(service: Serving) -> dict[tuple[Any, ...], float]:
    """Each sample of /metrics by its name and labels, read by Prometheus' parser."""
    answer = service.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def serving(engine: Any, hooks: Any = (), **settings: Any) -> Serving:
    return Serving(create_app(engine, Settings(**settings), hooks))


@contextmanager
def process(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``specdec serve`` with these flags, as a process; and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "error", "-m", "specdec_lib", "serve"]
    environment = dict(os.environ, PYTHONUNBUFFERED="1")
    running = subprocess.Popen(
        [*command, "--port", str(port), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        assert running.poll() is None, running.communicate()
        try:
            return httpx.get(url + "/ready", timeout=PATIENCE).status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_for(ready, "specdec serve", 30)
        yield running, url
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()


def writes(
    text: str,
    seconds: float = 0.0,
    fails_after: int | None = None,
    fault: type[BaseException] = RuntimeError,
) -> Any:
    """An engine that writes ``text`` again and again, byte by byte; each call of the
    target takes ``seconds``, and after ``fails_after`` of them they raise a fault."""
    tokenizer = sd.Tokenizer()
    ids = tokenizer.encode(text).tolist()
    calls = []

    def logits(sequence: tuple[int, ...]) -> Any:
        calls.append(len(sequence))
        if fails_after is not None and len(calls) > fails_after:
            raise fault("secret of the inside")
        time.sleep(seconds)
        row = np.zeros(tokenizer.vocab_size)
        row[ids[(len(sequence) - 1) % len(ids)]] = 50.0
        return row

    target = sd.FunctionModel(logits, tokenizer.vocab_size, bos_id=0)
    return sd.Engine(target, tokenizer, k=0)


class TreeModel:
    """A model with all the optional methods, that counts which are used."""

    vocab_size, bos_id, context_window = 258, 0, None

    def __init__(self):
        self.used = Counter()

    def start(self):
        return _TreeState(self)


class _TreeState:
    def __init__(self, model):
        self.model = model
        inner = sd.FunctionModel(lambda s: -((np.arange(258) - 70 - len(s)) ** 2), 258)
        self.inner = inner.start()

    @property
    def length(self):
        return self.inner.length

    def extend(self, tokens):
        self.model.used["extend"] += 1
        return self.inner.extend(tokens)

    def extend_last(self, tokens, rows):
        self.model.used["extend_last"] += 1
        return self.inner.extend(tokens)[len(tokens) - rows :]

    def extend_tree(self, tokens, parents):
        self.model.used["extend_tree"] += 1
        start = self.inner.length
        rows = extend_by_branches(self.inner, tokens, parents)
        self.inner.rewind(start)
        self.tree = tokens
        return rows

    def keep(self, nodes):
        self.model.used["keep"] += 1
        self.inner.extend([self.tree[node] for node in nodes])

    def rewind(self, length):
        self.inner.rewind(length)


# Three letters, each after the one before, and a draft that has the rows in another
# order: small enough to follow every outcome.
ROWS = np.log([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]])
THREE = sd.FunctionModel(lambda seq: ROWS[seq[-1]], 3, bos_id=0)
CHEAP = sd.FunctionModel(lambda seq: ROWS[(seq[-1] + 1) % 3], 3, bos_id=0)


class Letters:
    """A tokenizer of a, b and c."""

    vocab_size, bos_id, eos_id = 3, 0, None

    def encode(self, text):
        return []

    def piece_bytes(self, id):
        return b"abc"[id : id + 1]
