"""The suffix automaton: every run of tokens that a text ever had, and what followed it.

It grows with the text, a token at a time, and has at most two states a token. Here each
state also knows how often its runs were seen and what followed them most often, so that
a guess is one look-up.
"""

from __future__ import annotations

from ..models import check_count

ROOT = 0  # the state of the empty run
MAX_MATCH = 32


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
    tokens, end
        how many tokens were read, and the :class:`Cursor` at the present text's end.

    Counts are kept for runs of at most ``max_match`` tokens and one more; so the work
    for a token is bounded on texts that repeat themselves, too.

    Source: Blumer et al. 1985, The smallest automaton recognizing the subwords of a
    text; the counts and the bound on them are our own.

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
