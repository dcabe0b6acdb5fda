"""The suffix automaton and its draft, beside plain scans of the text."""

import inspect
import itertools
import math
import types
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import specdec_lib as sd
from specdec_lib.drafts import automaton as automata
from specdec_lib.drafts import suffixes

# ---- the truth, by looking at every place


def runs_of(text, longest):
    """Every run of at most ``longest`` tokens, with where it ends."""
    for end in range(len(text) + 1):
        for start in range(max(0, end - longest), end + 1):
            yield tuple(text[start:end]), end


def naive_counts(texts, longest):
    """How often each run was seen, and the tokens that followed it, in order."""
    seen, after = Counter(), {}
    for text in texts:
        for run, end in runs_of(text, longest):
            seen[run] += 1
            if end < len(text):
                after.setdefault(run, []).append(text[end])
    return seen, after


def favourite(tokens):
    """The most frequent one, the most recent on ties."""
    counts = Counter(tokens)
    most = max(counts.values())
    return next(token for token in reversed(tokens) if counts[token] == most)


class NaiveHistory:
    """Generations of pieces of text, as the rule of the memory says."""

    def __init__(self, max_tokens, max_match):
        self.half, self.max_match = max_tokens // 2, max_match
        self.generations = [[[]]]  # newest first

    def begin(self):
        self.generations[0].append([])

    def append(self, token):
        if sum(map(len, self.generations[0])) >= self.half:
            self.generations = [[[]], self.generations[0]]
        self.generations[0][-1].append(token)

    def match(self, text):
        """For each generation: the longest end of ``text`` that has a follower, and
        all its followers."""
        for pieces in self.generations:
            _, after = naive_counts(pieces, self.max_match)
            for n in range(min(self.max_match, len(text)), -1, -1):
                followers = after.get(tuple(text[len(text) - n :]))
                if followers:
                    yield n, followers, pieces
                    break


class NaiveSuffix:
    """The rule of SuffixDraft, without an automaton."""

    def __init__(self, draft, shared=None):
        self.draft, self.shared = draft, shared
        self.own = NaiveHistory(draft.max_tokens, draft.max_match)
        self.text = []
        self.doubt = suffixes.DOUBT

    def sources(self):
        found = list(self.own.match(self.text))
        return found + (list(self.shared.match(self.text)) if self.shared else [])

    def longest(self):
        found = self.sources()
        return max(found, key=lambda each: each[0]) if found else None

    def chance(self, n, followers):
        counts = Counter(followers)
        whole = len(followers) + len(counts) - 1 + self.doubt / n
        return counts[favourite(followers)] / whole

    def commit(self, tokens):
        for token in tokens:
            best = self.longest()
            if best and best[0] >= self.draft.min_match:
                n, followers, _ = best
                error = self.chance(n, followers) - (favourite(followers) == token)
                self.doubt *= math.exp(suffixes.LEARNING_RATE * error)
                self.doubt = min(max(self.doubt, 0.5), 50.0)
            self.own.append(token)
            self.text.append(token)

    def propose(self, k):
        best = self.longest()
        tokens, chance = [], 1.0
        if best is None or best[0] < self.draft.min_match:
            return (), 0
        first, _, pieces = best
        mine = any(pieces is each for each in self.own.generations)
        longest = (self.own if mine else self.shared).max_match
        _, after = naive_counts(pieces, longest)
        while len(tokens) < k:
            text = self.text + tokens
            n = next(
                n
                for n in range(min(longest, len(text)), -1, -1)
                if tuple(text[len(text) - n :]) in after
            )
            if n < self.draft.min_match:
                break
            followers = after[tuple(text[len(text) - n :])]
            chance *= self.chance(n, followers)
            if chance < self.draft.threshold:
                break
            tokens.append(favourite(followers))
        return tuple(tokens), first


# ---- the automaton


def automaton_of(texts, max_match=32, library=suffixes):
    automaton = library.SuffixAutomaton(max_match)
    for text in texts:
        automaton.begin()
        for token in text:
            automaton.append(token)
    return automaton


def state_of(automaton, run):
    state = 0
    for token in run:
        state = automaton.follow[state].get(token)
        if state is None:
            return None
    return state


