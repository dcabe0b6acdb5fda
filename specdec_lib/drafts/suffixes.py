"""Suffixes: copy from wherever the end of the text was seen before, however long.

A *suffix automaton* holds every run of tokens that a text has ever had, in at most two
states a token, and grows with the text. Here each state also knows how often its runs
were seen and what followed them most often, so that a guess is one look-up.

    SuffixAutomaton    all runs of one or more texts, and what followed them
    Cursor             where the end of a text stands in an automaton
    SuffixHistory      texts to copy from, of which the oldest are forgotten
    SuffixDraft        guesses from the text itself, and from a history if given one
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..models import check_count
from ..randomness import RandomSource
from .lookup import check_match, token_list
from .model import Proposal

ROOT = 0  # the state of the empty run
MAX_MATCH = 32
MAX_TOKENS = 200_000

# Doubt in a match, see SuffixDraft: its first value, its bounds, and how fast it is
# learnt. Measured on sources of Python's standard library, 2.5 is best for a text that
# is copied from itself, and 15 for one that the book's target wrote at temperature 1.
DOUBT, LEAST_DOUBT, MOST_DOUBT = 2.5, 0.5, 50.0
LEARNING_RATE = 0.05


class SuffixAutomaton:
    """All runs of tokens of one or more texts, and what followed them.

    A state stands for the runs that end at the same places: the longest of them, of
    ``length[state]`` tokens, and its suffixes down to those of ``link[state]``, which
    end at more places.

    follow
        token -> state, for each state: the runs with that token behind them.
    link, length
        see above; the root's link is -1.
    token
        the last token of a state's runs.
    count
        how often its runs were seen.
    followed
        how often they were seen with a token behind them, in the same text.
    best
        the state that most often followed, the most recent on ties; the root for none.

    Counts are kept for runs of at most ``max_match`` tokens and one more; so the work
    for a token is bounded on texts that repeat themselves, too.

    Source: Blumer et al. 1985, The smallest automaton recognizing the subwords of a
    text, section 3.

    >>> automaton = SuffixAutomaton()
    >>> for token in [7, 8, 7, 8, 9, 7, 8]:
    ...     automaton.append(token)
    >>> state, matched = automaton.end.match()
    >>> matched, automaton.count[state], automaton.token[automaton.best[state]]
    (2, 3, 9)
    """

    def __init__(self, max_match: int = MAX_MATCH) -> None:
        check_count("max_match", max_match, 1)
        self.max_match = max_match
        self.tokens = 0
        self.follow: list[dict[int, int]] = []
        self.link: list[int] = []
        self.length: list[int] = []
        self.token: list[int] = []
        self.count: list[int] = []
        self.followed: list[int] = []
        self.best: list[int] = []
        self._add_state(0, -1, {})
        self.begin()

    def begin(self) -> None:
        """Begin another text: no run reaches from the last one into it."""
        self._last = ROOT  # the state of the whole text
        self.end = Cursor(self)  # the state of its last max_match tokens

    def append(self, token: int) -> None:
        """Grow the present text by one token, in constant time on average."""
        self.tokens += 1
        self._extend(token)
        self._count(token)
        self.end.step(token)

    def _extend(self, token: int) -> None:
        follow, at = self.follow, self._last
        if token in follow[at]:  # an earlier text began in the same way
            self._last = self._split(at, token)
            return
        new = self._last = self._add_state(self.length[at] + 1, token, {})
        while at >= 0 and token not in follow[at]:
            follow[at][token] = new
            at = self.link[at]
        self.link[new] = self._split(at, token) if at >= 0 else ROOT

    def _split(self, at: int, token: int) -> int:
        """The state whose longest run is that of ``at`` and then ``token``.

        Where that run shares a state with longer ones, which do not end here, it gets
        a state of its own.
        """
        old = self.follow[at][token]
        if self.length[old] == self.length[at] + 1:
            return old
        new = self._add_state(self.length[at] + 1, token, self.follow[old].copy())
        for values in (self.link, self.count, self.followed, self.best):
            values[new] = values[old]
        self.link[old] = new
        while at >= 0 and self.follow[at].get(token) == old:
            self.follow[at][token] = new
            at = self.link[at]
        return new

    def _add_state(self, length: int, token: int, follow: dict[int, int]) -> int:
        self.follow.append(follow)
        self.length.append(length)
        self.token.append(token)
        self.link.append(-1)
        self.count.append(0)
        self.followed.append(0)
        self.best.append(ROOT)
        return len(self.length) - 1

    def _count(self, token: int) -> None:
        """Count ``token`` behind each run that the text ended with."""
        count, best, followed = self.count, self.best, self.followed
        follow, link = self.follow, self.link
        state, before = self.end.state, -1
        while state >= 0:
            followed[state] += 1
            reached = follow[state][token]
            if reached != before:  # runs that differ may become one state
                count[reached] += 1
                before = reached
            if count[reached] >= count[best[state]]:
                best[state] = reached
            state = link[state]


class Cursor:
    """The longest end of a text, at most max_match tokens, that an automaton holds."""

    __slots__ = ("automaton", "matched", "state")

    def __init__(self, automaton: SuffixAutomaton) -> None:
        self.automaton = automaton
        self.state = ROOT
        self.matched = 0

    def copy(self) -> Cursor:
        other = Cursor(self.automaton)
        other.state, other.matched = self.state, self.matched
        return other

    def step(self, token: int) -> None:
        """Read one more token of the text; constant time on average."""
        follow, link = self.automaton.follow, self.automaton.link
        state = self.state
        while token not in follow[state]:
            if state == ROOT:
                self.state, self.matched = ROOT, 0
                return
            state = link[state]
            self.matched = self.automaton.length[state]
        self.state = follow[state][token]
        self.matched = min(self.matched + 1, self.automaton.max_match)
        self.seat()

    def seat(self) -> None:
        """Move to the state that holds the run of ``matched`` tokens.

        It is the present one or one further along the links: the run was cut to
        max_match tokens, or the automaton has grown and split the state.
        """
        length, link = self.automaton.length, self.automaton.link
        while self.matched and self.matched <= length[link[self.state]]:
            self.state = link[self.state]

    def match(self) -> tuple[int, int]:
        """The state and length of the longest end that something has followed."""
        automaton, state, matched = self.automaton, self.state, self.matched
        while automaton.best[state] == ROOT and state != ROOT:
            state = automaton.link[state]
            matched = automaton.length[state]
        return state, matched


class SuffixHistory:
    """Texts to copy from: earlier requests, a corpus, or one text that is growing.

    It holds at most ``max_tokens`` tokens, and always the last half of that: texts go
    into an automaton of max_tokens / 2, and when that is full a new one is begun and
    the one before it is dropped. A run that goes over such a border is not found.

    A history is shared by the sessions that are given it, and by no others. It never
    learns from them: what is to be remembered is added.

    >>> history = SuffixHistory()
    >>> history.add([5, 6, 7, 8])
    >>> SuffixDraft(history, threshold=0.1).start([9, 5, 6]).propose(4).tokens
    (7, 8)
    """

    def __init__(
        self, max_tokens: int = MAX_TOKENS, max_match: int = MAX_MATCH
    ) -> None:
        check_count("max_tokens", max_tokens, 2)
        self.max_tokens = max_tokens
        self.max_match = max_match
        self.automata = [SuffixAutomaton(max_match)]  # the growing one, the one before
        self.version = 0  # how many tokens were ever added
        self._dropped: list[dict[int, int]] = []

    def __len__(self) -> int:
        """Number of tokens that are held."""
        return sum(automaton.tokens for automaton in self.automata)

    def add(self, tokens: Sequence[int]) -> None:
        """Remember one text."""
        tokens = token_list(tokens)
        for automaton in self.automata:
            automaton.begin()
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        """Grow the text added last by one token."""
        self.version += 1
        if self.automata[0].tokens >= self.max_tokens // 2:
            if len(self.automata) == 2:
                self._dropped = self.automata[1].follow
            self.automata = [SuffixAutomaton(self.max_match), self.automata[0]]
        for older in self.automata[1:]:
            older.end.step(token)
        self.automata[0].append(token)
        # Freeing a large automaton all at once would be a pause of many rounds.
        del self._dropped[-8:]


@dataclass(frozen=True)
class SuffixDraft:
    """Copies what most often followed the longest known end of the text.

    history
        other texts to copy from, beside the prompt and the output so far, or None. The
        session's own text is preferred where both know ends of the same length.
    max_match, min_match
        the longest end that is looked for, and the shortest that is good for a guess.
    threshold
        guesses go on as long as the estimated chance that all of them are accepted is
        at least this, 0 to 1.
    max_tokens
        most tokens of its own text that a session remembers, in the manner of
        :class:`SuffixHistory`.

    Where a context was never followed by anything, its longest suffix that was serves
    in its place; so guesses run on past the end of a text that goes in a loop.
    Proposals are deterministic: their probabilities are None.

    The chance of a guess is

        count / (followed + rivals + doubt / matched)

    where the context of ``matched`` tokens was followed ``followed`` times, ``count``
    times by the guess, and by ``rivals`` other tokens. A context seen once tells little
    if it is short, and much if it is long. ``doubt`` is learnt by each session from its
    own text: it rises with each guess that would have failed and sinks with each that
    would have held, by amounts that keep the average of the estimates at the share of
    guesses that hold.

    Source: after Oliaro et al. 2025 (SuffixDecoding), section 4, with an automaton in
    place of suffix trees; rivals as in method C of Witten and Bell 1991. The doubt is
    our own.

    >>> SuffixDraft(threshold=0.1).start([1, 2, 3, 1, 2, 3, 1, 2]).propose(6).tokens
    (3, 1, 2, 3, 1, 2)
    """

    history: SuffixHistory | None = None
    max_match: int = MAX_MATCH
    min_match: int = 1
    threshold: float = 0.1
    max_tokens: int = MAX_TOKENS

    def __post_init__(self) -> None:
        if not isinstance(self.history, SuffixHistory | None):
            raise TypeError(
                f"history must be a SuffixHistory or None, got {self.history!r}"
            )
        check_match(self.max_match, self.min_match)
        check_count("max_tokens", self.max_tokens, 2)
        threshold = self.threshold
        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)):
            raise TypeError(f"threshold must be a number, got {threshold!r}")
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must be inside 0 .. 1, got {threshold}")

    def start(self, prompt: Sequence[int]) -> SuffixSession:
        return SuffixSession(self, prompt)


class SuffixSession:
    """One text, and its place in each automaton it may be copied from.

    match
        length of the match that the last proposal began with, 0 for none.
    chances
        for each guess of the last proposal, the estimated chance that it and all
        before it are accepted.
    doubt
        what was learnt of this text, see :class:`SuffixDraft`.
    """

    def __init__(self, draft: SuffixDraft, prompt: Sequence[int]) -> None:
        self._draft = draft
        self._own = SuffixHistory(draft.max_tokens, draft.max_match)
        self._shared: list[Cursor] = []
        self._version = -1  # of the history, when _shared was made
        self._recent: deque[int] = deque(maxlen=0)
        if draft.history is not None:
            self._recent = deque(maxlen=draft.history.max_match)
        self.match = 0
        self.chances: tuple[float, ...] = ()
        self.doubt = DOUBT
        self.commit(prompt)

    def propose(self, k: int, rng: RandomSource | None = None) -> Proposal:
        self._refresh()
        ahead = self._longest()[0].copy()
        automaton = ahead.automaton
        tokens: list[int] = []
        chances: list[float] = []
        self.match, chance = 0, 1.0
        while len(tokens) < k:
            state, matched = ahead.match()
            if matched < self._draft.min_match:
                break
            if not tokens:
                self.match = matched
            chance *= self._chance(automaton, state, matched)
            if chance < self._draft.threshold:
                break
            token = automaton.token[automaton.best[state]]
            tokens.append(token)
            chances.append(chance)
            ahead.step(token)
        self.chances = tuple(chances)
        return Proposal(tuple(tokens))

    def commit(self, tokens: Sequence[int]) -> None:
        tokens = token_list(tokens)
        self._refresh()
        for token in tokens:
            self._learn(token)
            self._own.append(token)
            for cursor in self._shared:
                cursor.step(token)
            self._recent.append(token)

    def _refresh(self) -> None:
        """Find the end of the text anew in a history that has grown."""
        history = self._draft.history
        if history is None or history.version == self._version:
            return
        self._version = history.version
        self._shared = [Cursor(automaton) for automaton in history.automata]
        for cursor in self._shared:
            for token in self._recent:
                cursor.step(token)

    def _longest(self) -> tuple[Cursor, int, int]:
        """The cursor with the longest match, and the state and length of that; of
        equals the text's own, and of these the later part."""
        best = self._own.automata[0].end
        state, longest = best.match()
        for cursor in [each.end for each in self._own.automata[1:]] + self._shared:
            other, matched = cursor.match()
            if matched > longest:
                best, state, longest = cursor, other, matched
        return best, state, longest

    def _chance(self, automaton: SuffixAutomaton, state: int, matched: int) -> float:
        count = automaton.count[automaton.best[state]]
        rivals = len(automaton.follow[state]) - 1
        return count / (automaton.followed[state] + rivals + self.doubt / matched)

    def _learn(self, token: int) -> None:
        """Compare the first guess that would have been made with what came."""
        cursor, state, matched = self._longest()
        automaton = cursor.automaton
        if matched < self._draft.min_match:
            return
        held = automaton.token[automaton.best[state]] == token
        error = self._chance(automaton, state, matched) - held
        doubt = self.doubt * math.exp(LEARNING_RATE * error)
        self.doubt = min(max(doubt, LEAST_DOUBT), MOST_DOUBT)
