"""Draft and target that really fail, behind the real server."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import httpx
import numpy as np
import pybreaker
import pytest
from service_kit import (
    CHEAP,
    PATIENCE,
    ROWS,
    THREE,
    Letters,
    TreeModel,
    figures,
    process,
    serving,
    wait_for,
)

import specdec_lib as sd
from specdec_lib.cli import main
from specdec_lib.service import breakers
from specdec_lib.service.breakers import (
    Breaker,
    Faults,
    Open,
    Severable,
    check_logits,
    check_proposal,
)
from specdec_lib.service.calls import watched
from specdec_lib.service.errors import Unavailable
from specdec_lib.service.metrics import Prometheus

BODY = {"prompt": "The harbour", "max_new_tokens": 30, "seed": 5}
GREEDY = {**BODY, "temperature": 0}
HANG = 1.5  # seconds that a part hangs, and then goes on
LIMIT = 0.4


class Fault:
    """What is wrong with a part now: one of its calls, and in which way."""

    def __init__(self):
        self.how, self.where, self.asked = None, "extend", 0

    def strikes(self, method, right):
        """What the call gives."""
        self.asked += 1
        if self.how is None or method not in self.where:
            return right()
        if self.how == "raise":
            raise RuntimeError("secret of the inside")
        if self.how == "hang":
            time.sleep(HANG)
            return right()
        return {
            "shape": lambda rows: rows[:, :-1],
            "rows": lambda rows: rows[:0],
            "nan": lambda rows: rows * np.nan,
            "none": lambda rows: None,
        }[self.how](right())


class Broken:
    """A language model with a fault."""

    def __init__(self, model):
        self.model, self.fault = model, Fault()
        self.vocab_size, self.bos_id = model.vocab_size, model.bos_id
        self.context_window = model.context_window

    def start(self):
        return BrokenState(self.fault.strikes("start", self.model.start), self.fault)


class BrokenState:
    def __init__(self, state, fault):
        self.state, self.fault = state, fault

    @property
    def length(self):
        return self.state.length

    def extend(self, tokens):
        return self.fault.strikes("extend", lambda: self.state.extend(tokens))

    def rewind(self, length):
        return self.fault.strikes("rewind", lambda: self.state.rewind(length))


@pytest.fixture
def broken(engine):
    """The engine of models that can be broken."""
    return replace(engine, target=Broken(engine.target), draft=Broken(engine.draft))


@pytest.fixture
def serve(broken):
    """The service of these with such faults, its breakers, and its figures."""

    def serve(settings=None, **faults):
        hook = Faults(**{"failures": 3, "seconds": 60.0, **faults})
        service = serving(broken, [Prometheus(hook), hook], **(settings or {}))
        service.faults = hook
        service.target, service.draft = broken.target.fault, broken.draft.fault
        return service

    return serve


def job_for():
    """As much of a job as the breakers look at."""
    task = SimpleNamespace(sampler=sd.Sampler(), k=None)
    return SimpleNamespace(request_id="1", notes={}, task=task)


def wait_out(breaker):
    """The time passes for which it is open."""
    breaker._opened -= breaker.seconds


WAYS = [
    ("raise", "extend"),
    ("raise", "start"),
    ("raise", "rewind"),
    ("shape", "extend"),
    ("rows", "extend"),
    ("nan", "extend"),
    ("none", "extend"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how, where", [way for way in WAYS if way[0] != "shape"])
def test_without_its_draft_an_answer_is_the_targets(serve, how, where, stream):
    with serve() as service:

        def ask(body):
            if not stream:
                return service.post(body).json()
            *pieces, (name, summary) = service.events(body)
            assert name == "summary"
            return {"text": "".join(data["text"] for _, data in pieces), **summary}

        whole = ask(GREEDY)
        assert whole["degraded"] == []
        plain = ask({**BODY, "k": 0})
        service.draft.how, service.draft.where = how, where
        without = ask(GREEDY)
        assert without["text"] == whole["text"]
        assert (without["degraded"], without["exact"]) == (["draft"], True)
        if (how, where) == ("raise", "start"):
            # Nothing was drawn for it: the very text of plain decoding.
            again = ask(BODY)
            assert again["text"] == plain["text"]
            assert again["drafted"] == 0
        found = figures(service)
        key = ("specdec_degraded_rounds_total", ("missing", "draft"))
        assert found[key] >= without["target_calls"] - 1


def test_the_draft_is_left_alone_tried_again_and_back(serve):
    with serve() as service:
        service.draft.how = "raise"
        for failures in (1, 2, 3):
            assert service.post(GREEDY).json()["degraded"] == ["draft"]
            assert service.faults.draft.state == ("closed" if failures < 3 else "open")
        asked = service.draft.asked
        found = figures(service)
        for state, value in (("open", 1), ("closed", 0)):
            key = ("specdec_breaker", ("part", "draft"), ("state", state))
            assert found[key] == value
        key = ("specdec_failures_total", ("kind", "error"), ("part", "draft"))
        assert found[key] == 3
        # Open: it is not asked, and the answer is plain decoding's, seed by seed.
        without = service.post(BODY).json()
        assert service.draft.asked == asked
        assert without["degraded"] == ["draft"]
        assert without["text"] == service.post({**BODY, "k": 0}).json()["text"]
        assert service.client.get("/ready").status_code == 200
        wait_out(service.faults.draft)
        # Half open: one tries, fails, and it is open again.
        assert service.post(GREEDY).json()["degraded"] == ["draft"]
        assert service.faults.draft.state == "open"
        assert service.draft.asked > asked
        service.draft.how = None
        wait_out(service.faults.draft)
        back = service.post(GREEDY).json()
        assert (back["degraded"], back["drafted"] > 0) == ([], True)
        assert service.faults.draft.state == "closed"


def test_who_asks_for_no_guesses_misses_no_draft(serve):
    with serve() as service:
        service.draft.how, service.draft.where = "raise", ("start", "extend")
        answer = service.post({**BODY, "k": 0}).json()
        assert (answer["degraded"], service.draft.asked) == ([], 0)


def test_a_draft_that_hangs_is_not_waited_for(serve):
    with serve(draft_seconds=LIMIT) as service:
        whole = service.post(GREEDY).json()
        assert whole["drafted"] > 0
        assert whole["degraded"] == []
        service.draft.how = "hang"
        started = time.monotonic()
        without = service.post(GREEDY).json()
        assert LIMIT <= time.monotonic() - started < HANG
        assert (without["text"], without["degraded"]) == (whole["text"], ["draft"])
        key = ("specdec_failures_total", ("kind", "slow"), ("part", "draft"))
        assert figures(service)[key] == 1
        # The thread of the call that hangs ends with it.
        wait_for(
            lambda: not [t for t in threading.enumerate() if t.name == "aside"],
            "the thread",
        )
        service.draft.how = None
        # With a limit that is not reached, the same draws: the same text.
        limited = service.post(BODY).json()["text"]
    with serve() as service:
        assert service.post(BODY).json()["text"] == limited


def test_a_late_call_does_not_touch_the_draws_of_its_request(serve):
    """It wakes up while the request goes on: the text is still plain decoding's."""
    with serve(draft_seconds=LIMIT) as service:
        plain = service.post({**BODY, "k": 0}).json()["text"]
        real = service.target.strikes

        def slowly(method, right):
            time.sleep(0.06)
            return real(method, right)

        service.target.strikes, service.draft.how = slowly, "hang"
        started = time.monotonic()
        assert service.post(BODY).json()["text"] == plain
        assert time.monotonic() - started > HANG


