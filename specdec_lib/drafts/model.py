"""What a draft is: something cheap that proposes tokens, and says how it drew them.

    session = draft.start(prompt)
    proposal = session.propose(k, rng)      at most k tokens, possibly none
    session.commit(tokens)                  what was really kept

A draft may guess in any way it likes. It must report the very distributions its tokens
were drawn from: the acceptance rule divides by them, and exactness rests on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..models import LanguageModel, check_tokens
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


@dataclass(frozen=True)
class ModelDraft:
    """Any language model as a draft, sampled by ``sampler``.

    At temperature 0 its proposals are deterministic. It proposes less than k tokens
    where its own context window ends.
    """

    model: LanguageModel
    sampler: Sampler = DEFAULT_SAMPLER

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    def start(self, prompt: Sequence[int]) -> Session:
        return _ModelSession(self.model, self.sampler, prompt)


class _ModelSession:
    """Keeps the model's state at most one call ahead of the committed sequence."""

    def __init__(
        self, model: LanguageModel, sampler: Sampler, prompt: Sequence[int]
    ) -> None:
        self._model = model
        self._sampler = sampler
        self._state = model.start()
        self._sequence = check_tokens(prompt, model.vocab_size, "prompt").tolist()
        if not self._sequence:
            raise ValueError("prompt must have at least one token for a model draft")
        self._read: list[int] = []  # what the state holds: committed, then proposed

    def propose(self, k: int, rng: RandomSource) -> Proposal:
        # The state reads every token of the sequence but the last one drafted.
        if self._model.context_window is not None:
            k = min(k, self._model.context_window - len(self._sequence) + 1)
        tokens: list[int] = []
        rows: list[NDArray[np.float64]] = []
        self._rewind(len(self._sequence) - 1)  # the last one is read for its logits
        unread = self._sequence[len(self._read) :]
        while len(tokens) < k:
            logits = self._state.extend(unread)[-1]
            self._read += unread
            prefix = [*self._sequence, *tokens] if self._sampler.processors else ()
            row = self._sampler(logits, prefix)
            if self._sampler.temperature == 0:
                token = int(row.argmax())
            else:
                token = rng.categorical(row)
                rows.append(row)
            tokens.append(token)
            unread = [token]
        return Proposal(tuple(tokens), np.array(rows) if rows else None)

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
