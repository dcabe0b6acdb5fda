"""The first draft that proposes, and a model mixed with a cache."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import specdec_lib as sd

V = 4
TABLE = np.random.default_rng(7).normal(size=(V, V, V)) * 2
MODEL = sd.FunctionModel(
    lambda seq: TABLE[seq[-2] if len(seq) > 1 else 0, seq[-1]], V, bos_id=0
)


def model_row(sequence):
    weights = np.exp(MODEL.logits_after(sequence))
    return weights / weights.sum()


# ---- the cache


def counted_anew(sequence, window, order):
    """What followed the longest context found, by a scan of the last tokens."""
    recent = sequence[-window:]
    for size in range(order - 1, 0 if order > 1 else -1, -1):
        context = recent[len(recent) - size :]
        found = np.zeros(V)
        for end in range(size, len(recent)):
            if recent[end - size : end] == context:
                found[recent[end]] += 1
        if found.any() and len(context) == size:
            return found / found.sum()
    return None


def mixed_anew(sequence, weight, window, order):
    cache = counted_anew(tuple(sequence), window, order)
    model = model_row(sequence)
    return model if cache is None else (1 - weight) * model + weight * cache


TOKENS = st.lists(st.integers(0, V - 1), min_size=1, max_size=25)
SETTINGS = st.tuples(
    st.sampled_from([0.0, 0.3, 1.0]), st.integers(1, 12), st.integers(1, 5)
)


@settings(max_examples=200, deadline=None)
@given(TOKENS, SETTINGS)
def test_rows_equal_a_count_from_scratch(tokens, chosen):
    weight, window, order = chosen
    model = sd.CacheModel(MODEL, weight=weight, window=window, order=order)
    rows = np.exp(model.start().extend(tokens))
    assert rows.shape == (len(tokens), V)
    assert np.abs(rows.sum(axis=1) - 1).max() < 1e-12
    for i, row in enumerate(rows, 1):
        assert np.abs(row - mixed_anew(tokens[:i], *chosen)).max() < 1e-14


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(TOKENS, st.floats(0, 1)), max_size=5), TOKENS, SETTINGS)
def test_a_rewind_leaves_no_trace(steps, last, chosen):
    """Read, rewind to anywhere, read on: bit for bit as if the rest had never been."""
    weight, window, order = chosen
    model = sd.CacheModel(MODEL, weight=weight, window=window, order=order)
    state, kept = model.start(), []
    for tokens, share in steps:
        state.extend(tokens)
        kept += tokens
        kept = kept[: int(share * len(kept))]
        state.rewind(len(kept))
        assert state.length == len(kept)
    fresh = model.start()
    fresh.extend(kept)
    assert (state.extend(last) == fresh.extend(last)).all()


def test_a_row_by_hand():
    """After 1 2 came 3 twice and 0 once; 1 2 itself stands at the end."""
    flat = sd.FunctionModel(lambda seq: np.zeros(V), V)
    text = [1, 2, 3, 1, 2, 3, 1, 2, 0, 1, 2]

    def row(**options):
        return np.exp(sd.CacheModel(flat, **options).start().extend(text)[-1])

    expected = [0.125 + 0.5 / 3, 0.125, 0.125, 0.125 + 1 / 3]
    assert row(weight=0.5, order=3) == pytest.approx(expected, abs=1e-15)
    # Of the last five tokens, 1 2 0 1 2, only 0 came after 1 2.
    assert row(weight=0.5, order=3, window=5) == pytest.approx([0.625] + [0.125] * 3)
    # A context of five tokens did not occur before: the longest that did counts.
    assert row(weight=0.5, order=6) == pytest.approx(expected, abs=1e-15)
    # Kuhn and De Mori's cache: how often each token occurred.
    frequencies = np.array([1, 4, 4, 2]) / 11
    assert row(weight=1, order=1) == pytest.approx(frequencies, abs=1e-15)


def test_no_weight_is_the_model_itself():
    tokens = [0, 1, 2, 0, 1, 2, 0, 1]
    rows = sd.CacheModel(MODEL, weight=0).start().extend(tokens)
    for i, row in enumerate(rows, 1):
        assert np.abs(np.exp(row) - model_row(tokens[:i])).max() < 1e-15


def test_all_weight_on_a_cache_that_knows_nothing_is_the_model():
    state = sd.CacheModel(MODEL, weight=1, order=3).start()
    rows = np.exp(state.extend([0, 1, 2]))  # no token has occurred before
    for i, row in enumerate(rows, 1):
        assert np.abs(row - model_row([0, 1, 2][:i])).max() < 1e-15
    (known,) = state.extend([0])  # what followed 0 was 1, and nothing else
    assert known.tolist() == [-np.inf, 0.0, -np.inf, -np.inf]


def test_it_mixes_with_an_ngram_models_own_probabilities():
    ngram = sd.NGramModel.fit([[2, 3, 2, 2, 3]], order=2, vocab_size=V, bos_id=0)
    row = np.exp(sd.CacheModel(ngram, weight=0.25).start().extend([0, 2, 3, 2])[-1])
    expected = 0.75 * ngram.probabilities([2]) + 0.25 * np.eye(V)[3]
    assert np.abs(row - expected).max() < 1e-15
    assert row[0] == 0  # what neither of them allows


def test_states_share_nothing():
    model = sd.CacheModel(MODEL, weight=0.5)
    one, other = model.start(), model.start()
    one.extend([1, 2, 1, 2])
    rows = other.extend([2, 1, 3])
    assert (rows == model.start().extend([2, 1, 3])).all()


def test_what_is_kept_does_not_grow_with_the_text():
    state = sd.CacheModel(MODEL, window=20, order=3).start()
    tokens = np.random.default_rng(0).integers(0, V, 400).tolist()
    state.extend(tokens)
    counted = sum(sum(after.values()) for after in state._counts.values())
    assert counted == 19 + 18  # the runs of two and of three in 20 tokens
    state.rewind(1)
    assert not state._counts


def test_it_is_a_model_like_its_own():
    short = sd.FunctionModel(MODEL.logits_after, V, bos_id=3, context_window=5)
    model = sd.CacheModel(short)
    assert (model.vocab_size, model.bos_id, model.context_window) == (V, 3, 5)
    state = model.start()
    state.extend([1, 2, 1])
    assert state.extend([]).shape == (0, V)
    before = model.start().extend([1, 2, 1, 2])[-1]
    for bad in ([1, 2, 3], [9], [0.5]):
        with pytest.raises((ValueError, TypeError)):
            state.extend(bad)
    for bad in (-1, 4):
        with pytest.raises(ValueError, match=r"length must be inside 0 .. 3"):
            state.rewind(bad)
    assert (state.extend([2])[-1] == before).all()  # as if nothing had been asked


def test_as_a_draft_it_reports_what_it_sampled():
    sampler = sd.Sampler(0.7, top_k=3)
    draft = sd.ModelDraft(sd.CacheModel(MODEL, weight=0.5, order=2), sampler)
    prompt = [1, 2, 1]
    proposal = draft.start(prompt).propose(3, sd.SeededRandom(0))
    for i, row in enumerate(proposal.probabilities):
        mixture = mixed_anew([*prompt, *proposal.tokens[:i]], 0.5, 500, 2)
        assert np.abs(row - sampler(np.log(mixture))).max() < 1e-12


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"weight": -0.1}, ValueError, "weight must be inside 0 .. 1, got -0.1"),
        ({"weight": 1.1}, ValueError, "weight must be inside 0 .. 1, got 1.1"),
        ({"weight": float("nan")}, ValueError, "weight must be inside 0 .. 1, got nan"),
        ({"weight": "half"}, TypeError, "weight must be a number, got 'half'"),
        ({"weight": True}, TypeError, "weight must be a number, got True"),
        ({"window": 0}, ValueError, "window must be 1 or more, got 0"),
        ({"window": 2.0}, TypeError, "window must be an integer, got 2.0"),
        ({"order": 0}, ValueError, "order must be 1 or more, got 0"),
        ({"model": None}, TypeError, "model must be a language model, got None"),
        ({"model": sd.ModelDraft(MODEL)}, TypeError, "must be a language model"),
    ],
)
def test_bad_caches(options, error, message):
    with pytest.raises(error, match=message):
        sd.CacheModel(**{"model": MODEL, **options})


# ---- the first that proposes


class Scripted:
    """Proposes what it was told to after each length of the text, and keeps a log."""

    def __init__(self, proposals, vocab_size=None):
        self.proposals = proposals
        if vocab_size is not None:
            self.vocab_size = vocab_size

    def start(self, prompt):
        self.sequence, self.asked = list(prompt), []
        return self

    def propose(self, k, rng):
        self.asked.append((len(self.sequence), k))
        return self.proposals.get(len(self.sequence), sd.Proposal(()))

    def commit(self, tokens):
        self.sequence += tokens


def test_the_first_proposal_is_handed_on_as_it_is():
    sure = sd.Proposal((3,))
    tree = sd.Proposal((1, 2), np.full((2, V), 0.25), parents=(-1, -1))
    first, second = Scripted({3: sure}), Scripted({2: tree, 3: tree})
    session = sd.FirstOf([first, second]).start((0, 1))
    assert session.last is None
    assert session.propose(5, None) is tree
    assert session.last == 1
    session.commit((1,))
    assert session.propose(4, None) is sure
    assert session.last == 0
    session.commit((3, 3))
    assert session.propose(4, None).tokens == ()
    assert session.last is None
    assert first.asked == [(2, 5), (3, 4), (5, 4)]
    assert second.asked == [(2, 5), (5, 4)]  # not where the first had a guess
    assert first.sequence == second.sequence == [0, 1, 1, 3, 3]


@pytest.mark.parametrize("asked", list(itertools.product((False, True), repeat=3)))
def test_a_model_behind_it_stays_right_asked_or_not(asked):
    """A model that sits out some rounds reports the rows of a fresh one afterwards."""
    text, lengths = [0, 1], []
    committed = ([2], [3, 0], [1, 1, 2])
    for ask, tokens in zip(asked, committed, strict=True):
        lengths += [] if ask else [len(text)]
        text += tokens
    first = Scripted({length: sd.Proposal((3, 3)) for length in lengths})
    session = sd.FirstOf((first, sd.ModelDraft(MODEL))).start((0, 1))
    for ask, tokens in zip(asked, committed, strict=True):
        session.propose(3, sd.SeededRandom(1))
        assert session.last == int(ask)
        session.commit(tuple(tokens))
    found = session.propose(3, sd.SeededRandom(5))
    fresh = sd.ModelDraft(MODEL).start(text).propose(3, sd.SeededRandom(5))
    assert found.tokens == fresh.tokens
    assert np.abs(found.probabilities - fresh.probabilities).max() < 1e-15


def test_which_part_proposed_can_be_found_from_the_text():
    """Where it is decided by the text, a second session follows the run's rounds."""
    first = Scripted({3: sd.Proposal((3,)), 5: sd.Proposal((3, 2))})
    draft = sd.FirstOf([first, sd.ModelDraft(MODEL)])
    run = sd.generate(MODEL, (0, 1), draft=draft, k=2, max_new_tokens=12, seed=0)
    session, length = draft.start((0, 1)), 2
    for each in run.rounds[:-1]:
        session.propose(2, sd.SeededRandom(0))
        assert session.last == (0 if length in (3, 5) else 1)
        session.commit(each.emitted)
        length += len(each.emitted)


