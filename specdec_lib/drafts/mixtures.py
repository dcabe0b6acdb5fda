"""Drafts made of others: the first that has a guess; a model mixed with a cache.

Both report the law that was really sampled: :class:`FirstOf` hands on a part's own
proposal, and :class:`CacheModel` is a language model, so that a ``ModelDraft`` draws
from the very rows that it reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..models import LanguageModel, State, check_count, check_rewind, check_tokens
from ..randomness import RandomSource
from ..sampling import DEFAULT_SAMPLER, is_number
from .model import Draft, Proposal, Session


@dataclass(frozen=True)
class FirstOf:
    """The proposal of the first of ``drafts`` that proposes anything.

    All of them follow the text; they are asked in turn, and the first proposal with a
    token in it is handed on as it is. ``drafts`` is at least one draft; those that
    have a ``vocab_size`` or a ``vocabulary`` must agree on it. TypeError or ValueError
    otherwise.

    A session's ``last`` is the place in ``drafts`` of the one that proposed last, None
    where none of them did.
    """

    drafts: Sequence[Draft]

    def __post_init__(self) -> None:
        if not isinstance(self.drafts, (tuple, list)):
            raise TypeError(f"drafts must be a list of drafts, got {self.drafts!r}")
        if not self.drafts:
            raise ValueError("drafts must hold at least one draft, got none")
        for draft in self.drafts:
            if hasattr(draft, "bos_id"):
                raise TypeError(
                    f"drafts must be drafts, got a language model, {draft!r:.60}; "
                    "give ModelDraft(model)"
                )
            if not hasattr(draft, "start"):
                raise TypeError(f"drafts must have start(prompt), got {draft!r:.60}")
        object.__setattr__(self, "drafts", tuple(self.drafts))
        sizes = self._sizes()
        if len(sizes) > 1:
            raise ValueError(
                f"drafts must share one vocabulary, got sizes {sorted(sizes)}"
            )
        if len(self._names()) > 1:
            raise ValueError("drafts must share one vocabulary, their ids differ")

    def _sizes(self) -> set[int]:
        return {each.vocab_size for each in self.drafts if hasattr(each, "vocab_size")}

    def _names(self) -> set[str]:
        names = (getattr(each, "vocabulary", None) for each in self.drafts)
        return {name for name in names if isinstance(name, str)}

    @property
    def vocabulary(self) -> str | None:
        """That of the parts; None where none of them has one."""
        return next(iter(self._names()), None)

    @property
    def vocab_size(self) -> int:
        """That of the parts; as with them, missing where none of them has one."""
        sizes = self._sizes()
        if not sizes:
            raise AttributeError("none of the drafts has a vocab_size")
        return sizes.pop()

    def start(self, prompt: Sequence[int]) -> FirstOfSession:
        return FirstOfSession([draft.start(prompt) for draft in self.drafts])


class FirstOfSession:
    """Sessions of several drafts on one sequence; see :class:`FirstOf`."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self._sessions = sessions
        self.last: int | None = None

    def propose(self, k: int, rng: RandomSource) -> Proposal:
        for place, session in enumerate(self._sessions):
            proposal = session.propose(k, rng)
            if proposal.tokens:
                self.last = place
                return proposal
        self.last = None
        return Proposal(())

    def commit(self, tokens: Sequence[int]) -> None:
        for session in self._sessions:
            session.commit(tokens)