def test_a_call_that_was_given_up_draws_no_more():
    rng = Severable(sd.SeededRandom(1))
    same = sd.SeededRandom(1)
    assert [rng.bernoulli(0.5) for _ in range(9)] == [
        same.bernoulli(0.5) for _ in range(9)
    ]
    rng.cut()
    with pytest.raises(RuntimeError, match="given up"):
        rng.categorical(np.array([0.5, 0.5]))


class Squeamish:
    """A draft that breaks its contract where ``fails(text, guesses)``."""

    def __init__(self, fails):
        self.fails = fails

    def start(self, prompt):
        session, text = sd.ModelDraft(CHEAP).start(prompt), [*prompt]

        def propose(k, rng):
            proposal = session.propose(k, rng)
            if self.fails(text, proposal.tokens):
                proposal = replace(proposal, tokens=(9,) * len(proposal.tokens))
            return proposal

        def commit(tokens):
            text.extend(tokens)
            session.commit(tokens)

        return SimpleNamespace(propose=propose, commit=commit)


def by_enumeration(draft):
    """The law of three letters, and the chance that the draft failed."""

    def run(rng):
        engine = sd.Engine(THREE, Letters(), draft, k=2)
        faults = Faults()
        job, failed = job_for(), []
        engine = watched(
            faults.engine(job, engine),
            faults.guard(job),
            sd.Sampler(),
            sd.verify_tokens,
            lambda: failed.append(1),
        )
        return engine.complete("", max_new_tokens=3, rng=rng).text, len(failed)

    joint = sd.exact_distribution(run)
    law = {text: 0.0 for text, _ in joint}
    for (text, _), chance in joint.items():
        law[text] += chance
    return law, sum(chance for (_, failed), chance in joint.items() if failed)


