"""The queue, deadlines, clients that go away, and shutdown."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest
from service_kit import Serving, serving, wait_for, writes

from specdec_lib.service.app import create_app
from specdec_lib.service.hooks import Hooks
from specdec_lib.service.jobs import Job
from specdec_lib.service.schemas import GenerateRequest, generate_task
from specdec_lib.service.settings import Settings

SLOW = 0.02  # seconds of a round


def ask(service, **body):
    return service.post({"prompt": "", **body})


class Notes(Hooks):
    def __init__(self):
        self.lines = []
        self.jobs = []

    def accepted(self, job):
        self.jobs.append(job)
        self.lines.append(("accepted", job.request_id))

    def refused(self, refusal, path):
        self.lines.append(("refused", refusal.status))

    def started(self, job):
        self.lines.append(("started", job.request_id))

    def round(self, job, result):
        self.lines.append(("round", job.request_id))

    def finished(self, job):
        self.lines.append(("finished", job.request_id))


def test_beyond_the_queue_is_a_429_that_says_when():
    with serving(writes("ab", SLOW), workers=1, queue=2) as service:
        with ThreadPoolExecutor(3) as pool:
            taken = []
            for count in (1, 2, 3):
                taken.append(pool.submit(ask, service, max_new_tokens=40))
                wait_for(
                    lambda count=count: (
                        service.workers.running + service.workers.waiting == count
                        and service.workers.running == 1
                    ),
                    "the queue",
                )
            refused = ask(service)
            assert refused.status_code == 429
            assert refused.json()["error"]["code"] == "busy"
            assert refused.json()["error"]["message"] == "all 3 places are taken"
            seconds = refused.headers["retry-after"]
            assert 1 <= int(seconds) <= 60
            ready = service.client.get("/ready").json()
            assert (ready["running"], ready["waiting"]) == (1, 2)
            answers = [each.result().json() for each in taken]
        assert [each["text"] for each in answers] == ["ab" * 20] * 3
        # One after the other: each waited for those before it.
        waits = sorted(each["queue_ms"] for each in answers)
        assert waits[1] > 500
        assert waits[2] > 1000
        assert ask(service, max_new_tokens=1).status_code == 200


def test_no_more_run_at_once_than_there_are_workers():
    with serving(writes("ab", SLOW), workers=3, queue=20) as service:
        most = 0
        with ThreadPoolExecutor(9) as pool:
            jobs = [pool.submit(ask, service, max_new_tokens=10) for _ in range(9)]
            while not all(job.done() for job in jobs):
                most = max(most, service.workers.running)
                time.sleep(0.002)
        assert most == 3
        assert all(job.result().status_code == 200 for job in jobs)


@pytest.mark.parametrize("stream", [False, True])
def test_at_its_deadline_a_request_ends_with_what_there_is(stream):
    with serving(writes("abc", SLOW), deadline=0.3) as service:
        body = {"prompt": "", "max_new_tokens": 1000, "stop": "cX"}
        started = time.monotonic()
        if stream:
            *pieces, (_, done) = service.events(body)
            text = "".join(data["text"] for _, data in pieces)
        else:
            done = service.post(body).json()
            text = done["text"]
        assert time.monotonic() - started < 2
        assert done["finish_reason"] == "deadline"
        assert 0 < done["new_tokens"] <= 15
        # What was held back for the stop string is there too.
        assert text == ("abc" * 9)[: done["new_tokens"]]
        openai = ask_openai(service)
        assert openai["choices"][0]["finish_reason"] == "length"
        assert openai["specdec"]["finish_reason"] == "deadline"


def ask_openai(service):
    body = {"prompt": "", "max_tokens": 1000}
    return service.post(body, "/v1/completions").json()


@pytest.mark.parametrize("stream", [False, True])
def test_who_still_waits_at_the_deadline_gets_504(stream):
    notes = Notes()
    with (
        serving(writes("a", 1.0), [notes], workers=1, deadline=0.3) as service,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(ask, service, max_new_tokens=1)
        wait_for(lambda: service.workers.running == 1, "the first")
        started = time.monotonic()
        late = ask(service, stream=stream)
        assert time.monotonic() - started < 0.9  # not when the first has ended
        assert late.status_code == 504
        assert late.json()["error"]["code"] == "deadline"
        assert service.workers.waiting == 0
        assert first.result().json()["text"] == "a"
    assert ("refused", 504) in notes.lines
    assert notes.lines.count(("finished", notes.jobs[1].request_id)) == 1


def test_a_call_that_does_not_come_back_is_a_504_too(monkeypatch):
    monkeypatch.setattr("specdec_lib.service.jobs.OVERRUN", 0.1)
    with serving(writes("a", 1.5), workers=1, deadline=0.2) as service:
        started = time.monotonic()
        assert ask(service).status_code == 504
        assert time.monotonic() - started < 1.2
        wait_for(lambda: service.workers.running == 0, "its place")


def test_calls_that_do_not_come_back_hold_up_the_end_once(monkeypatch):
    monkeypatch.setattr("specdec_lib.service.jobs.OVERRUN", 0.5)
    with serving(writes("a", 3.0), workers=4, deadline=0.1) as service:
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: ask(service), range(4)))
        assert {answer.status_code for answer in answers} == {504}
        ended = time.monotonic()
    assert time.monotonic() - ended < 1.5  # not half a second for each of them


def test_a_client_that_reads_late_still_gets_all():
    body = GenerateRequest(prompt="", stream=True)
    task = generate_task(body, Settings(deadline=0.01))

    async def read_late():
        job = Job("1", task, {}, "/generate")
        for piece in ("a", "", "b"):
            job.send(piece)
        job.finish(writes("ab").complete("", max_new_tokens=2))
        await asyncio.sleep(0.1)  # past its deadline, and the time beyond
        return [piece async for piece in job.pieces()], job.outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specdec_lib.service.jobs.OVERRUN", 0.01)
        pieces, outcome = asyncio.run(read_late())
    assert pieces == ["a", "b"]
    assert outcome.completion.text == "ab"


def leave(service, body, how):
    """Send a request, and close the connection when it has begun."""
    client = httpx.Client(base_url=service.url, timeout=5)
    if how == "stream":
        with client.stream("POST", "/generate", json={**body, "stream": True}) as out:
            next(out.iter_raw())
    else:

        def go():
            with pytest.raises(httpx.ReadTimeout):
                client.post("/generate", json=body, timeout=0.3)

        go()
    client.close()


@pytest.mark.parametrize("how", ["stream", "whole"])
def test_a_client_that_goes_away_frees_its_place(how):
    notes = Notes()
    with serving(writes("ab", SLOW), [notes], workers=1, queue=1) as service:
        leave(service, {"prompt": "", "max_new_tokens": 1000}, how)
        left = time.monotonic()
        wait_for(lambda: service.workers.running == 0, "its place", 1.0)
        assert time.monotonic() - left < 0.5  # of 20 seconds that it would have taken
        assert ask(service, max_new_tokens=2).json()["text"] == "ab"
    (job, _) = notes.jobs
    assert job.outcome is None
    assert job.refusal is None
    assert notes.lines.count(("finished", job.request_id)) == 1


def test_a_client_that_goes_away_while_it_waits_frees_its_place():
    notes = Notes()
    with (
        serving(writes("ab", SLOW), [notes], workers=1, queue=1) as service,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(ask, service, max_new_tokens=60)
        wait_for(lambda: service.workers.running == 1, "the first")
        leave(service, {"prompt": ""}, "whole")
        wait_for(lambda: service.workers.waiting == 0, "the queue", 0.5)
        assert service.workers.running == 1
        assert first.result().json()["text"] == "ab" * 30
    assert ("started", notes.jobs[1].request_id) not in notes.lines
    assert notes.lines.count(("finished", notes.jobs[1].request_id)) == 1


@pytest.mark.parametrize("closing", ["", "Connection: close\r\n"])
def test_a_client_that_does_not_read_is_let_go(monkeypatch, closing):
    monkeypatch.setattr("specdec_lib.service.process.PATIENCE", 0.4)
    app = create_app(writes("ab"), Settings())
    body = json.dumps({"prompt": "", "max_tokens": 1000, "stream": True})
    with (
        Serving(app, send_buffer=4096) as service,
        socket.socket() as client,
    ):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", service.port))
        client.sendall(
            f"POST /v1/completions HTTP/1.1\r\nHost: a\r\n{closing}"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        wait_for(lambda: service.connections == 1, "the connection")
        wait_for(lambda: service.connections == 0, "its end", 5)
        wait_for(lambda: service.workers.running == 0, "its place", 1)


def test_a_client_that_asks_nothing_is_let_go(monkeypatch):
    monkeypatch.setattr("specdec_lib.service.process.PATIENCE", 0.2)
    with serving(writes("ab", 0.1)) as service:
        for said in (b"", b"GET /health HTT"):
            with socket.create_connection(("127.0.0.1", service.port), 5) as client:
                client.sendall(said)
                with suppress(ConnectionResetError):
                    assert client.recv(100) == b""
        # One that waits for its answer is not.
        assert ask(service, max_new_tokens=4).json()["text"] == "abab"


def test_events_come_in_their_order():
    notes = Notes()
    with serving(writes("ab"), [notes]) as service:
        ask(service, max_new_tokens=2)
        wait_for(lambda: notes.lines[-1][0] == "finished", "the last event")
    names = [name for name, _ in notes.lines]
    assert names == ["accepted", "started", "round", "round", "finished"]
    (job,) = notes.jobs
    assert job.outcome.completion.text == "ab"
    assert job.queue_seconds < job.outcome.seconds
    assert math.isfinite(job.outcome.first_text_seconds)


def test_shutdown_lets_running_requests_finish_and_takes_no_more():
    with (
        serving(writes("ab", SLOW), workers=1, grace=5) as service,
        ThreadPoolExecutor(2) as pool,
    ):
        jobs = [pool.submit(ask, service, max_new_tokens=20) for _ in range(2)]
        wait_for(lambda: service.workers.running == 1, "the first")
        wait_for(lambda: service.workers.waiting == 1, "the second")
        service.workers.drain()
        refused = ask(service)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        ready = service.client.get("/ready")
        assert ready.status_code == 503
        assert service.client.get("/health").status_code == 200
        assert [job.result().json()["text"] for job in jobs] == ["ab" * 10] * 2


def test_after_the_grace_requests_are_ended_clearly():
    with (
        serving(writes("ab", SLOW), workers=1, grace=0.3) as service,
        ThreadPoolExecutor(2) as pool,
    ):
        running = pool.submit(ask, service, max_new_tokens=1000)
        wait_for(lambda: service.workers.running == 1, "the first")
        waiting = pool.submit(ask, service, max_new_tokens=1000)
        wait_for(lambda: service.workers.waiting == 1, "the second")
        service.workers.drain()
        done = running.result().json()
        assert done["finish_reason"] == "shutdown"
        assert done["text"]
        assert "abab".startswith(done["text"][:4])
        late = waiting.result()
        assert late.status_code == 503
        assert late.json()["error"]["message"] == "the service is stopping"


class TurnsAway(Hooks):
    def __init__(self):
        self.reason = None

    def not_ready(self):
        return self.reason

    def check(self):
        from specdec_lib.service.errors import Unavailable

        if self.reason:
            raise Unavailable(self.reason, retry_after=2.5)


def test_a_hook_may_turn_requests_away():
    hook = TurnsAway()
    with serving(writes("a"), [hook]) as service:
        assert service.client.get("/ready").json()["status"] == "ready"
        hook.reason = "the target does not work"
        for answer in (ask(service), service.client.get("/ready")):
            assert answer.status_code == 503
            assert answer.json()["error"]["message"] == "the target does not work"
        assert ask(service).headers["retry-after"] == "3"


def test_no_thread_is_left():
    before = {thread.name for thread in threading.enumerate()}
    with serving(writes("a"), workers=3) as service:
        assert ask(service, max_new_tokens=1).status_code == 200
        assert threading.active_count() >= len(before) + 3
    wait_for(
        lambda: (
            not [
                thread
                for thread in threading.enumerate()
                if thread.name.startswith("worker-") and thread.name not in before
            ]
        ),
        "the threads",
    )
