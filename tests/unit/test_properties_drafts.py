"""Sessions and states: any order of calls leaves what a fresh reading gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties_kit import (
    CHAINS,
    MODELS,
    TREES,
    a_draft,
    a_model,
    a_sampler,
    a_shape,
    among,
    examples,
    flips,
    fresh_row,
    history,
    seeds,
    shapes,
    some_tokens,
    whole,
)

import specdec_lib as sd
from specdec_lib.models import extend_by_branches, extend_last, node_depths, path_to

# ---- states of models


@pytest.mark.parametrize("kind", MODELS)
@examples(70)
@given(data=st.data())
def test_a_state_after_any_calls_is_as_if_just_read(data, kind):
    draw = data.draw
    vocab = draw(whole(2, 5))
    model = a_model(draw, vocab, (kind,))()
    state, text = model.start(), []
    for _ in range(draw(whole(1, 7))):
        act = draw(among("tree", "extend", "rewind", "tree", "last", "branches"))
        new = some_tokens(draw, vocab, 0, 5)
        if act == "rewind":
            del text[draw(whole(0, len(text))) :]
            state.rewind(len(text))
        elif act in ("extend", "last"):
            text += new
            rows = len(new) if act == "extend" else draw(whole(0, len(new)))
            got = state.extend(new) if act == "extend" else None
            if got is None:
                got = extend_last(state, new, rows)
            assert got.shape == (rows, vocab)
            for i in range(rows):
                expected = fresh_row(model, text[: len(text) - rows + i + 1])
                np.testing.assert_array_equal(got[i], expected)
        else:
            parents = a_shape(draw, len(new), len(new))
            native = act == "tree" and hasattr(state, "extend_tree")
            if native:
                got = state.extend_tree(new, parents)
            elif new:
                got = extend_by_branches(state, new, parents)
            else:
                continue
            for i, row in enumerate(got):
                branch = [new[node] for node in path_to(i, parents)]
                np.testing.assert_array_equal(row, fresh_row(model, [*text, *branch]))
            if native:
                assert state.length == len(text)
                end = draw(whole(-1, len(new) - 1))
                state.keep(path_to(end, parents))
                text += [new[node] for node in path_to(end, parents)]
            else:
                state.rewind(len(text))
        assert state.length == len(text)
    text.append(0)
    np.testing.assert_array_equal(state.extend([0])[-1], fresh_row(model, text))


@examples(60)
@given(st.data())
def test_two_states_of_one_model_share_nothing(data):
    vocab = data.draw(whole(2, 5))
    model = a_model(data.draw, vocab)()
    texts = [some_tokens(data.draw, vocab, 1, 9) for _ in range(2)]
    states = [model.start(), model.start()]
    for i in range(9):
        for state, text in zip(states, texts, strict=True):
            row = state.extend(text[i : i + 1])
            if len(row):
                np.testing.assert_array_equal(row[0], fresh_row(model, text[: i + 1]))
                state.extend(text[::-1])
                state.rewind(i + 1)


# ---- sessions of drafts


def told(proposal):
    """All that a proposal says."""
    q = proposal.probabilities
    rows = None if q is None else np.asarray(q).tolist()
    return proposal.tokens, rows, proposal.parents


by_kind = pytest.mark.parametrize("kind", dict.fromkeys((*CHAINS, *TREES)))


def a_pair(draw, kind):
    vocab = draw(whole(2, 5))
    target = a_model(draw, vocab)
    sampler = a_sampler(draw, vocab)
    return vocab, a_draft(draw, vocab, target, sampler, (kind,))


@by_kind
@examples(40)
@given(data=st.data())
def test_a_session_after_any_rounds_is_as_if_just_begun(data, kind):
    """Whatever was proposed, kept, thrown away or committed unasked."""
    draw = data.draw
    vocab, draft = a_pair(draw, kind)
    text = some_tokens(draw, vocab, 1, 8)
    session = draft().start(tuple(text))
    for _ in range(draw(whole(1, 6))):
        k, seed = draw(among(3, 4, 1, 2, 6)), draw(seeds)
        proposal = None
        for _ in range(draw(among(1, 1, 2, 0))):
            proposal = session.propose(k, sd.SeededRandom(seed))
            again = draft().start(tuple(text)).propose(k, sd.SeededRandom(seed))
            assert told(proposal) == told(again)
        new = some_tokens(draw, vocab, 1, 4)
        if proposal is not None and proposal.tokens and draw(flips):
            node = draw(whole(0, len(proposal.tokens) - 1))
            parents = proposal.parents or range(-1, len(proposal.tokens) - 1)
            new = [proposal.tokens[i] for i in path_to(node, parents)] + new[1:]
        session.commit(tuple(new))
        text += new


@by_kind
@examples(25)
@given(data=st.data())
def test_a_proposal_keeps_to_the_contract(data, kind):
    vocab, draft = a_pair(data.draw, kind)
    prompt = some_tokens(data.draw, vocab, 1, 12)
    k = data.draw(whole(1, 6))
    session = draft().start(tuple(prompt))
    proposal = session.propose(k, sd.SeededRandom(data.draw(seeds)))
    n = len(proposal.tokens)
    assert all(type(token) is int and 0 <= token < vocab for token in proposal.tokens)
    depths = range(1, n + 1)
    if proposal.parents is not None:
        assert all(-1 <= parent < i for i, parent in enumerate(proposal.parents))
        depths = node_depths(proposal.parents)
    assert len(depths) == n
    assert max(depths, default=0) <= k
    if proposal.probabilities is not None:
        q = proposal.probabilities
        assert q.shape == (n, vocab)
        assert (q >= 0).all()
        np.testing.assert_allclose(q.sum(axis=1), 1.0, rtol=0, atol=1e-9)
        assert all(q[i, token] > 0 for i, token in enumerate(proposal.tokens))


@by_kind
@examples(30)
@given(data=st.data())
def test_a_draft_draws_from_what_it_reports(data, kind):
    """Exactly: every proposal has the probability that its own rows say."""
    vocab, draft = a_pair(data.draw, kind)
    prompt = tuple(some_tokens(data.draw, vocab, 1, 6))
    k = data.draw(among(2, 1))
    made = draft()
    kept = {}

    def run(rng):
        proposal = made.start(prompt).propose(k, rng)
        kept[repr(told(proposal))] = proposal
        return repr(told(proposal))

    for says, probability in sd.exact_distribution(run, max_paths=200_000).items():
        proposal = kept[says]
        reported = 1.0
        if proposal.probabilities is not None:
            q = proposal.probabilities
            for i, token in enumerate(proposal.tokens):
                reported *= q[i, token]
        assert probability == pytest.approx(reported, rel=1e-9)


@by_kind
@examples(25)
@given(data=st.data())
def test_sessions_share_no_state(data, kind):
    vocab, draft = a_pair(data.draw, kind)
    made = draft()
    texts = [some_tokens(data.draw, vocab, 1, 6) for _ in range(2)]
    seed = data.draw(seeds)
    alone = []
    for text in texts:
        session = draft().start(tuple(text))
        session.commit((text[0],))
        alone.append(told(session.propose(3, sd.SeededRandom(seed))))
    sessions = [made.start(tuple(text)) for text in texts]
    for session, text in zip(sessions, texts, strict=True):
        session.propose(2, sd.SeededRandom(seed + 1))
        session.commit((text[0],))
    together = [told(each.propose(3, sd.SeededRandom(seed))) for each in sessions]
    assert together == alone


@examples(150)
@given(st.data(), flips)
def test_rows_of_a_draft_are_its_models_after_its_own_guesses(data, tree):
    """Also as its processors see them."""
    draw = data.draw
    vocab = draw(whole(2, 5))
    model, sampler = a_model(draw, vocab)(), a_sampler(draw, vocab, among(1.0, 0.4))
    draft = sd.ModelDraft(model, sampler)
    if tree:
        broad = among(sd.tree_shape((2, 1, 1)), sd.tree_shape((3, 2)))
        shape = draw(broad) if draw(flips) else a_shape(draw, 6, 1)
        draft = sd.TreeDraft(model, sampler, shape, "with replacement")
    text = some_tokens(draw, vocab, 1, 6)
    proposal = draft.start(tuple(text)).propose(5, sd.SeededRandom(draw(seeds)))
    parents = proposal.parents or range(-1, len(proposal.tokens) - 1)
    for i, row in enumerate(proposal.probabilities):
        read = text + [proposal.tokens[node] for node in path_to(i, parents)[:-1]]
        np.testing.assert_array_equal(row, sampler(fresh_row(model, read), read))


# ---- copying


def occurrences(text, ngram, end):
    """Where what followed ``ngram`` stands, for each place of it before ``end``."""
    n = len(ngram)
    return [i + n for i in range(end - n) if text[i : i + n] == ngram]


@examples(150)
@given(st.data())
def test_lookup_is_a_search_of_the_whole_text(data):
    draw = data.draw
    text = some_tokens(draw, draw(whole(1, 3)), 0, 24)
    longest = draw(whole(1, 4))
    shortest = draw(whole(1, longest))
    earliest, reach = draw(flips), draw(among(None, 0.4, 1.0, 2.5))
    k = draw(whole(1, 6))
    cut = draw(whole(0, len(text)))
    session = sd.PromptLookup(longest, shortest, earliest, reach).start(text[:cut])
    if text[cut:]:
        session.commit(text[cut:])
    expected = ()
    for n in range(min(longest, len(text)), shortest - 1, -1):
        places = occurrences(text, text[len(text) - n :], len(text))
        if places:
            place = places[0] if earliest else places[-1]
            most = k if reach is None else min(k, int(reach * n))
            expected = tuple(text[place : place + most])
            break
    assert session.propose(k).tokens == expected


@examples(300)
@given(st.data())
def test_the_longest_known_end_is_copied_from_the_text_or_the_history(data):
    draw = data.draw
    vocab = draw(whole(1, 3))
    text = some_tokens(draw, vocab, 1, 20)
    others = [some_tokens(draw, vocab, 1, 12) for _ in range(draw(whole(0, 2)))]
    longest, shortest = draw(whole(3, 6)), draw(whole(1, 3))
    kept = sd.SuffixHistory(max_match=longest)
    for other in others:
        kept.add(other)
    draft = sd.SuffixDraft(kept, max_match=longest, min_match=shortest, threshold=0.0)
    session = draft.start(text)
    proposal = session.propose(1)
    found = 0  # the longest end of the text that was followed by something
    for n in range(1, min(longest, len(text)) + 1):
        end = text[len(text) - n :]
        if occurrences(text, end, len(text)) or any(
            occurrences(other, end, len(other)) for other in others
        ):
            found = n
    assert session.match == (found if found >= shortest else 0)
    assert len(proposal.tokens) == (found >= shortest)
    if proposal.tokens:
        end = text[len(text) - found :]
        after = [text[i] for i in occurrences(text, end, len(text))]
        for other in () if after else others:  # of equals the text's own
            after += [other[i] for i in occurrences(other, end, len(other))]
        assert after.count(proposal.tokens[0]) == max(map(after.count, after))


@examples(60)
@given(st.data())
def test_a_history_holds_the_last_half_and_learns_from_nobody(data):
    draw = data.draw
    kept = sd.SuffixHistory(draw(whole(2, 20)))
    for _ in range(draw(whole(1, 4))):
        kept.add(some_tokens(draw, 3, 0, 9))
        assert len(kept) <= kept.max_tokens
        assert len(kept) >= min(kept.version, kept.max_tokens // 2)
    before = len(kept), kept.version
    session = sd.SuffixDraft(kept, threshold=0.0).start([0, 1, 2])
    session.propose(4)
    session.commit([0, 1])
    assert (len(kept), kept.version) == before


@examples(60)
@given(st.data())
def test_a_history_that_grows_under_a_session_is_found(data):
    draw = data.draw
    seed, new = draw(seeds), some_tokens(draw, 3, 1, 12)
    prompt = some_tokens(draw, 3, 1, 9)
    growing, whole_one = history(seed, 3), history(seed, 3)
    session = sd.SuffixDraft(growing, threshold=0.0).start(prompt)
    session.propose(3)
    growing.add(new)
    whole_one.add(new)
    later = sd.SuffixDraft(whole_one, threshold=0.0).start(prompt)
    # What each learnt of its text may differ; the place they copy from does not.
    assert session.propose(4).tokens == later.propose(4).tokens
    assert session.match == later.match


# ---- trees


@examples(80)
@given(st.data(), shapes(), among(*sd.drafts.trees.DRAWS))
def test_a_tree_has_its_shape_but_where_nothing_is_left(data, shape, way):
    draw = data.draw
    vocab, k = draw(whole(2, 5)), draw(whole(1, 4))
    model, sampler = a_model(draw, vocab), a_sampler(draw, vocab)
    draft = sd.TreeDraft(model(), sampler, shape, way)
    prompt = tuple(some_tokens(draw, vocab, 1, 5))
    proposal = draft.start(prompt).propose(k, sd.SeededRandom(draw(seeds)))
    assert max(node_depths(proposal.parents), default=0) <= k
    children = {}
    for node, parent in enumerate(proposal.parents):
        children.setdefault(parent, []).append(proposal.tokens[node])
    # The order is that of the model's tokens where they are not drawn.
    sure = way == "best" or sampler.temperature == 0
    used = sd.Sampler(processors=sampler.processors) if sure else sampler

    def row_after(branch):
        text = [*prompt, *branch]
        return used(model().start().extend(text)[-1], text)

    distinct = sure or way == "without replacement"
    if shape:
        possible = np.count_nonzero(row_after([])) if distinct else len(shape)
        assert len(children.get(-1, ())) == min(shape.count(-1), possible)
    for parent, siblings in children.items():
        assert not distinct or len(set(siblings)) == len(siblings)
        if sure:
            branch = [proposal.tokens[i] for i in path_to(parent, proposal.parents)]
            best = np.argsort(-row_after(branch), kind="stable")[: len(siblings)]
            assert siblings == best.tolist()