def wrong_counts(texts, max_match, library=suffixes):
    """Runs that the automaton counts wrongly, up to its bound."""
    automaton = automaton_of(texts, max_match, library)
    seen, after = naive_counts(texts, max_match + 1)
    for run, count in seen.items():
        if not run:
            continue
        state = state_of(automaton, run)
        if state is None or automaton.count[state] != count:
            yield run
        elif len(run) <= max_match:
            followers = after.get(run, [])
            best = automaton.token[automaton.best[state]] if followers else None
            found = automaton.followed[state], set(automaton.follow[state]), best
            expected = favourite(followers) if followers else None
            if found != (len(followers), set(followers), expected):
                yield run


TEXTS = [
    text
    for vocab_size, longest in ((2, 9), (3, 6))
    for length in range(longest + 1)
    for text in itertools.product(range(vocab_size), repeat=length)
]
SOME_TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=14), max_size=4)


def test_it_holds_the_runs_of_the_text_and_no_others():
    for text in TEXTS:
        automaton = automaton_of([text])
        runs = {run for run, _ in runs_of(text, len(text))}
        for length in range(6):
            for run in itertools.product(range(3), repeat=length):
                assert (state_of(automaton, run) is not None) == (run in runs)
        # Every path from the root is a run: as many paths as there are runs.
        paths = {0: 1}
        length = automaton.length
        for state in sorted(range(len(length)), key=length.__getitem__):
            for reached in automaton.follow[state].values():
                paths[reached] = paths.get(reached, 0) + paths[state]
        assert sum(paths.values()) == len(runs)


def test_at_most_two_states_a_token():
    for text in TEXTS:
        assert len(automaton_of([text]).length) <= max(2 * len(text) - 1, len(text) + 1)


def test_links_and_lengths():
    """A state's shortest run is one longer than its link's longest."""
    for text in TEXTS[::7]:
        automaton = automaton_of([text])
        lengths = {}
        for run in {run for run, _ in runs_of(text, len(text))}:
            lengths.setdefault(state_of(automaton, run), []).append(len(run))
        for state, have in lengths.items():
            assert max(have) == automaton.length[state]
            if state:
                assert min(have) == automaton.length[automaton.link[state]] + 1


@pytest.mark.parametrize("max_match", (1, 2, 32))
def test_counts_of_every_short_text(max_match):
    for text in TEXTS:
        assert not list(wrong_counts([text], max_match))


@settings(deadline=None)
@given(SOME_TEXTS, st.sampled_from((1, 2, 3, 32)))
def test_counts_of_several_texts(texts, max_match):
    """Texts do not run into each other: no run reaches over a border."""
    assert not list(wrong_counts(texts, max_match))


def test_the_work_of_a_token_is_bounded_on_periodic_text():
    """The chain of links of [7] * n has n states; only max_match of them are walked."""
    automaton = automaton_of([[7] * 2_000], max_match=5)
    assert automaton.count[state_of(automaton, [7] * 6)] == 1995
    assert automaton.count[state_of(automaton, [7] * 7)] == 0
    assert automaton.end.match() == (state_of(automaton, [7] * 5), 5)


def test_a_cursor_finds_the_longest_end_that_the_automaton_holds():
    g = np.random.default_rng(1)
    for _ in range(200):
        held = g.integers(0, 3, size=20).tolist()
        max_match = int(g.integers(1, 6))
        automaton = automaton_of([held], max_match)
        runs = {run for run, _ in runs_of(held, max_match)}
        cursor, text = automata.Cursor(automaton), []
        for token in g.integers(0, 3, size=20).tolist():
            cursor.step(token)
            text.append(token)
            longest = max(
                n
                for n in range(min(max_match, len(text)) + 1)
                if tuple(text[len(text) - n :]) in runs
            )
            assert cursor.matched == longest
            assert cursor.state == state_of(automaton, text[len(text) - longest :])


def test_a_cursor_finds_its_seat_again_when_the_automaton_has_grown():
    """[1, 2] shares its state with [2] until [3, 2] is added."""
    automaton = automaton_of([[1, 2]])
    cursor = automata.Cursor(automaton)
    cursor.step(2)
    before = cursor.state
    automaton.begin()
    for token in (3, 2, 4):
        automaton.append(token)
    assert cursor.state == before == state_of(automaton, [1, 2])
    cursor.seat()
    assert cursor.state == state_of(automaton, [2]) != before
    cursor.step(4)
    assert cursor.matched == 2


# ---- the draft


