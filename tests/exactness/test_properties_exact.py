"""Exactness as a property: random targets, drafts, rules, lengths, filters and stops.

Each example is followed along every branch of the real loop; what comes out has the
target's own distribution.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import toys
from hypothesis import given
from hypothesis import strategies as st
from properties_kit import (
    CHAINS,
    EXACT,
    TREES,
    calls,
    examples,
    flips,
    models,
    number,
    place_of,
    seeds,
    shapes,
    whole,
)

import specdec_lib as sd

warm = st.sampled_from([0.0, 0.5, 1.0, 1.0, 1.6])
GUESSING = ("model", "told", "told", "certain", "unsure", "true chance", "first of")
SMALL = dict(temperatures=warm, trees=TREES)
SMALL["chains"] = (*CHAINS, *GUESSING, *GUESSING)


def inexactness(call, way):
    """Total variation from plain decoding, by recursion over rows read afresh."""
    window = call.target().context_window
    tokens = call.max_new_tokens
    if window is not None:
        tokens = min(tokens, window - len(call.start))
    least = min(call.min_new_tokens, tokens)
    call = replace(call, max_new_tokens=tokens, min_new_tokens=least)
    made = call.arguments()
    options = {name: made[name] for name in ("verify", "stop_ids", "min_new_tokens")}
    return toys.inexactness(
        call.target(),
        made["draft"],
        k=made["k"],
        tokens=tokens,
        sampler=call.sampler,
        way=way if tokens else toys.whole_loop,
        prompt=call.start,
        **options,
    )


by_rule = pytest.mark.parametrize("rule", EXACT)


def small(draw, rule, **budget):
    return draw(calls(rules=(rule,), **SMALL, **budget))


@by_rule
def test_the_examples_guess_and_are_rejected(rule):
    """Else the rest would prove little."""
    found = Counter()

    @examples(150)
    @given(st.data())
    def look(data):
        call = small(data.draw, rule, least_new=2, most_new=2, vocab=(2, 4))

        def events(rng):
            rounds = call.generate(seed=None, rng=rng).rounds
            guessed = any(each.drafted for each in rounds)
            return guessed, any(each.accepted < each.tested for each in rounds)

        law = sd.exact_distribution(events)
        found["guessed"] += any(guessed for guessed, _ in law)
        found["rejected"] += sum(p for (_, no), p in law.items() if no) > 0.01

    look()
    assert found["guessed"] > 40
    assert found["rejected"] > 20


@by_rule
@examples(250)
@given(data=st.data())
def test_every_way_to_decode_two_tokens_is_exact(data, rule):
    call = small(data.draw, rule, least_new=2, most_new=2, vocab=(2, 4))
    assert inexactness(call, toys.whole_loop) < toys.EXACT


@by_rule
@examples(150)
@given(data=st.data())
def test_every_way_to_decode_three_tokens_is_exact(data, rule):
    call = small(data.draw, rule, least_new=3, most_new=3, vocab=(2, 2))
    assert inexactness(call, toys.whole_loop) < toys.EXACT


@by_rule
@examples(60)
@given(data=st.data())
def test_every_way_to_decode_three_of_three_is_exact_round_by_round(data, rule):
    call = small(data.draw, rule, least_new=2, most_new=3, vocab=(3, 3))
    if not isinstance(call.k, int):
        call = replace(call, k=2)  # a fresh start for each round would forget all
    assert inexactness(call, toys.merged) < toys.EXACT


# ---- a rule alone, for distributions of any kind


def rows(seed, n, vocab, sharp):
    """(n, vocab) distributions, some entries exactly 0, some rows certain."""
    g = np.random.default_rng(seed)
    found = g.dirichlet(np.full(vocab, sharp), size=n)
    found[found < 0.03] = 0.0
    return found / found.sum(axis=1, keepdims=True)


def law_of_a_round(p_of, q_of, n, verify, vocab):
    """The law of n + 1 tokens: a round on a chain of n guesses, then the target."""

    def run(rng):
        tokens, q = (), []
        for _ in range(n):
            q.append(q_of(tokens))
            tokens += (rng.categorical(q[-1]),)
        p = np.array([p_of(tokens[:i]) for i in range(n + 1)])
        verdict = verify(p, sd.Proposal(tokens, np.array(q) if q else None), rng)
        return (*tokens[: verdict.accepted], verdict.next_token)

    law = {}
    for text, probability in sd.exact_distribution(run).items():
        toys_law = {(): 1.0}
        for _ in range(n + 1 - len(text)):
            toys_law = {
                (*new, token): chance * float(p_of(text + new)[token])
                for new, chance in toys_law.items()
                for token in range(vocab)
            }
        for new, chance in toys_law.items():
            whole_text = text + new
            law[whole_text] = law.get(whole_text, 0.0) + probability * chance
    return law


@examples(150)
@given(
    seeds,
    whole(1, 4),
    whole(0, 3),
    st.sampled_from(list(EXACT)),
    number(0.1, 2.0),
    flips,
)
def test_a_round_of_any_rule_on_any_rows_is_exact(seed, vocab, n, rule, sharp, equal):
    n = min(n, 2) if vocab > 2 else n
    p_table, q_table = (rows(seed + i, 23, vocab, sharp) for i in range(2))

    def p_of(text):
        return p_table[place_of(text, 23)]

    def q_of(text):
        # Now and then the draft is the target itself.
        same = equal and place_of(text, 23) % 2
        return (p_table if same else q_table)[place_of(text, 23)]

    law = law_of_a_round(p_of, q_of, n, EXACT[rule], vocab)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)
    for text, probability in law.items():
        expected = np.prod([p_of(text[:i])[text[i]] for i in range(n + 1)])
        assert probability == pytest.approx(float(expected), abs=1e-12)


@examples(80)
@given(seeds, whole(2, 3), whole(0, 2), number(0.1, 2.0))
def test_the_block_rule_keeps_no_fewer_than_the_token_rule(seed, vocab, n, sharp):
    p_table, q_table = (rows(seed + i, 23, vocab, sharp) for i in range(2))

    def kept(verify):
        def run(rng):
            tokens, q = (), []
            for _ in range(n):
                q.append(q_table[place_of(tokens, 23)])
                tokens += (rng.categorical(q[-1]),)
            p = np.array([p_table[place_of(tokens[:i], 23)] for i in range(n + 1)])
            proposal = sd.Proposal(tokens, np.array(q) if q else None)
            return verify(p, proposal, rng).accepted

        law = sd.exact_distribution(run)
        return sum(accepted * chance for accepted, chance in law.items())

    tokens, block = kept(sd.verify_tokens), kept(sd.verify_block)
    assert block >= tokens - 1e-12
    assert kept(sd.verify_tree) == pytest.approx(tokens, abs=1e-12)
    if n == 1:
        p, q = p_table[place_of((), 23)], q_table[place_of((), 23)]
        assert tokens == pytest.approx(sd.theory.acceptance(p, q), abs=1e-12)
        assert block == pytest.approx(tokens, abs=1e-12)


@examples(150)
@given(
    models(3),
    models(3),
    shapes(4) | whole(2, 4).map(lambda n: (-1,) * n),
    st.sampled_from(sd.drafts.trees.DRAWS),
)
def test_the_first_token_after_any_tree_is_exact(target, other, shape, way):
    """Whatever its shape: how many guesses and siblings cannot matter."""
    target, draft = target(), sd.TreeDraft(other(), shape=shape, draw=way)
    law = sd.exact_distribution(
        lambda rng: next(
            sd.stream(
                target,
                (1, 2),
                draft=draft,
                k=1,
                max_new_tokens=2,
                verify=sd.verify_tree,
                rng=rng,
            )
        ).emitted[0]
    )
    p = sd.Sampler()(target.start().extend([1, 2])[-1])
    for token in range(3):
        assert law.get(token, 0.0) == pytest.approx(float(p[token]), abs=1e-12)
