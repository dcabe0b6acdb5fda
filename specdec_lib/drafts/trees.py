"""Several guesses for one place: a draft that proposes a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..models import (
    LanguageModel,
    check_count,
    check_parents,
    check_tokens,
    extend_last,
    path_to,
)
from ..randomness import RandomSource
from ..sampling import DEFAULT_SAMPLER, Sampler
from .model import Proposal, Session

Draw = Literal["without replacement", "with replacement", "best"]
DRAWS = ("without replacement", "with replacement", "best")


def tree_shape(branching: Sequence[int]) -> tuple[int, ...]:
    """Parents of the tree in which every node of depth d has ``branching[d]`` children.

    Depth by depth; (1, 1, 1) is a chain of three. Each number is 1 or more.

    >>> tree_shape((2, 1))
    (-1, -1, 0, 1)
    """
    if not hasattr(branching, "__iter__"):
        raise TypeError(f"branching must be some integers, got {branching!r}")
    parents: list[int] = []
    level = [-1]
    for number in branching:
        check_count("branching", number, least=1)
        first = len(parents)
        parents += [node for node in level for _ in range(number)]
        level = list(range(first, len(parents)))
    return tuple(parents)


@dataclass(frozen=True)
class TreeDraft:
    """A language model that guesses a tree; its proposals need ``verify_tree``.

    model, sampler
        what guesses, as in :class:`ModelDraft`.
    shape
        the parent of every node, -1 for the text so far: :func:`tree_shape` makes
        regular ones. Nodes deeper than k are left out.
    draw
        how the children of a node are found. "without replacement": each from the
        model's distribution without the siblings before it. "with replacement": each
        from the whole of it, so that some are drawn twice and are scored in vain.
        "best": the most probable ones, without chance; also at temperature 0.

    A node has fewer children where no other token has any probability.
    """

    model: LanguageModel
    sampler: Sampler = DEFAULT_SAMPLER
    shape: tuple[int, ...] = tree_shape((2, 1, 1, 1))
    draw: Draw = "without replacement"

    def __post_init__(self) -> None:
        n = len(self.shape) if hasattr(self.shape, "__len__") else 0
        check_parents(self.shape, n, "shape")
        if self.draw not in DRAWS:
            raise ValueError(f"draw must be one of {DRAWS}, got {self.draw!r}")

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def vocabulary(self) -> str | None:
        """The name of the model's tokens; None where it has none."""
        return getattr(self.model, "vocabulary", None)

    def start(self, prompt: Sequence[int]) -> Session:
        return _TreeSession(self, prompt)


class _TreeSession:
    """Keeps the model's state on the branch that was looked at last."""

    def __init__(self, draft: TreeDraft, prompt: Sequence[int]) -> None:
        self._draft = draft
        self._sequence: list[int] = check_tokens(
            prompt, draft.model.vocab_size, "prompt"
        ).tolist()
        if not self._sequence:
            raise ValueError("prompt must have at least one token for a tree draft")
        self._state = draft.model.start()
        self._ahead: list[int] = []  # read after all but the last token of the text

    def propose(self, k: int, rng: RandomSource) -> Proposal:
        draft = self._draft
        window = draft.model.context_window
        if window is not None:
            k = min(k, window - len(self._sequence) + 1)
        sampled = draft.draw != "best" and draft.sampler.temperature > 0
        tokens: list[int] = []
        parents: list[int] = []
        rows: list[NDArray[np.float64]] = []
        below: dict[int, NDArray[np.float64]] = {}  # what is left to draw from, by node
        grown = {-1: -1}  # node of the shape -> node of the proposal
        for planned, shape_parent in enumerate(draft.shape):
            parent = grown.get(shape_parent)
            if parent is None:
                continue
            branch = path_to(parent, parents)
            if len(branch) >= k:
                continue
            if parent not in below:
                below[parent] = self._row([tokens[node] for node in branch])
            row = below[parent]
            if not row.any():
                continue
            token = rng.categorical(row) if sampled else int(row.argmax())
            if not sampled or draft.draw == "without replacement":
                below[parent] = _without(row, token)
            grown[planned] = len(tokens)
            tokens.append(token)
            parents.append(parent)
            rows.append(row)
        q = np.array(rows) if sampled and rows else None
        return Proposal(tuple(tokens), q, tuple(parents))

    def _row(self, branch: list[int]) -> NDArray[np.float64]:
        """The model's distribution after the text and ``branch``."""
        sampler = self._draft.sampler
        if sampler.temperature == 0 or self._draft.draw == "best":
            # The order of the tokens is all that is asked for, and at temperature 0
            # all but one would have no probability.
            sampler = Sampler(processors=sampler.processors)
        known = len(self._sequence) - 1
        if self._state.length < known:
            extend_last(self._state, self._sequence[self._state.length : known], 0)
        wanted = [self._sequence[-1], *branch]
        same = 0  # the last token is read anyhow, for what follows it
        for read, token in zip(self._ahead, wanted[:-1], strict=False):
            if read != token:
                break
            same += 1
        self._state.rewind(known + same)
        logits = extend_last(self._state, wanted[same:], 1)[-1]
        self._ahead = wanted
        prefix = [*self._sequence, *branch] if sampler.processors else ()
        return sampler(logits, prefix)

    def commit(self, tokens: Sequence[int]) -> None:
        new: list[int] = check_tokens(tokens, self._draft.model.vocab_size).tolist()
        if self._ahead:
            self._state.rewind(len(self._sequence) - 1)
            self._ahead = []
        self._sequence += new


def _without(row: NDArray[np.float64], token: int) -> NDArray[np.float64]:
    """``row`` with no chance of ``token``, normalised; all zero where none is left."""
    left = row.copy()
    left[token] = 0.0
    total = left.sum()
    return left / total if total > 0.0 else left