def test_sessions_share_nothing():
    draft = sd.FirstOf([sd.ModelDraft(MODEL)])
    one, other = draft.start((1,)), draft.start((1,))
    one.propose(2, sd.SeededRandom(0))
    one.commit((3, 3))
    assert other.last is None
    found = other.propose(3, sd.SeededRandom(4))
    assert found.tokens == draft.start((1,)).propose(3, sd.SeededRandom(4)).tokens


def test_the_vocabulary_is_that_of_the_parts():
    bare = Scripted({})
    assert sd.FirstOf([bare, sd.ModelDraft(MODEL)]).vocab_size == V
    assert not hasattr(sd.FirstOf([bare]), "vocab_size")
    nested = sd.FirstOf([sd.FirstOf([bare]), sd.FirstOf([Scripted({}, V)])])
    assert nested.vocab_size == V
    assert sd.generate(MODEL, (0,), draft=sd.FirstOf([bare]), max_new_tokens=3).tokens
    with pytest.raises(ValueError, match="vocabulary of 4 tokens, got 7"):
        sd.generate(MODEL, (0,), draft=sd.FirstOf([Scripted({}, 7)]), max_new_tokens=1)


@pytest.mark.parametrize(
    "drafts, error, message",
    [
        ([], ValueError, "drafts must hold at least one draft, got none"),
        ((), ValueError, "drafts must hold at least one draft, got none"),
        (None, TypeError, "drafts must be a list of drafts, got None"),
        (sd.ModelDraft(MODEL), TypeError, "drafts must be a list of drafts"),
        ([MODEL], TypeError, r"got a language model, .*; give ModelDraft\(model\)"),
        ([sd.ModelDraft(MODEL), 3], TypeError, r"must have start\(prompt\), got 3"),
        (
            [Scripted({}, 3), Scripted({}), Scripted({}, 5)],
            ValueError,
            r"drafts must share one vocabulary, got sizes \[3, 5\]",
        ),
    ],
)
def test_bad_parts(drafts, error, message):
    with pytest.raises(error, match=message):
        sd.FirstOf(drafts)
