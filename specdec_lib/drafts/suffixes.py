"""Suffixes: copy what most often followed the longest known end of the text.

    SuffixHistory    texts to copy from, of which the oldest are forgotten
    SuffixDraft      guesses from the text itself, and from a history if given one

Both look things up in suffix automata (:mod:`.automaton`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..models import check_count
from ..randomness import RandomSource
from ..sampling import is_number
from .automaton import MAX_MATCH, Cursor, SuffixAutomaton
from .lookup import check_match, token_list
from .model import Proposal

MAX_TOKENS = 200_000

# Doubt in a match, see SuffixDraft: its first value, its bounds, and how fast it is
# learnt. The best fixed value was 2.5 on sources of Python's standard library, 6 and 15
# on what the book's target wrote at temperatures .6 and 1.
DOUBT, LEAST_DOUBT, MOST_DOUBT = 2.5, 0.5, 50.0
LEARNING_RATE = 0.05


class SuffixHistory:
    """Texts to copy from: earlier requests, a corpus, or one text that is growing.

    It holds at most ``max_tokens`` tokens, and always the last half of that: texts go
    into an automaton of max_tokens / 2, and when that is full a new one is begun and
    the one before it is dropped. A run that goes over such a border is not found. A
    token takes about half a kilobyte. Matches longer than ``max_match`` are not told
    apart.

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
        """Remember one text, all of its ``tokens``."""
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
        In a history, the longest is the history's own.
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

    Source: the idea is that of Oliaro et al. 2025 (SuffixDecoding), with an automaton
    in place of a suffix tree, as in Hu et al. 2024 (SAM Decoding). The rivals are
    close to method C of Witten and Bell 1991; the doubt is our own.

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
        if not is_number(self.threshold):
            raise TypeError(f"threshold must be a number, got {self.threshold!r}")
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold must be inside 0 .. 1, got {self.threshold}")

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