@dataclass(frozen=True)
class CacheModel:
    """A language model mixed with a cache of the recent text.

        p(t) = (1 - weight) * model's p(t) + weight * cache's p(t)

    The cache counts what followed the last ``order - 1`` tokens among the last
    ``window`` tokens of the text; where these did not occur before, the last
    ``order - 2``, and so on down to the last one; where that is new too, the model
    alone speaks. With ``order`` 1 the cache is how often each token occurred.

    model
        any language model; its logits are turned into probabilities at temperature 1.
    weight
        the cache's share, 0 <= weight <= 1.
    window
        tokens that the cache looks back on, >= 1.
    order
        longest run of tokens that it counts, >= 1.

    A language model itself: ``extend`` returns log probabilities, -inf for 0. A token
    costs ``order`` steps, whatever the window. TypeError or ValueError for bad
    arguments.

    Source: Kuhn and De Mori 1990, who mix in the tokens' own frequencies (``order`` 1).

    >>> from specdec_lib import FunctionModel
    >>> even = FunctionModel(lambda seq: [0.0, 0.0, 0.0, 0.0], 4)
    >>> cached = CacheModel(even, weight=0.5, order=2)
    >>> np.exp(cached.start().extend([3, 1, 3, 2, 3])[-1]).round(3).tolist()
    [0.125, 0.375, 0.375, 0.125]
    """

    model: LanguageModel
    weight: float = 0.3
    window: int = 500
    order: int = 3

    def __post_init__(self) -> None:
        if not hasattr(self.model, "bos_id") or not hasattr(self.model, "start"):
            raise TypeError(f"model must be a language model, got {self.model!r:.60}")
        if not is_number(self.weight):
            raise TypeError(f"weight must be a number, got {self.weight!r}")
        if not 0 <= self.weight <= 1:  # also refuses NaN
            raise ValueError(f"weight must be inside 0 .. 1, got {self.weight}")
        check_count("window", self.window, least=1)
        check_count("order", self.order, least=1)

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def vocabulary(self) -> str | None:
        """The name of the model's tokens; None where it has none."""
        return getattr(self.model, "vocabulary", None)

    @property
    def bos_id(self) -> int | None:
        return self.model.bos_id

    @property
    def context_window(self) -> int | None:
        return self.model.context_window

    def start(self) -> State:
        return _CacheState(self)


class _CacheState:
    """Counts of the runs of tokens that lie inside the window, by all but their last.

    As the text grows by a token, one run of each length comes in and one drops out;
    a rewind does the opposite. So no more than the window is ever counted.
    """

    def __init__(self, settings: CacheModel) -> None:
        self._settings = settings
        self._state = settings.model.start()
        self._sequence: list[int] = []
        shortest = min(settings.order, 2)
        self._lengths = range(shortest, settings.order + 1)
        self._counts: dict[tuple[int, ...], dict[int, int]] = {}

    @property
    def length(self) -> int:
        return len(self._sequence)

    def extend(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        new = check_tokens(tokens, self._settings.vocab_size).tolist()
        weight = self._settings.weight
        rows = DEFAULT_SAMPLER(self._state.extend(new))
        for row, token in zip(rows, new, strict=True):
            self._sequence.append(token)
            self._shift(1)
            after = self._after()
            if after:
                seen, counts = list(after), np.array(list(after.values()))
                row *= 1 - weight
                row[seen] += weight * counts / counts.sum()
        with np.errstate(divide="ignore"):
            return np.log(rows, out=rows)

    def rewind(self, length: int) -> None:
        length = check_rewind(length, self.length)
        self._state.rewind(length)
        while self.length > length:
            self._shift(-1)
            self._sequence.pop()

    def _after(self) -> dict[int, int]:
        """What followed the longest known context, and how often."""
        for length in reversed(self._lengths):
            if length <= self.length:
                context = tuple(self._sequence[self.length - length + 1 :])
                if context in self._counts:
                    return self._counts[context]
        return {}

    def _shift(self, by: int) -> None:
        """Move the window's end over the last token: 1 onto it, -1 back."""
        end = self.length
        start = end - self._settings.window - 1  # the token that has to leave, if any
        for length in self._lengths:
            if length <= min(end, self._settings.window):
                self._add(end - length, length, by)
                if start >= 0:
                    self._add(start, length, -by)

    def _add(self, start: int, length: int, by: int) -> None:
        *context, token = self._sequence[start : start + length]
        counts = self._counts.setdefault(tuple(context), {})
        counts[token] = counts.get(token, 0) + by
        if not counts[token]:
            del counts[token]
            if not counts:
                del self._counts[tuple(context)]