@pytest.fixture(scope="module")
def plain_law():
    plain = sd.Engine(THREE, Letters())
    return sd.exact_distribution(
        lambda rng: plain.complete("", max_new_tokens=3, rng=rng).text
    )


@pytest.mark.parametrize(
    "fails",
    [
        lambda text, guesses: True,
        lambda text, guesses: len(text) > 1,
        lambda text, guesses: len(guesses) == 1,  # as many as it was asked for
    ],
)
def test_a_draft_that_fails_by_the_text_leaves_the_targets_law(plain_law, fails):
    """Every outcome is followed, through the guards of the service."""
    law, failing = by_enumeration(Squeamish(fails))
    assert failing > 0.1
    assert law.keys() == plain_law.keys()
    for text, chance in plain_law.items():
        assert law[text] == pytest.approx(chance, abs=1e-12)


def test_a_draft_that_fails_by_its_own_guesses_is_off_by_at_most_its_failures(
    plain_law,
):
    """The one exception, and its bound: the guesses that are judged are a choice."""
    law, failing = by_enumeration(Squeamish(lambda text, guesses: 0 in guesses[:1]))
    distance = sum(abs(law[text] - plain_law[text]) for text in plain_law) / 2
    assert 0.01 < distance <= failing


def no_row(sequence):
    raise ValueError("this token is not in the table")


@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize(
    "fault", [no_row, lambda seq: np.full(3, np.nan), lambda seq: np.zeros(2)]
)
def test_a_model_that_fails_by_its_own_guesses_leaves_the_targets_law(
    plain_law, bad, fault
):
    """It fails behind a token: a guess of it, or one that it is given."""

    def logits(sequence):
        last = sequence[-1]
        return fault(sequence) if last == bad else ROWS[(last + 1) % 3]

    law, failing = by_enumeration(sd.FunctionModel(logits, 3, bos_id=0))
    assert failing > 0.1
    for text, chance in plain_law.items():
        assert law[text] == pytest.approx(chance, abs=1e-12)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how, where", WAYS)
def test_a_target_that_fails_is_a_503(serve, how, where, stream):
    with serve() as service:
        service.target.how, service.target.where = how, where
        named = {"x-request-id": "my"}
        answer = service.post({**BODY, "stream": stream}, headers=named)
        if where == "rewind":  # after some text perhaps
            assert "unavailable" in answer.text
        else:
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            error = answer.json()["error"]
            assert (error["code"], error["request_id"]) == ("unavailable", "my")
            assert error["message"] == "the target does not work; try again later"
        assert "secret" not in answer.text


def test_the_target_is_left_alone_tried_again_and_back(serve):
    with serve({"workers": 1}) as service:

        def ready():
            return service.client.get("/ready")

        expected = service.post(BODY).json()["text"]
        service.target.how = "raise"
        for _ in range(3):
            assert ready().status_code == 200
            assert service.post(BODY).status_code == 503
        # Open: 503 at once, without asking it.
        asked = service.target.asked
        assert ready().status_code == 503
        assert "the target does not work" in ready().text
        refused = service.post(BODY)
        assert refused.status_code == 503
        assert 30 < int(refused.headers["retry-after"]) <= 60
        assert refused.json()["error"]["request_id"]
        assert service.client.get("/health").status_code == 200
        assert service.target.asked == asked
        # Half open: ready for one that tries; it fails.
        wait_out(service.faults.target)
        assert ready().status_code == 200
        assert service.post(BODY).status_code == 503
        assert service.target.asked > asked
        assert ready().status_code == 503
        # The next one does not.
        service.target.how = None
        wait_out(service.faults.target)
        assert service.post(BODY).json()["text"] == expected
        assert service.faults.target.state == "closed"
        assert ready().status_code == 200


