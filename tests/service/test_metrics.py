"""What /metrics says are the sums of what the answers say of themselves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from service_kit import figures, serving, wait_for, writes

from specdec_lib.service import jobs
from specdec_lib.service.breakers import Faults
from specdec_lib.service.metrics import Prometheus


@pytest.fixture(scope="module")
def observed(engine):
    """Some requests of all kinds: their answers, and the figures afterwards."""
    faults = Faults()
    with serving(engine, [Prometheus(faults), faults], queue=50) as service:
        requests = [
            {"prompt": "The harbour"[:seed], "seed": seed, "k": seed % 5}
            | {"max_new_tokens": 5 + seed}
            for seed in range(12)
        ]

        def ask(body):
            if body["seed"] % 3:
                return service.post(body).json()
            return service.events(body)[-1][1]

        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(ask, requests))
        assert service.post({"prompt": 1}).status_code == 422
        assert service.client.get("/nothing").status_code == 404
        assert service.post({"prompt": "a" * (1 << 20)}).status_code == 413
        # A request is counted as soon as its answer is on its way.
        length = ("specdec_requests_total", ("end", "length"))
        wait_for(lambda: figures(service).get(length) == len(answers), "the count")
        yield answers, figures(service)


def total(answers, name):
    return sum(answer[name] for answer in answers)


@pytest.mark.parametrize(
    "figure, name",
    [
        ("tokens", "new_tokens"),
        ("prompt_tokens", "prompt_tokens"),
        ("rounds", "target_calls"),
        ("drafted", "drafted"),
        ("tested", "tested"),
        ("accepted", "accepted"),
    ],
)
def test_counts_are_the_answers(observed, figure, name):
    answers, found = observed
    assert total(answers, name) > 0
    assert found[f"specdec_{figure}_total",] == total(answers, name)


def test_requests_by_their_end(observed):
    answers, found = observed
    assert found["specdec_requests_total", ("end", "length")] == len(answers)
    assert found["specdec_requests_total", ("end", "invalid")] == 1
    assert found["specdec_requests_total", ("end", "not_found")] == 1
    assert found["specdec_requests_total", ("end", "too_large")] == 1


@pytest.mark.parametrize(
    "figure, name, unit",
    [
        ("draft_seconds", "draft_ms", 1e-3),
        ("target_seconds", "target_ms", 1e-3),
        ("queue_seconds", "queue_ms", 1e-3),
        ("request_seconds", "latency_ms", 1e-3),
        ("first_text_seconds", "first_text_ms", 1e-3),
    ],
)
def test_times_are_the_answers(observed, figure, name, unit):
    answers, found = observed
    # Answers give microseconds, those of the queue a moment later.
    expected = unit * total(answers, name)
    seen = found[f"specdec_{figure}_sum",]
    assert seen == pytest.approx(expected, rel=0.02, abs=2e-3)


def test_histograms_count_rounds_and_requests(observed):
    answers, found = observed
    rounds = total(answers, "target_calls")
    for name in ("round", "draft", "target", "verify"):
        assert found[f"specdec_{name}_seconds_count",] == rounds
        last = (f"specdec_{name}_seconds_bucket", ("le", "+Inf"))
        assert found[last] == rounds
    for name in ("request", "queue", "first_text"):
        assert found[f"specdec_{name}_seconds_count",] == len(answers)
    parts = sum(
        found[f"specdec_{name}_seconds_sum",] for name in ("draft", "target", "verify")
    )
    assert 0 < parts < found["specdec_round_seconds_sum",]


def test_acceptance(observed):
    answers, found = observed
    rates = [each["acceptance_rate"] for each in answers]
    some = [rate for rate in rates if rate is not None]
    assert found["specdec_acceptance_count",] == len(some)
    assert found["specdec_acceptance_sum",] == pytest.approx(sum(some))
    share = ("le", "0.5")
    half = sum(rate <= 0.5 for rate in some)
    assert found["specdec_acceptance_bucket", share] == half


def test_breakers_are_closed(observed):
    _, found = observed
    for part in ("draft", "target"):
        for state, value in (("closed", 1), ("half-open", 0), ("open", 0)):
            assert found["specdec_breaker", ("part", part), ("state", state)] == value


def test_queue_and_flight():
    engine = writes("ab", seconds=0.05)
    with serving(engine, [Prometheus()], workers=2, queue=9) as service:
        with ThreadPoolExecutor(5) as pool:
            body = {"prompt": "", "max_new_tokens": 10}
            jobs = [pool.submit(service.post, body) for _ in range(5)]
            wait_for(lambda: service.workers.waiting == 3, "the queue")
            found = figures(service)
            assert all(job.result().status_code == 200 for job in jobs)
        assert found["specdec_in_flight",] == 2
        assert found["specdec_queue_length",] == 3
        after = figures(service)
        assert after["specdec_in_flight",] == after["specdec_queue_length",] == 0


def test_a_refusal_is_counted_once():
    engine = writes("ab", seconds=0.05, fails_after=3)
    faults = Faults(failures=100)
    with serving(engine, [Prometheus(faults), faults], workers=1) as service:
        for stream in (False, True):
            service.post({"prompt": "", "stream": stream})
        found = figures(service)
    assert found["specdec_requests_total", ("end", "unavailable")] == 2
    ends = [found[key] for key in found if key[0] == "specdec_requests_total"]
    assert sum(ends) == 2
    key = ("specdec_failures_total", ("kind", "error"), ("part", "target"))
    assert found[key] == 2


def test_a_round_that_does_not_come_back_is_counted_once(monkeypatch):
    monkeypatch.setattr(jobs, "OVERRUN", 0.1)
    engine = writes("ab", seconds=1.5)
    with serving(engine, [Prometheus()], deadline=0.2) as service:
        assert service.post({"prompt": ""}).status_code == 504
        wait_for(lambda: service.workers.running == 0, "the round")
        found = figures(service)
    ends = {key: found[key] for key in found if key[0] == "specdec_requests_total"}
    assert ends == {("specdec_requests_total", ("end", "deadline")): 1}


def test_two_services_do_not_share_figures(engine):
    with serving(engine, [Prometheus()]) as one, serving(engine, [Prometheus()]) as two:
        one.post({"prompt": "The", "max_new_tokens": 4})
        assert figures(one)["specdec_tokens_total",] == 4
        assert figures(two)["specdec_tokens_total",] == 0
