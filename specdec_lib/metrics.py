"""Every figure of a run, defined once.

drafted
    tokens that the draft proposed.
tested
    drafted tokens up to and including the first rejection.
accepted
    drafted tokens that were kept.
emitted
    tokens that came out.
target calls
    calls of the target, one a round.

Tokens cut off by a stop id or a budget were never emitted, and count neither as tested
nor as accepted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Round:
    """One turn of the loop: guess, one target call, verdict.

    drafted
        the proposed tokens.
    accepted
        how many of them were kept.
    emitted
        what the round added to the text: the kept guesses, then a correction or a
        bonus token, unless a stop id cut them off.
    draft_seconds, target_seconds
        time spent inside the draft and inside the target.
    finish_reason
        "stop", "length" or "context" on the last round, None before.
    parents, path
        of a round whose guesses were a tree, as in :class:`Proposal`: the parent of
        each drafted token, and the nodes that were kept. None for a chain.
    """

    drafted: tuple[int, ...]
    accepted: int
    emitted: tuple[int, ...]
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
    finish_reason: str | None = None
    parents: tuple[int, ...] | None = None
    path: tuple[int, ...] | None = None

    @property
    def tested(self) -> int:
        """Guesses that were judged, up to and including the first rejection.

        In a tree, at each place: the children up to and including the kept one, and
        all of them where none was.
        """
        if self.parents is None or self.path is None:
            return min(len(self.drafted), len(self.emitted))
        judged, above = 0, -1
        for kept in self.path:
            judged += self.parents[: kept + 1].count(above)
            above = kept
        if len(self.emitted) > len(self.path):  # not cut off by a stop id
            judged += self.parents.count(above)
        return judged


@dataclass(frozen=True)
class Metrics:
    """Totals over the rounds of a run, and the ratios made from them.

    drafted, tested, accepted, emitted, target_calls
        counts, as the top of this module defines them.
    draft_seconds, target_seconds
        time spent inside the draft and inside the target.

    A ratio of nothing is None.
    """

    drafted: int
    tested: int
    accepted: int
    emitted: int
    target_calls: int
    draft_seconds: float
    target_seconds: float

    @classmethod
    def from_rounds(cls, rounds: Iterable[Round]) -> Metrics:
        """Add up any rounds, of one run or of many."""
        rounds = list(rounds)
        return cls(
            drafted=sum(len(r.drafted) for r in rounds),
            tested=sum(r.tested for r in rounds),
            accepted=sum(r.accepted for r in rounds),
            emitted=sum(len(r.emitted) for r in rounds),
            target_calls=len(rounds),
            draft_seconds=sum(r.draft_seconds for r in rounds),
            target_seconds=sum(r.target_seconds for r in rounds),
        )

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / tested: the alpha of the formulas."""
        return _ratio(self.accepted, self.tested)

    @property
    def draft_efficiency(self) -> float | None:
        """accepted / drafted: what share of the draft's work was of use."""
        return _ratio(self.accepted, self.drafted)

    @property
    def tokens_per_call(self) -> float | None:
        """emitted / target calls."""
        return _ratio(self.emitted, self.target_calls)


@dataclass(frozen=True)
class Positions:
    """Counts by place in the draft: index 0 is the first guess of a round.

    Each is a tuple with one count for every place that was ever drafted. They sum to
    ``drafted``, ``tested`` and ``accepted`` of :class:`Metrics`.
    """

    drafted: tuple[int, ...]
    tested: tuple[int, ...]
    accepted: tuple[int, ...]

    @classmethod
    def from_rounds(cls, rounds: Iterable[Round]) -> Positions:
        """Count over any rounds, of one run or of many.

        ValueError for a round that guessed a tree: a place has several guesses there.
        """
        rounds = list(rounds)
        if any(r.parents is not None for r in rounds):
            raise ValueError("rounds must be of chains, got one with a tree of guesses")
        counts = [(len(r.drafted), r.tested, r.accepted) for r in rounds]
        places = range(max((drafted for drafted, _, _ in counts), default=0))
        drafted, tested, accepted = (
            tuple(sum(each[what] > i for each in counts) for i in places)
            for what in range(3)
        )
        return cls(drafted, tested, accepted)

    @property
    def rates(self) -> tuple[float | None, ...]:
        """The chance that a guess is accepted at each place, given it was tested there.

        None where none was. A guess is tested only where all before it were accepted.

        >>> Positions(drafted=(4, 4), tested=(4, 3), accepted=(3, 1)).rates
        (0.75, 0.3333333333333333)
        """
        return tuple(map(_ratio, self.accepted, self.tested))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