def differences(seed, library=suffixes, rounds=30):
    """Where the draft and the plain rule part, on a text that grows, beside a history
    that others add to."""
    g = np.random.default_rng(seed)
    vocab_size = int(g.integers(2, 4))
    history = plain_history = None
    if seed % 3:
        bound = int(g.choice([6, 20, 1000])), int(g.integers(1, 8))
        history, plain_history = library.SuffixHistory(*bound), NaiveHistory(*bound)
    draft = library.SuffixDraft(
        history,
        max_match=int(g.choice([1, 2, 4, 32])),
        min_match=1,
        threshold=float(g.choice([0, 0.05, 0.3])),
        max_tokens=int(g.choice([8, 30, 1000])),
    )

    def text(most):
        return g.integers(0, vocab_size, size=int(g.integers(0, most))).tolist()

    prompt = text(12)
    session, plain = draft.start(prompt), NaiveSuffix(draft, plain_history)
    plain.commit(prompt)
    for turn in range(rounds):
        if history is not None and g.random() < 0.3:
            other = text(10)
            history.add(other)
            plain_history.begin()
            for token in other:
                plain_history.append(token)
        k = int(g.integers(0, 9))
        tokens = session.propose(k).tokens
        expected, match = plain.propose(k)
        if tokens != expected or (k and session.match != match):
            yield turn, k, tokens, expected
        kept = [*tokens[: int(g.integers(0, len(tokens) + 1))], *text(4)]
        session.commit(kept)
        plain.commit(kept)
        if not math.isclose(session.doubt, plain.doubt, rel_tol=1e-9):
            yield turn, session.doubt, plain.doubt


@pytest.mark.parametrize("seed", range(45))
def test_every_proposal_is_that_of_the_plain_rule(seed):
    assert not list(differences(seed))


FAULTS = {
    "a history that grew is not noticed": [
        ("if history is None or history.version == self._version:",
         "if history is None or self._version >= 0:")],
    "a match is cut but not moved to its state": [
        ("self.automaton.max_match)\n        self.seat()",
         "self.automaton.max_match)")],
    "the match is one longer than it is": [
        ("self.matched = self.automaton.length[state]",
         "self.matched = self.automaton.length[state] + 1")],
    "the earliest of equals": [
        ("if count[reached] >= count[best[state]]",
         "if count[reached] > count[best[state]]")],
    "a state that splits forgets its counts": [
        ("(self.link, self.count, self.followed, self.best)",
         "(self.link, self.followed, self.best)")],
    "a state that is reached twice is counted twice": [
        ("                before = reached\n", "")],
    "texts run into each other": [
        ("            automaton.begin()\n", "            pass\n")],
    "the older part of the text is not followed": [
        ("            older.end.step(token)", "            pass")],
    "the history first": [
        ("            if matched > longest:", "            if matched >= longest:")],
    "the first guess alone is judged": [
        ("chance *= self._chance", "chance = self._chance")],
    "the memory is never cut": [
        (">= self.max_tokens // 2", ">= 10**9")],
    "what is learnt has the wrong sign": [
        ("LEARNING_RATE * error", "-LEARNING_RATE * error")],
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault):
    sources = [inspect.getsource(module) for module in (automata, suffixes)]
    for old, new in FAULTS[fault]:
        assert sum(source.count(old) for source in sources) == 1, f"not there: {old!r}"
        sources = [source.replace(old, new) for source in sources]
    mutant = types.ModuleType(suffixes.__name__)
    mutant.__package__ = suffixes.__package__
    for source in reversed(sources):  # the classes of the automaton over those imported
        exec(compile(source, "<mutant>", "exec"), vars(mutant))
    seen = (each for seed in range(45) for each in differences(seed, mutant))
    assert next(seen, None)


def test_a_loop_goes_on_past_the_end_of_the_text():
    draft = sd.SuffixDraft(threshold=0)
    assert draft.start([1, 2, 3] * 2).propose(10).tokens == (1, 2, 3) * 3 + (1,)
    assert draft.start([5]).propose(3).tokens == ()
    assert draft.start([5, 5]).propose(3).tokens == (5, 5, 5)


def test_the_most_frequent_continuation_of_the_longest_match():
    text = [1, 2, 7, 1, 2, 7, 1, 2, 8, 0, 2, 9, 0, 2, 9, 0, 2, 9, 1, 2]
    session = sd.SuffixDraft(threshold=0).start(text)
    assert session.propose(1).tokens == (7,)  # after [1, 2]; 9 after [2]
    assert session.match == 2


