"""Prompt lookup, beside a scan of the whole text."""

import inspect
import itertools
import time
import types

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib.drafts import lookup


def scan(text, k, *, max_match=3, min_match=1, earliest=False):
    """The guess and the length of its match, by looking at every place."""
    text = tuple(text)
    for n in range(min(max_match, len(text)), min_match - 1, -1):
        # Every place where the run stands and another token follows it.
        places = [
            i for i in range(len(text) - n) if text[i : i + n] == text[len(text) - n :]
        ]
        if places:
            after = places[0 if earliest else -1] + n
            return text[after : after + k], n
    return (), 0


MATCHES = [(high, low) for high in range(1, 5) for low in range(1, high + 1)]
EVERY_TEXT = [
    text
    for vocab_size, longest in ((2, 8), (3, 5))
    for length in range(longest + 1)
    for text in itertools.product(range(vocab_size), repeat=length)
]


def disagreements(PromptLookup, texts=EVERY_TEXT):
    """Texts and settings for which the draft is not the scan."""
    for text in texts:
        for max_match, min_match in MATCHES:
            for earliest in (False, True):
                draft = PromptLookup(max_match, min_match, earliest)
                # The prompt is one part of the text, and two commits are the rest.
                cut = (len(text) + max_match) % (len(text) + 1)
                session = draft.start(text[:cut])
                session.commit(text[cut : cut + 1])
                session.commit(text[cut + 1 :])
                found = session.propose(10).tokens, session.match
                settings = {
                    "max_match": max_match,
                    "min_match": min_match,
                    "earliest": earliest,
                }
                if found != scan(text, 10, **settings):
                    yield text, settings, found


def test_every_short_text_and_every_match_length():
    assert not list(itertools.islice(disagreements(sd.PromptLookup), 3))


@pytest.mark.parametrize("seed", range(5))
def test_long_texts_all_the_way(seed):
    g = np.random.default_rng(seed)
    text = g.integers(0, 2 + seed, size=300).tolist()
    session = sd.PromptLookup(5).start(text[:3])
    for i in range(3, 300):
        assert session.propose(4).tokens == scan(text[:i], 4, max_match=5)[0]
        session.commit((text[i],))


FAULTS = {
    "the end of the text finds itself": [
        ("            text.append(token)", "            pass"),
        ("            place = len(text)", "            text.append(token); "
         "place = len(text)"),
    ],
    "a token early": [("text[place : place + k]", "text[place - 1 : place - 1 + k]")],
    "a token late": [("text[place : place + k]", "text[place + 1 : place + 1 + k]")],
    "the shortest match first": [
        ("range(min(draft.max_match, len(text)), draft.min_match - 1, -1)",
         "range(draft.min_match, min(draft.max_match, len(text)) + 1)"),
    ],
    "a match length too few": [("min(draft.max_match, place) + 1",
                                "min(draft.max_match, place)")],
    "no continuation shorter than k": [
        ("tuple(text[place : place + k])",
         "tuple(text[place : place + k]) if place + k <= len(text) else ()"),
    ],
    "earliest for latest": [("if draft.earliest", "if not draft.earliest")],
    "token 0 counts as nothing": [("text.append(token)", "text.append(token or 1)")],
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault):
    source = inspect.getsource(lookup)
    for old, new in FAULTS[fault]:
        assert source.count(old) == 1, f"fragment not there exactly once: {old!r}"
        source = source.replace(old, new)
    mutant = types.ModuleType(lookup.__name__)
    mutant.__package__ = lookup.__package__
    exec(compile(source, "<mutant of lookup>", "exec"), vars(mutant))
    assert next(disagreements(mutant.PromptLookup), None)


def test_the_example_of_the_fault_list():
    """A continuation shorter than k is proposed, and the end never matches itself."""
    session = sd.PromptLookup(max_match=2).start([1, 2, 3, 1, 2])
    assert session.propose(10).tokens == (3, 1, 2)
    assert session.match == 2


@pytest.mark.parametrize("length", range(6))
def test_any_prompt_length(length):
    """Shorter than the match, or empty: no error, and no guess without a match."""
    for max_match in range(1, 6):
        session = sd.PromptLookup(max_match).start(range(length))
        assert session.propose(4).tokens == ()
        session.commit(range(length))
        assert session.propose(4).tokens == tuple(range(length))[:4]


def test_defaults():
    draft = sd.PromptLookup()
    assert (draft.max_match, draft.min_match, draft.earliest) == (3, 1, False)
    proposal = draft.start((4, 5, 4)).propose(2, sd.SeededRandom(0))
    assert proposal.tokens == (5, 4)
    assert proposal.probabilities is None
    assert proposal.parents is None