def test_a_target_that_hangs_is_a_503(serve):
    with serve({"deadline": 10}, target_seconds=LIMIT) as service:
        expected = service.post(BODY).json()
        service.target.how = "hang"
        started = time.monotonic()
        assert service.post(BODY).status_code == 503
        assert time.monotonic() - started < HANG
        service.target.how = None
        again = service.post(BODY).json()
        assert again["text"] == expected["text"]


def test_a_target_that_fails_in_the_middle_ends_its_stream_with_an_error(serve):
    with serve(draft_only=True) as service:
        real, calls = service.target.strikes, []

        def strikes(method, right):
            calls.append(method)
            if calls.count("extend") > 3:
                raise RuntimeError
            return real(method, right)

        service.target.strikes = strikes
        *pieces, (name, data) = service.events({**BODY, "k": 1})
        assert len(pieces) == 3
        assert name == "error"
        assert data["error"]["code"] == "unavailable"


def test_the_draft_answers_alone_where_it_may(serve, engine):
    alone = sd.Engine(engine.draft, engine.tokenizer)
    by_draft = alone.complete("The harbour", max_new_tokens=30, seed=5, k=0).text
    greedy = alone.complete(
        "The harbour", max_new_tokens=30, sampler=sd.Sampler(temperature=0)
    ).text
    with serve(draft_only=True) as service:
        whole = service.post(GREEDY)
        assert "x-specdec-degraded" not in whole.headers
        assert whole.json()["text"] != greedy
        service.target.how = "raise"
        for path, where in (
            ("/generate", lambda answer: answer),
            ("/v1/completions", lambda answer: answer["specdec"]),
        ):
            key = "max_new_tokens" if path == "/generate" else "max_tokens"
            body = {"prompt": "The harbour", "temperature": 0, key: 30}
            answer = service.post(body, path)
            assert answer.status_code == 200
            assert answer.headers["x-specdec-degraded"] == "target"
            found = where(answer.json())
            assert (found["exact"], found["degraded"]) == (False, ["target"])
        assert answer.json()["choices"][0]["text"] == greedy
        service.post(GREEDY)
        assert service.faults.target.state == "open"
        # Open: the draft alone, seed by seed, and nothing guesses for it.
        answer = service.post(BODY)
        assert answer.json()["text"] == by_draft
        assert answer.json()["drafted"] == 0
        assert answer.headers["x-specdec-degraded"] == "target"
        assert service.client.get("/ready").status_code == 200
        raw = service.post({**BODY, "stream": True})
        assert raw.headers["x-specdec-degraded"] == "target"
        assert '"exact":false' in raw.text
        # Nobody left.
        service.draft.how = "raise"
        assert service.post(BODY).status_code == 503
        service.draft.how = service.target.how = None
        wait_out(service.faults.target)
        assert service.post(GREEDY).json()["text"] == whole.json()["text"]
        assert service.faults.target.state == "closed"


def test_draft_only_needs_a_model(engine):
    copies = replace(engine, draft=sd.PromptLookup())
    with pytest.raises(ValueError, match="draft_only needs a draft that is a language"):
        serving(copies, [Faults(draft_only=True)])


def test_trees_of_guesses_pass_through():
    """With the methods that a target has for them."""
    target = TreeModel()
    draft = sd.TreeDraft(target, sd.Sampler(), sd.tree_shape([2, 1]))
    engine = sd.Engine(target, sd.Tokenizer(), draft, verify=sd.verify_tree)
    options = dict(sampler=sd.Sampler(temperature=0), max_new_tokens=12, seed=1)
    plain = engine.complete("abc", **options)
    alone, target.used = target.used, Counter()
    guarded = Faults().engine(job_for(), engine)
    assert guarded.complete("abc", **options).tokens == plain.tokens
    assert target.used == alone
    assert alone["extend_tree"]
    assert alone["extend_last"]
    assert alone["keep"]