def test_the_own_text_is_preferred_and_a_longer_match_more_so():
    history = sd.SuffixHistory()
    history.add([1, 2, 3, 8])
    draft = sd.SuffixDraft(history, threshold=0)
    assert draft.start([2, 3, 9, 0, 2, 3]).propose(1).tokens == (9,)
    assert draft.start([3, 9, 1, 2, 3]).propose(1).tokens == (8,)
    assert draft.start([5, 2, 3]).propose(1).tokens == (8,)
    assert draft.start([5, 6]).propose(1).tokens == ()


def test_defaults():
    draft = sd.SuffixDraft()
    for prompt in ((), (0,), (0, 0, 0, 0), range(9)):
        session = draft.start(prompt)
        proposal = session.propose(4, sd.SeededRandom(0))
        assert proposal.probabilities is None
        assert proposal.parents is None
        assert len(session.chances) == len(proposal.tokens)
    history = sd.SuffixHistory()
    history.add(())
    history.add(range(5))
    assert len(history) == 5


@pytest.mark.parametrize("length", range(6))
def test_any_prompt_length(length):
    session = sd.SuffixDraft(threshold=0).start(range(length))
    assert session.propose(4).tokens == ()
    session.commit(range(length))
    assert session.propose(length).tokens == tuple(range(length))


def test_token_0_is_a_token_like_others():
    session = sd.SuffixDraft(threshold=0).start([0, 1, 0, 0, 2, 0, 0])
    assert session.propose(3).tokens == (2, 0, 0)


def test_every_setting_changes_a_proposal():
    text = [1, 2, 3, 4, 9, 2, 3, 5, 9, 1, 2, 3]

    def guess(**settings):
        return sd.SuffixDraft(**{"threshold": 0, **settings}).start(text).propose(2)

    assert guess().tokens == (4, 9)
    assert guess(max_match=2).tokens == (5, 9)
    assert guess(min_match=5).tokens == ()
    assert guess(threshold=0.6).tokens == ()
    assert guess(max_tokens=10).tokens == (5, 9)
    history = sd.SuffixHistory()
    history.add([7, 5, 9, 1, 2, 3, 6, 6])
    assert guess(history=history).tokens == (6, 6)


def test_chances_fall_and_stay_above_the_threshold():
    text = np.random.default_rng(0).integers(0, 3, size=300)
    for threshold in (0.0, 0.1, 0.4):
        session = sd.SuffixDraft(threshold=threshold).start(text)
        session.propose(20)
        chances = session.chances
        assert list(chances) == sorted(chances, reverse=True)
        assert all(threshold <= chance <= 1 for chance in chances)
    assert len(sd.SuffixDraft(threshold=0).start(text).propose(20).tokens) == 20
    assert sd.SuffixDraft(threshold=1).start(text).propose(20).tokens == ()


def test_the_estimated_chance_is_kept_at_what_holds():
    """On a text with chance in it, however the match is made. By the rule of learning
    the sums differ by at most (log 50 - log 0.5) / 0.05 = 92 guesses, ever."""
    g = np.random.default_rng(3)
    text = [0]
    for _ in range(20_000):
        stay = g.random() < 0.55
        text.append((text[-1] + 1) % 20 if stay else int(g.integers(20)))
    session = sd.SuffixDraft(threshold=0).start(text[:100])
    estimated, held = [], []
    for token in text[100:]:
        guess = session.propose(1).tokens
        if guess:
            estimated.append(session.chances[0])
            held.append(guess[0] == token)
        session.commit((token,))
    assert abs(sum(estimated) - sum(held)) < 93
    assert np.mean(held) > 0.3


# ---- memory, and what is shared


def test_memory_is_bounded_and_the_last_half_is_always_there():
    history = sd.SuffixHistory(max_tokens=200)
    for i in range(150):
        history.add([100 + i] * 7)
        assert len(history) <= 200
        assert len(history.automata) <= 2
        draft = sd.SuffixDraft(history, threshold=0)
        for recent in range(max(0, i - 13), i + 1):  # the last 98 tokens
            assert draft.start([100 + recent]).propose(1).tokens == (100 + recent,)
    assert draft.start([100]).propose(1).tokens == ()


def test_a_session_is_bounded_too():
    session = sd.SuffixDraft(max_tokens=100).start(())
    for i in range(1_000):
        session.commit((i % 30,))
        assert len(session._own) <= 100
    assert len(session.propose(5).tokens) > 0


def test_what_is_dropped_is_freed_bit_by_bit():
    history = sd.SuffixHistory(max_tokens=2_000)
    history.add(range(2_001))
    dropped = len(history._dropped)
    assert dropped > 900
    history.add(range(300))
    assert not history._dropped


