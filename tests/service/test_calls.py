"""The seam around draft, target and rule changes nothing, and lets a draft fail."""

from __future__ import annotations

from collections import Counter

import pytest
from service_kit import CHEAP, THREE, Letters, TreeModel, serving

import specdec_lib as sd
from specdec_lib.service.calls import PartFailed, nested, plainly, watched
from specdec_lib.service.errors import Unavailable
from specdec_lib.service.hooks import Hooks

GREEDY = sd.Sampler(temperature=0)


def guarded(engine, guard, sampler=GREEDY, verify=sd.verify_tokens, failed=None):
    return watched(engine, guard, sampler, verify, failed or (lambda: None))


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("k", [0, 3])
def test_a_watched_engine_does_the_same(engine, temperature, k):
    sampler = sd.Sampler(temperature)
    seen = []

    def guard(call, do):
        seen.append(call)
        return do()

    options = dict(max_new_tokens=30, k=k, seed=3)
    same = guarded(engine, guard, sampler).complete("The", **options)
    plain = engine.complete("The", sampler=sampler, **options)
    assert same.tokens == plain.tokens
    assert same.metrics.accepted == plain.metrics.accepted
    calls = Counter((call.part, call.method) for call in seen)
    assert calls["verify", "verify"] == len(plain.rounds)
    assert calls["target", "start"] == 1
    reads = calls["target", "extend"] + calls["target", "extend_last"]
    assert reads == len(plain.rounds)
    proposing = sum(bool(round.drafted) for round in plain.rounds)
    assert calls["draft", "propose"] == proposing
    assert calls["draft", "commit"] == len(plain.rounds)
    read = sum(c.tokens for c in seen if c.method in ("extend", "extend_last"))
    # Each token is read once, and each guess that was refused.
    assert read == plain.prompt_tokens + len(plain.tokens) - 1 + (
        plain.metrics.drafted - plain.metrics.accepted
    )


def test_what_a_state_can_do_beyond_the_contract_is_still_used():
    target = TreeModel()
    draft = sd.TreeDraft(target, sd.Sampler(), sd.tree_shape([2, 1]))
    engine = sd.Engine(target, sd.Tokenizer(), draft)
    options = dict(max_new_tokens=12, seed=1)
    plain = engine.complete("abc", sampler=GREEDY, verify=sd.verify_tree, **options)
    alone, target.used = target.used, Counter()
    same = guarded(engine, plainly, verify=sd.verify_tree).complete("abc", **options)
    assert same.tokens == plain.tokens
    assert target.used == alone
    assert alone["extend_tree"]
    assert alone["keep"]


@pytest.mark.parametrize("method", ["start", "propose", "commit"])
@pytest.mark.parametrize("after", [1, 3])
def test_without_its_draft_a_request_goes_on(engine, method, after):
    calls = Counter()
    failures = []

    def guard(call, do):
        calls[call.part, call.method] += 1
        asked = calls[call.part, method]
        if (call.part, call.method) == ("draft", method) and asked >= after:
            raise PartFailed
        return do()

    wounded = guarded(engine, guard, failed=lambda: failures.append(1))
    done = wounded.complete("The harbour", max_new_tokens=40)
    plain = engine.complete("The harbour", max_new_tokens=40, sampler=GREEDY, k=0)
    assert done.tokens == plain.tokens
    if method == "start" and after == 3:
        assert failures == []
        return
    assert failures == [1]
    assert calls["draft", method] == after  # and is not asked again
    assert done.metrics.drafted < 4 * after + 1


def test_with_a_draft_that_fails_samples_stay_the_targets():
    """Every outcome is followed: the draft fails in the second round, or in the first
    where it has drawn already."""

    def run(rng, when, drawn):
        calls = Counter()

        def guard(call, do):
            calls[call.part] += call.method == "propose"
            if call.method == "propose" and calls["draft"] >= when:
                if drawn:
                    do()
                raise PartFailed
            return do()

        engine = sd.Engine(THREE, Letters(), CHEAP, k=2)
        wounded = guarded(engine, guard, sd.Sampler())
        return wounded.complete("", max_new_tokens=3, rng=rng).text

    plain = sd.Engine(THREE, Letters())
    alone = sd.exact_distribution(
        lambda rng: plain.complete("", max_new_tokens=3, rng=rng).text
    )
    for when in (1, 2):
        for drawn in (False, True):
            found = sd.exact_distribution(
                lambda rng, when=when, drawn=drawn: run(rng, when, drawn)
            )
            assert found.keys() == alone.keys()
            for text, chance in alone.items():
                assert found[text] == pytest.approx(chance, abs=1e-12)


def test_guards_stand_around_each_other():
    order = []

    def named(name):
        def guard(call, do):
            order.append(name)
            return do()

        return guard

    guard = nested([named("outer"), named("inner")])
    assert guard(None, lambda: 5) == 5
    assert order == ["outer", "inner"]
    assert nested([])(None, lambda: 6) == 6


class Breaks(Hooks):
    """A guard that breaks what it is told to."""

    def __init__(self):
        self.part = None

    def guard(self, job):
        def guard(call, do):
            if call.part == self.part == "draft":
                raise PartFailed
            if call.part == self.part == "target":
                raise Unavailable("the target does not work", retry_after=7)
            return do()

        return guard


def test_a_service_without_its_draft_says_so(engine):
    hook = Breaks()
    with serving(engine, [hook]) as service:
        body = {"prompt": "The harbour", "temperature": 0, "max_new_tokens": 30}
        whole = service.post(body).json()
        assert whole["degraded"] == []
        assert whole["drafted"] > 0
        hook.part = "draft"
        without = service.post(body).json()
        assert without["text"] == whole["text"]
        assert without["degraded"] == ["draft"]
        assert (without["drafted"], without["acceptance_rate"]) == (0, None)
        assert without["exact"] is True
        hook.part = "target"
        for stream in (False, True):
            answer = service.post({**body, "stream": stream})
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "7"
        hook.part = None
        again = service.post(body).json()
        assert (again["text"], again["degraded"]) == (whole["text"], [])