@pytest.mark.parametrize(
    "options, said",
    [
        ({"failures": 0}, "failures must be 1 or more"),
        ({"seconds": 0}, "seconds must be finite and above 0"),
        ({"draft_seconds": float("nan")}, "draft_seconds must be"),
        ({"target_seconds": -1}, "target_seconds must be"),
    ],
)
def test_wrong_settings(options, said):
    with pytest.raises(ValueError, match=said):
        Faults(**options)


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--breaker-failures", "0"], "--breaker-failures must be 1 or more, got 0"),
        (["--breaker-seconds", "inf"], "--breaker-seconds must be finite"),
        (["--draft-seconds", "0"], "--draft-seconds must be finite and above 0"),
        (["--target-seconds", "nan"], "--target-seconds must be finite and above 0"),
    ],
)
def test_wrong_flags_are_one_line(flags, said, capsys):
    assert main(["serve", *flags]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_the_flags_of_a_process(engine):
    """It could answer by its draft, and answers by its target while that works."""
    flags = ("--draft-only-when-target-fails", "--draft-seconds", "5")
    with process(*flags, "--target-seconds", "5", "--breaker-failures", "2") as (
        _,
        url,
    ):
        answer = httpx.post(url + "/generate", json=BODY, timeout=PATIENCE)
        done = engine.complete("The harbour", max_new_tokens=30, seed=5)
        assert answer.json()["text"] == done.text
        assert "x-specdec-degraded" not in answer.headers


def test_many_at_once_with_parts_that_fail_now_and_then(broken):
    """Whatever fails, and whatever breakers do: the right text or none."""
    chance = random.Random(1)
    for fault in (broken.target.fault, broken.draft.fault):

        def strikes(
            method, right, often=0.003 if fault is broken.target.fault else 0.1
        ):
            if chance.random() < often:
                raise RuntimeError
            return right()

        fault.strikes = strikes
    faults = Faults(failures=2, seconds=0.02)
    prompts = ["The harbour", "Once", "A long way off", "", "She said", "In"]
    bodies = [
        {"prompt": prompts[i % 6], "temperature": 0, "max_new_tokens": 10 + i % 7}
        for i in range(120)
    ]
    plain = replace(broken, target=broken.target.model, draft=None)
    with (
        serving(broken, [Prometheus(faults), faults], workers=8, queue=200) as service,
        ThreadPoolExecutor(16) as pool,
    ):
        answers = list(pool.map(service.post, bodies))
        for breaker in (faults.draft, faults.target):
            assert breaker.state in breakers.STATES
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) == {200, 503}
    whole = [answer.json() for answer in answers if answer.status_code == 200]
    assert {tuple(each["degraded"]) for each in whole} == {(), ("draft",)}
    for body, answer in zip(bodies, answers, strict=True):
        if answer.status_code == 200:
            alone = plain.complete(
                body["prompt"],
                max_new_tokens=body["max_new_tokens"],
                sampler=sd.Sampler(temperature=0),
            )
            assert answer.json()["text"] == alone.text


def test_pybreaker_alone_would_let_one_call_at_a_time():
    """Why calls are made outside of it. If this fails, breakers.py can be simpler."""
    breaker = pybreaker.CircuitBreaker()
    inside, both = threading.Event(), threading.Event()

    def first():
        inside.set()
        assert not both.wait(0.2)

    with ThreadPoolExecutor(2) as pool:
        job = pool.submit(breaker.call, first)
        inside.wait()
        pool.submit(breaker.call, both.set).result()
        job.result()


def test_calls_of_several_requests_run_at_once(broken):
    """Each call waits until the other is there too."""
    together = threading.Barrier(2, timeout=10)
    real = broken.target.fault.strikes

    def strikes(method, right):
        if method == "extend":
            together.wait()
        return real(method, right)

    broken.target.fault.strikes = strikes
    with (
        serving(broken, [Faults()], workers=2) as service,
        ThreadPoolExecutor(2) as pool,
    ):
        body = {"prompt": "The", "max_new_tokens": 8, "k": 0}
        jobs = [pool.submit(service.post, body) for _ in range(2)]
        assert [job.result().status_code for job in jobs] == [200, 200]