def test_sessions_share_nothing_unless_asked():
    """Fault 30 of the usual ones: request B proposes what it would without A."""
    draft = sd.SuffixDraft(threshold=0)
    a = draft.start([1, 2, 3, 1, 2, 3])
    a.commit([4, 5, 6])
    assert draft.start([1, 2]).propose(4).tokens == ()
    history = sd.SuffixHistory()
    shared = sd.SuffixDraft(history, threshold=0)
    shared.start([1, 2, 3, 1, 2, 3]).commit([4, 5, 6])
    assert len(history) == 0  # a session does not write into the history
    assert shared.start([1, 2]).propose(4).tokens == ()
    history.add([1, 2, 3, 4])
    assert shared.start([1, 2]).propose(4).tokens == (3, 4)
    assert draft.start([1, 2]).propose(4).tokens == ()


def test_a_running_session_sees_what_is_added_to_its_history():
    history = sd.SuffixHistory()
    session = sd.SuffixDraft(history, threshold=0).start([4, 5, 6])
    assert session.propose(2).tokens == ()
    history.add([4, 5, 6, 7, 8])
    assert session.propose(2).tokens == (7, 8)
    assert session.match == 3
    history.add([9, 4, 5, 6, 1])
    history.add([9, 4, 5, 6, 1])
    session.commit(())
    assert session.propose(1).tokens == (1,)


def test_a_history_that_turns_over_under_a_running_session():
    """Its cursors stood in an automaton that is dropped and taken apart."""
    history = sd.SuffixHistory(max_tokens=40)
    history.add([1, 2] * 10)
    session = sd.SuffixDraft(history, threshold=0).start([1])
    assert session.propose(3).tokens == (2, 1, 2)
    for token in [3, 1, 4] * 20:
        history.append(token)
        session.commit((token,))
        session.propose(3)
    assert session.propose(3).tokens == (3, 1, 4)


def test_proposing_changes_nothing():
    session = sd.SuffixDraft(threshold=0).start([1, 2, 3, 1, 2])
    assert session.propose(0).tokens == ()
    assert session.propose(7).tokens == session.propose(7).tokens
    session.commit(())
    assert session.propose(2).tokens == (3, 1)


def test_arrays_are_tokens():
    history = sd.SuffixHistory()
    history.add(np.array([3, 4, 5]))
    session = sd.SuffixDraft(history, threshold=0).start(np.array([3]))
    session.commit(np.array([4]))
    assert session.propose(1).tokens == (5,)
    assert type(session.propose(1).tokens[0]) is int


# ---- wrong arguments


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (dict(history=[1, 2]), TypeError, "history must be a SuffixHistory or None"),
        (dict(max_match=0), ValueError, "max_match must be 1 or more, got 0"),
        (dict(min_match=0), ValueError, "min_match must be 1 or more, got 0"),
        (dict(max_match=2, min_match=3), ValueError, "at most max_match = 2, got 3"),
        (dict(threshold=1.5), ValueError, "threshold must be inside 0 .. 1, got 1.5"),
        (dict(threshold=float("nan")), ValueError, "threshold must be inside 0 .. 1"),
        (dict(threshold="half"), TypeError, "threshold must be a number, got 'half'"),
        (dict(max_tokens=1), ValueError, "max_tokens must be 2 or more, got 1"),
        (dict(max_tokens=1e5), TypeError, "max_tokens must be an integer"),
    ],
)
def test_bad_settings(arguments, error, message):
    with pytest.raises(error, match=message):
        sd.SuffixDraft(**arguments)


def test_bad_histories():
    with pytest.raises(ValueError, match="max_tokens must be 2 or more, got 0"):
        sd.SuffixHistory(0)
    with pytest.raises(ValueError, match="max_match must be 1 or more, got 0"):
        sd.SuffixHistory(max_match=0)
    history = sd.SuffixHistory()
    with pytest.raises(TypeError, match="tokens must be integers"):
        history.add([1, "a"])
    with pytest.raises(ValueError, match="tokens must be inside 0"):
        history.add([1, -1])
    assert len(history) == history.version == 0


def test_bad_tokens_change_nothing():
    session = sd.SuffixDraft(threshold=0).start([1, 2, 1])
    with pytest.raises(ValueError, match="tokens must be inside 0"):
        session.commit([2, -1])
    assert session.propose(1).tokens == (2,)
