"""What holds for every call of the loop: any target, draft, rule, length and budget."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from properties_kit import (
    CHAINS,
    EXACT,
    POSSIBLE,
    TREES,
    Listed,
    Nothing,
    Reader,
    calls,
    examples,
    function_model,
    same,
    untimed,
    whole,
)

import specdec_lib as sd
from specdec_lib.models import node_depths

REAL = (*EXACT, *POSSIBLE)  # rules that never emit what the target cannot


def test_the_examples_have_all_kinds_of_rounds_and_ends():
    """Else the rest would prove little."""
    found = Counter()

    @examples(200)
    @given(calls())
    def look(call):
        result = call.generate()
        found[result.finish_reason] += 1
        metrics = result.metrics
        found["kept"] += metrics.accepted > 0
        found["rejected"] += metrics.accepted < metrics.tested
        found["several rounds"] += metrics.target_calls > 2
        found["tree"] += any(each.path for each in result.rounds)
        found["warm"] += call.sampler.temperature > 0

    look()
    least = dict(stop=10, context=5, length=50, kept=50, rejected=40, tree=5, warm=80)
    least["several rounds"] = 60
    short = {name: found[name] for name in least if found[name] < least[name]}
    assert not short, found


@examples(300)
@given(calls())
def test_never_more_than_asked_for(call):
    result, window = call.generate(), call.target().context_window
    room = call.max_new_tokens
    if window is not None:
        room = min(room, window - len(call.start))
    assert len(result.tokens) <= room
    assert all(0 <= token < call.vocab for token in result.tokens)
    if result.finish_reason == "length":
        assert len(result.tokens) == call.max_new_tokens
    elif result.finish_reason == "context":
        assert len(result.tokens) == room < call.max_new_tokens
    else:
        assert result.finish_reason == "stop"


@examples(300)
@given(calls(rules=REAL))
def test_nothing_after_a_stop_and_no_stop_before_the_minimum(call):
    result = call.generate()
    places = [i for i, token in enumerate(result.tokens) if token in call.stops]
    assert places in ([], [len(result.tokens) - 1])
    assert bool(places) == (result.finish_reason == "stop")
    assert all(place >= call.min_new_tokens for place in places)
    # Only the last round says that it is the last, and why.
    reasons = [each.finish_reason for each in result.rounds]
    assert reasons == [None] * (len(reasons) - 1) + [result.finish_reason] * bool(
        reasons
    )


@examples(300)
@given(calls())
def test_a_stream_is_the_whole_in_parts(call):
    result, rounds = call.generate(), tuple(call.stream())
    assert untimed(rounds) == untimed(result.rounds)
    assert sum((each.emitted for each in rounds), ()) == result.tokens
    assert all(each.emitted for each in rounds)
    assert sd.Metrics.from_rounds(untimed(rounds)) == sd.Metrics.from_rounds(
        untimed(result.rounds)
    )


@examples(160)
@given(calls(), whole(0, 3))
def test_a_stream_that_is_left_was_right_so_far(call, taken):
    rounds = call.stream()
    some = [each for each, _ in zip(rounds, range(taken), strict=False)]
    rounds.close()
    assert untimed(some) == untimed(call.generate().rounds)[:taken]


def from_the_seed(call):
    rng = sd.SeededRandom(call.seed)
    return call.plain(rng.categorical)


@examples(240)
@given(calls(rules=tuple(EXACT)))
def test_no_guesses_is_plain_decoding_from_the_same_seed(call):
    expected = from_the_seed(call)
    for changes in (dict(k=0), dict(draft=None), dict(k=Listed([0]))):
        result = call.generate(**changes)
        assert (result.tokens, result.finish_reason) == expected
        assert [each.emitted for each in result.rounds] == [(t,) for t in expected[0]]
        assert not any(each.drafted or each.accepted for each in result.rounds)


@examples(160)
@given(calls(rules=tuple(EXACT)))
def test_a_draft_without_guesses_is_plain_decoding(call):
    result = call.generate(draft=Nothing())
    assert (result.tokens, result.finish_reason) == from_the_seed(call)


@examples(300)
@given(calls())
def test_same_seed_same_everything(call):
    first = call.generate()
    assert same(call.generate()) == same(first)
    rng = sd.SeededRandom(call.seed)
    assert same(call.generate(seed=None, rng=rng)) == same(first)


@examples(160)
@given(calls(), whole(0, 99))
def test_a_call_leaves_nothing_behind(call, other_seed):
    """The same objects again, after another call and one that was broken off."""
    target, arguments = call.target(), call.arguments()
    first = sd.generate(target, call.prompt, **arguments)
    other = [*call.start[::-1]]
    more = dict(arguments, seed=other_seed)
    if target.context_window is None:
        sd.generate(target, other, **more)
    next(sd.stream(target, call.prompt, **more), None)
    assert same(sd.generate(target, call.prompt, **arguments)) == same(first)


@examples(160)
@given(calls(), whole(0, 99))
def test_two_streams_in_turn_do_not_disturb_each_other(call, other_seed):
    """Of the same objects, each from its own seed."""
    target, arguments = call.target(), call.arguments()
    seeds = (call.seed, other_seed)
    streams = [
        sd.stream(target, call.prompt, **arguments | {"seed": seed}) for seed in seeds
    ]
    rounds = ([], [])
    for pair in zip_longest(*streams):
        for done, each in zip(rounds, pair, strict=True):
            done += [] if each is None else [each]
    for done, seed in zip(rounds, seeds, strict=True):
        assert untimed(done) == untimed(call.generate(seed=seed).rounds)


@examples(500)
@given(calls(rules=REAL, temperatures=st.just(0.0)))
def test_greedy_is_greedy_whatever_guesses_and_judges(call):
    result = call.generate()
    assert (result.tokens, result.finish_reason) == call.plain(np.argmax)


@examples(160)
@given(calls(rules=("verify_argmax", "probability_threshold(0.5)"), trees=()))
def test_rules_that_are_greedy_at_every_temperature(call):
    result = call.generate()
    assert result.tokens == call.plain(np.argmax)[0]


@examples(300)
@given(calls(rules=REAL))
def test_every_token_is_possible_in_the_target(call):
    tokens = call.generate().tokens
    for i, token in enumerate(tokens):
        assert call.row(tokens[:i])[token] > 0


@examples(400)
@given(calls())
def test_the_figures_add_up(call):
    result = call.generate()
    for each in result.rounds:
        metrics = sd.Metrics.from_rounds([each])
        assert 0 <= each.accepted <= each.tested <= len(each.drafted)
        assert metrics.accepted == each.accepted
        # A correction or bonus, but where a kept guess was a stop id.
        cut = len(each.emitted) == each.accepted
        assert len(each.emitted) == each.accepted + (not cut)
        assert not cut or (each.emitted[-1] in call.stops and each.accepted)
        if each.path is None:
            assert each.emitted[: each.accepted] == each.drafted[: each.accepted]
            rejected = not cut and each.accepted < len(each.drafted)
            assert each.tested == each.accepted + rejected
        else:
            kept = tuple(each.drafted[node] for node in each.path)
            assert each.emitted[: each.accepted] == kept
            assert len(each.path) == each.accepted
            assert (
                list(map(each.parents.__getitem__, each.path))
                == [
                    -1,
                    *each.path[:-1],
                ][: len(each.path)]
            )
    metrics = result.metrics
    assert metrics.target_calls == len(result.rounds)
    assert metrics.emitted == len(result.tokens)
    assert metrics.drafted == sum(len(each.drafted) for each in result.rounds)
    cut = sum(len(each.emitted) == each.accepted for each in result.rounds)
    assert metrics.emitted == metrics.accepted + metrics.target_calls - cut
    for rate, part, of in (
        (metrics.acceptance_rate, metrics.accepted, metrics.tested),
        (metrics.draft_efficiency, metrics.accepted, metrics.drafted),
        (metrics.tokens_per_call, metrics.emitted, metrics.target_calls),
    ):
        assert rate == (part / of if of else None)


class Asked:
    """Notes what is asked of a draft, and what it is told."""

    def __init__(self, draft, log):
        self.draft, self.log = draft, log

    def start(self, prompt):
        self.session, self.text = self.draft.start(prompt), list(prompt)
        return self

    def propose(self, k, rng):
        proposal = self.session.propose(k, rng)
        self.log.append((k, proposal, tuple(self.text)))
        return proposal

    def commit(self, tokens):
        self.text += tokens
        self.session.commit(tokens)


@examples(240)
@given(calls())
def test_a_draft_is_asked_for_no_more_than_may_come_and_told_all(call):
    log = []
    result = call.generate(draft=Asked(call.draft(), log))
    assert same(result) == same(call.generate())
    window = call.target().context_window
    end = len(call.start) + call.max_new_tokens
    end = end if window is None else min(end, window)
    texts = []
    text = call.start
    for each in result.rounds:
        texts.append(text)
        text += each.emitted
    for k, proposal, known in log:
        assert known in texts
        assert 1 <= k < end - len(known)
        deepest = len(proposal.tokens)
        if proposal.parents is not None:
            deepest = max(node_depths(proposal.parents), default=0)
        assert deepest <= k


@examples(200)
@given(calls(chains=CHAINS, trees=TREES))
def test_a_length_sees_every_round_once_and_none_of_another_call(call):
    given = Listed([3, 0, 1])
    call.generate(k=given)
    assert (given.at, given.seen) == (0, [])  # a copy worked, and was forgotten
    seen = []

    class Watched(Listed):
        def __deepcopy__(self, memo):
            return self

        def observe(self, round):
            super().observe(round)
            seen.append(round)

    result = call.generate(k=Watched([3, 0, 1]))
    assert untimed(seen) == untimed(result.rounds)
    for each, k in zip(result.rounds, [3, 0, 1] * 9, strict=False):
        depths = node_depths(each.parents) if each.parents else range(len(each.drafted))
        assert max(depths, default=0) <= k


class Counted:
    """A model that counts the calls of its states, and the tokens they are given."""

    def __init__(self, model):
        self.model, self.calls = model, []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def start(self):
        return _Counted(self, self.model.start())


class _Counted:
    def __init__(self, counted, state):
        self.calls, self.state = counted.calls, state
        self.rewind = state.rewind

    @property
    def length(self):
        return self.state.length

    def extend(self, tokens):
        self.calls.append(len(tokens))
        return self.state.extend(tokens)


@examples(200)
@given(calls(trees=()))
def test_one_call_of_the_target_for_a_round_and_nothing_is_read_twice(call):
    counted = Counted(call.target())
    result = sd.generate(counted, call.prompt, **call.arguments())
    assert len(counted.calls) == len(result.rounds)
    if result.rounds:
        assert counted.calls[0] == len(call.start) + len(result.rounds[0].drafted)
    # Then the token that came last, and the guesses.
    assert counted.calls[1:] == [1 + len(each.drafted) for each in result.rounds[1:]]


class CountedTrees(Counted):
    """The same, of a model whose states read trees."""

    def start(self):
        state = _Counted(self, self.model.start())

        def extend_tree(tokens, parents):
            self.calls.append(len(tokens))
            return state.state.extend_tree(tokens, parents)

        state.extend_tree, state.keep = extend_tree, state.state.keep
        return state


@examples(150)
@given(calls(rules=("verify_tree",), chains=("tree", "said tree")), whole(1, 4))
def test_trees_too_are_read_once_and_in_one_call(call, k):
    model = function_model(call.seed, call.vocab, "all tokens", None, bos_id=0)
    counted = CountedTrees(Reader(model, trees=True, last=False, single=False))
    result = sd.generate(counted, call.prompt, **call.arguments(k=k))
    assert len(counted.calls) == len(result.rounds)
    if result.rounds:
        assert counted.calls[0] == len(call.start) + len(result.rounds[0].drafted)
    assert counted.calls[1:] == [1 + len(each.drafted) for each in result.rounds[1:]]