def test_one_probe_among_many(broken):
    """64 requests meet a half open breaker: one asks the target, the others do not."""
    faults = Faults(failures=1)
    fault = broken.target.fault
    with serving(broken, [faults], workers=8, queue=64) as service:
        fault.how = "raise"
        assert service.post(BODY).status_code == 503
        real, inside, go = fault.strikes, [], threading.Event()

        def strikes(method, right):
            if method == "extend":
                inside.append(threading.get_ident())
                go.wait(10)
            return real(method, right)

        fault.how, fault.strikes = None, strikes
        wait_out(faults.target)
        with ThreadPoolExecutor(64) as pool:
            jobs = [pool.submit(service.post, BODY) for _ in range(64)]
            wait_for(lambda: sum(job.done() for job in jobs) == 63, "the others")
            assert len(inside) == 1
            assert faults.target.state == "half-open"
            go.set()
            statuses = sorted(job.result().status_code for job in jobs)
        assert statuses == [200] + [503] * 63
        assert faults.target.state == "closed"


def test_breakers_under_many_threads():
    """No failure is lost, no thread waits for ever, and late news change nothing."""
    breaker = Breaker("draft", failures=400, seconds=60)
    start = threading.Barrier(8)

    def fail(who):
        start.wait()
        for _ in range(49):
            breaker.failed(who, RuntimeError())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fail, range(8)))
    assert breaker.state == "closed"
    for _ in range(8):
        breaker.failed("one", RuntimeError())
    assert breaker.state == "open"
    breaker.succeeded("a late one")
    breaker.failed("a late one", RuntimeError())
    assert breaker.state == "open"
    with pytest.raises(Open):
        breaker.enter("another")
    assert 59 < breaker.retry_after <= 60


def test_a_probe_that_does_not_come_back_is_replaced(monkeypatch):
    monkeypatch.setattr(breakers, "PROBE_SECONDS", 0.05)
    breaker = Breaker("target", failures=1, seconds=0.05)
    breaker.failed("a", RuntimeError())
    time.sleep(0.06)
    breaker.enter("b")
    breaker.enter("b")
    with pytest.raises(Open):
        breaker.enter("c")
    breaker.left("b")  # has ended without a round
    breaker.enter("c")
    time.sleep(0.06)
    breaker.enter("d")
    breaker.failed("c", RuntimeError())  # too late
    assert breaker.state == "half-open"
    breaker.succeeded("d")
    assert breaker.state == "closed"


P = sd.Proposal
HALF = np.array([[0.5, 0.5, 0.0]])


@pytest.mark.parametrize(
    "proposal",
    [
        None,
        (1, 2),
        P((3,), HALF),
        P((-1,), HALF),
        P((0, 0, 0)),
        P((0,), HALF[0]),
        P((0,), np.array([[0.5, 0.5]])),
        P((0,), 2 * HALF),
        P((0,), HALF * np.nan),
        P((2,), HALF),
        P((0, 1), None, (0, 0)),
    ],
    ids=str,
)
def test_what_is_no_proposal(proposal):
    with pytest.raises((TypeError, ValueError)):
        check_proposal(proposal, 2, 3)
    check_proposal(P((1,), HALF), 2, 3)
    check_proposal(P(()), 2, 3)
    check_proposal(P((0, 1, 2), None, (-1, -1, 0)), 2, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_are_no_logits(bad):
    rows = np.zeros((2, 3))
    check_logits(rows, 2, 3)
    rows[1, :2] = -np.inf
    check_logits(rows, 2, 3)
    rows[1, 2] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        check_logits(rows, 2, 3)
    with pytest.raises(ValueError, match="shape"):
        check_logits(None, 2, 3)


def test_unavailable_is_what_the_target_raises(broken):
    broken.target.fault.how = "raise"
    faults = Faults()
    with pytest.raises(Unavailable) as error:
        faults.engine(job_for(), broken).complete("The", max_new_tokens=3)
    assert error.value.status == 503