def test_every_setting_changes_a_proposal():
    text = (1, 2, 3, 4, 9, 2, 3, 5, 9, 1, 2, 3)
    assert sd.PromptLookup().start(text).propose(2).tokens == (4, 9)
    assert sd.PromptLookup(max_match=2).start(text).propose(2).tokens == (5, 9)
    earliest = sd.PromptLookup(max_match=2, earliest=True)
    assert earliest.start(text).propose(2).tokens == (4, 9)
    assert sd.PromptLookup(4, 4).start(text).propose(2).tokens == ()
    assert sd.PromptLookup(reach=0.5).start(text).propose(8).tokens == (4,)


@pytest.mark.parametrize(
    "reach, guesses", [(0.1, 0), (0.34, 1), (1, 3), (1.5, 4), (9, 5)]
)
def test_reach_limits_the_guess_by_the_length_of_the_match(reach, guesses):
    session = sd.PromptLookup(reach=reach).start([1, 2, 3, 7, 8, 9, 5, 6, 1, 2, 3])
    assert len(session.propose(5).tokens) == guesses
    assert session.match == 3


def test_proposing_changes_nothing_but_what_it_reports():
    session = sd.PromptLookup().start([1, 2, 1])
    assert session.propose(0).tokens == ()
    assert session.propose(1).tokens == (2,)
    assert session.propose(9).tokens == (2, 1)
    session.commit(())
    assert session.propose(9).tokens == (2, 1)
    session.commit([3])
    assert session.propose(9).tokens == ()
    assert session.match == 0


def test_sessions_share_nothing():
    draft = sd.PromptLookup()
    draft.start([1, 2, 3, 4, 1, 2]).commit([3, 4, 5])
    assert draft.start([1, 2]).propose(4).tokens == ()


def test_arrays_and_numpy_integers_are_tokens():
    session = sd.PromptLookup().start(np.array([3, 4, 3]))
    session.commit([np.int64(4), np.int32(3)])
    tokens = session.propose(3).tokens
    assert tokens == (4, 3)
    assert all(type(token) is int for token in tokens)


@pytest.mark.parametrize(
    "settings, error, message",
    [
        (dict(max_match=0), ValueError, "max_match must be 1 or more, got 0"),
        (dict(min_match=0), ValueError, "min_match must be 1 or more, got 0"),
        (dict(max_match=2, min_match=3), ValueError,
         "min_match must be at most max_match = 2, got 3"),
        (dict(max_match=2.0), TypeError, "max_match must be an integer, got 2.0"),
        (dict(min_match=True), TypeError, "min_match must be an integer, got True"),
        (dict(reach="far"), TypeError, "reach must be a number or None, got 'far'"),
        (dict(reach=0), ValueError, "reach must be above 0 and finite, got 0"),
        (dict(reach=float("nan")), ValueError, "reach must be above 0 and finite"),
    ],
)  # fmt: skip
def test_bad_settings(settings, error, message):
    with pytest.raises(error, match=message):
        sd.PromptLookup(**settings)


@pytest.mark.parametrize(
    "tokens, error, message",
    [
        ([-1], ValueError, "tokens must be inside 0"),
        ([0.5], TypeError, "tokens must be integers"),
        ([[1]], ValueError, "tokens must be one-dimensional"),
    ],
)
def test_bad_tokens(tokens, error, message):
    with pytest.raises(error, match=message):
        sd.PromptLookup().start(tokens)
    session = sd.PromptLookup().start([1, 2, 1])
    with pytest.raises(error, match=message):
        session.commit(tokens)
    assert session.propose(2).tokens == (2, 1)


def test_the_work_does_not_grow_with_the_text():
    """Eighty times the text; a scan would take about eighty times as long."""

    def seconds(length):
        text = np.random.default_rng(0).integers(0, 50, size=length).tolist()
        session = sd.PromptLookup().start(text)
        times = []
        for _ in range(15):
            begin = time.process_time()
            for _ in range(200):
                session.propose(8)
            times.append(time.process_time() - begin)
        return min(times)

    assert seconds(80_000) < 8 * seconds(1_000)


def test_the_same_as_the_lookup_of_transformers():
    """Its rule is ours with earliest=True, where no processor forbids a token."""
    reason = "transformers and torch are not installed; they are optional"
    torch = pytest.importorskip("torch", reason=reason)
    generator = pytest.importorskip(
        "transformers.generation.candidate_generator", reason=reason
    )
    g = np.random.default_rng(0)
    for case in range(200):
        text = g.integers(0, 2 + case % 4, size=int(g.integers(1, 40))).tolist()
        peer = generator.PromptLookupCandidateGenerator(
            num_output_tokens=5, max_matching_ngram_size=3, max_length=10_000
        )
        found, _ = peer.get_candidates(torch.tensor([text]))
        session = sd.PromptLookup(max_match=3, earliest=True).start(text)
        assert list(session.propose(5).tokens) == found[0, len(text) :].tolist()
