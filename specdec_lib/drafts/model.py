"""What a draft is: something cheap that proposes tokens, and says how it drew them.

    session = draft.start(prompt)
    proposal = session.propose(k, rng)      at most k tokens, possibly none
    session.commit(tokens)                  what was really kept

A draft may guess in any way it likes. It must report the very distributions its tokens
were drawn from: the acceptance rule divides by them, and exactness rests on that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..models import LanguageModel, check_tokens, extend_last
from ..randomness import RandomSource
from ..sampling import DEFAULT_SAMPLER, Sampler


@dataclass(frozen=True, eq=False)
class Proposal:
    """Tokens guessed by a draft: one after the other, or as a tree.

    tokens
        n token ids, in order.
    probabilities
        (n, V): row i is the distribution that ``tokens[i]`` was drawn from, given all
        tokens before it in the order of the rule. None for a deterministic proposal,
        which stands for a point mass on each token.
    parents
        None: ``tokens[i]`` follows ``tokens[i - 1]``. Otherwise a tree, several guesses
        for one place: ``tokens[i]`` follows ``tokens[parents[i]]``, -1 being the text
        so far, and ``parents[i] < i``. Children of one node are judged in their order.
    """

    tokens: tuple[int, ...]
    probabilities: NDArray[np.float64] | None = None
    parents: tuple[int, ...] | None = None


class Session(Protocol):
    """A draft at work on one sequence."""

    def propose(self, k: int, rng: RandomSource) -> Proposal:
        """At most ``k`` tokens to follow what was committed, possibly none."""

    def commit(self, tokens: Sequence[int]) -> None:
        """Append ``tokens`` to the sequence; what was proposed and is not in them is
        forgotten."""


class Draft(Protocol):
    """Something that proposes tokens."""

    def start(self, prompt: Sequence[int]) -> Session:
        """A new session after ``prompt`` (at least one token). Sessions share no
        state."""


# chance(row, sequence): how likely a guess drawn from ``row`` (V,), to follow
# ``sequence``, is accepted.
Chance = Callable[[NDArray[np.float64], Sequence[int]], float]


def largest_probability(
    row: NDArray[np.float64], sequence: Sequence[int] = ()
) -> float:
    """The draft's confidence: the largest probability of ``row`` (V,).

    A chance of acceptance only by name, until it is fitted to what the target really
    accepted: :class:`specdec_lib.draft_length.Calibration`.
    """
    return float(row.max())


@dataclass(frozen=True)
class ModelDraft:
    """Any language model as a draft, sampled by ``sampler``.

    At temperature 0 its proposals are deterministic. It proposes less than k tokens
    where its own context window ends, and where it stops by its own confidence:

    least
        0 .. 1. Go on drafting while the product of the chances of all guesses of the
        round is at least this. 0: always, and ``chance`` is never asked.
    chance
        ``chance(row, sequence) -> float`` in [0, 1]: how likely a guess from ``row`` is
        accepted. ``row`` (V,) is the distribution that the guess is drawn from; at
        temperature 0, which says nothing of confidence, that of temperature 1.
        ``sequence`` is all the text before the guess.
    draw_last
        Whether the guess at which the product falls below ``least`` is still drawn. By
        then the model's call for its row is paid, so it costs only what the target
        takes to score it. False: the draft stops before it, and that call is lost.

    The product is formed of rows, before their tokens are drawn, and a token that was
    drawn is always proposed: to drop it for what it is would change what the rest are
    drawn from, and the output would no longer be the target's. Raises ValueError or
    TypeError for other arguments, and for a ``chance`` outside [0, 1] when it is asked.
    """

    model: LanguageModel
    sampler: Sampler = DEFAULT_SAMPLER
    _: KW_ONLY
    least: float = 0.0
    chance: Chance = largest_probability
    draw_last: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.least <= 1:
            raise ValueError(f"least must be in [0, 1], got {self.least!r}")
        if not callable(self.chance):
            raise TypeError(f"chance must be callable, got {self.chance!r}")

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def vocabulary(self) -> str | None:
        """The name of the model's tokens; None where it has none."""
        return getattr(self.model, "vocabulary", None)

    def start(self, prompt: Sequence[int]) -> Session:
        return _ModelSession(self, prompt)


class _ModelSession:
    """Keeps the model's state at most one call ahead of the committed sequence."""

    def __init__(self, draft: ModelDraft, prompt: Sequence[int]) -> None:
        self._draft = draft
        self._model = model = draft.model
        self._sampler = draft.sampler
        self._state = model.start()
        self._sequence = check_tokens(prompt, model.vocab_size, "prompt").tolist()
        if not self._sequence:
            raise ValueError("prompt must have at least one token for a model draft")
        self._read: list[int] = []  # what the state holds: committed, then proposed

    def propose(self, k: int, rng: RandomSource) -> Proposal:
        # The state reads every token of the sequence but the last one drafted (that one
        # too where the draft looks at the row after it, and stops).
        if self._model.context_window is not None:
            k = min(k, self._model.context_window - len(self._sequence) + 1)
        tokens: list[int] = []
        rows: list[NDArray[np.float64]] = []
        self._rewind(len(self._sequence) - 1)  # the last one is read for its logits
        unread = self._sequence[len(self._read) :]
        least, all_accepted = self._draft.least, 1.0
        with_prefix = least > 0 or self._sampler.processors
        while len(tokens) < k and all_accepted >= least:
            logits = extend_last(self._state, unread, 1)[-1]
            self._read += unread
            prefix = [*self._sequence, *tokens] if with_prefix else []
            row = self._sampler(logits, prefix)
            if least > 0:
                all_accepted *= self._chance(row, logits, prefix)
                if all_accepted < least and not self._draft.draw_last:
                    break
            if self._sampler.temperature == 0:
                token = int(row.argmax())
            else:
                token = rng.categorical(row)
                rows.append(row)
            tokens.append(token)
            unread = [token]
        return Proposal(tuple(tokens), np.array(rows) if rows else None)

    def _chance(
        self,
        row: NDArray[np.float64],
        logits: NDArray[np.floating],
        sequence: Sequence[int],
    ) -> float:
        """How likely the guess that is drawn from ``row`` is accepted."""
        if self._sampler.temperature == 0:
            row = replace(self._sampler, temperature=1.0)(logits, sequence)
        chance = float(self._draft.chance(row, sequence))
        if not 0 <= chance <= 1:
            raise ValueError(f"chance must return a number in [0, 1], got {chance}")
        return chance

    def commit(self, tokens: Sequence[int]) -> None:
        tokens = check_tokens(tokens, self._model.vocab_size).tolist()
        start = len(self._sequence)
        self._sequence += tokens
        keep = min(start, len(self._read))
        for read, committed in zip(self._read[start:], tokens, strict=False):
            if read != committed:
                break
            keep += 1
        self._rewind(keep)

    def _rewind(self, length: int) -> None:
        if length < len(self._read):
            self._state.rewind(length)
            del self._read[length:]
