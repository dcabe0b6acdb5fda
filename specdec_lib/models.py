"""What a language model is, to this library: start a sequence, extend it, rewind it.

Anything with these few names can be a target or a draft: the n-gram models here, a
transformer with its cache, or a reader's own class. No base class is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray


class State(Protocol):
    """One sequence that a model has read."""

    @property
    def length(self) -> int:
        """Number of tokens read so far."""

    def extend(self, tokens: Sequence[int]) -> NDArray[np.floating]:
        """Read ``tokens``; return (len(tokens), V) logits.

        Row i holds the logits of the token that follows ``tokens[i]``.
        """

    def rewind(self, length: int) -> None:
        """Forget all but the first ``length`` tokens, 0 <= length <= self.length.

        Later logits equal those of a sequence that never had the rest. ValueError
        outside that range.
        """


class LanguageModel(Protocol):
    """A source of next-token logits."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens V; ids are 0 .. V - 1."""

    @property
    def bos_id(self) -> int | None:
        """Token that an empty prompt starts from, or None."""

    @property
    def context_window(self) -> int | None:
        """Most tokens that a sequence may have, or None for no limit."""

    def start(self) -> State:
        """A new, empty sequence. Sequences share no state."""


def check_tokens(
    tokens: ArrayLike, vocab_size: int, name: str = "tokens"
) -> NDArray[np.int64]:
    """``tokens`` as an (n,) int64 array.

    Raises TypeError unless they are integers, ValueError unless they are one
    dimensional and inside 0 .. vocab_size - 1; the message calls them ``name``.
    """
    given = np.asarray(tokens)
    if given.size and given.dtype.kind not in "iu":
        few = f"{tokens!r:.60}" if given.size < 32 else f"an array of {given.dtype}"
        raise TypeError(f"{name} must be integers, got {few}")
    if given.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {given.shape}")
    if given.size == 0:
        return np.zeros(0, dtype=np.int64)
    if given.min() < 0 or given.max() >= vocab_size:
        bad = given[(given < 0) | (given >= vocab_size)][0]
        raise ValueError(f"{name} must be inside 0 .. {vocab_size - 1}, got {bad}")
    return given.astype(np.int64, copy=False)


def are_tokens(tokens: object, vocab_size: int) -> bool:
    """True for a tuple of Python integers inside 0 .. vocab_size - 1.

    The usual case in every round of decoding, told without making an array; on False,
    :func:`check_tokens` decides.
    """
    if type(tokens) is not tuple:
        return False
    for token in tokens:
        if type(token) is not int or not 0 <= token < vocab_size:
            return False
    return True


def check_count(name: str, value: object, least: int = 0) -> None:
    """TypeError unless ``value`` is an integer, ValueError if it is below ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be {least} or more, got {value}")


def check_rewind(length: int, present: int) -> int:
    """``length`` if a state of ``present`` tokens can be rewound to it; ValueError."""
    if isinstance(length, bool) or not isinstance(length, (int, np.integer)):
        raise TypeError(f"length must be an integer, got {length!r}")
    if not 0 <= length <= present:
        raise ValueError(f"length must be inside 0 .. {present}, got {length}")
    return int(length)


@dataclass(frozen=True)
class FunctionModel:
    """A language model from a plain function of the sequence.

    ``logits_after(sequence) -> (V,)`` gets everything before the next token, as a
    tuple. Slow and transparent: for toy models, tests and first experiments.

    >>> cycle = FunctionModel(lambda seq: np.log(np.eye(3)[(seq[-1] + 1) % 3] + .1), 3)
    >>> cycle.start().extend([0, 1]).argmax(axis=1).tolist()
    [1, 2]
    """

    logits_after: Callable[[tuple[int, ...]], ArrayLike]
    vocab_size: int
    bos_id: int | None = None
    context_window: int | None = None

    def start(self) -> State:
        return _FunctionState(self)


class _FunctionState:
    def __init__(self, model: FunctionModel) -> None:
        self._model = model
        self._sequence: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        return len(self._sequence)

    def extend(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        vocab_size = self._model.vocab_size
        new = tuple(check_tokens(tokens, vocab_size).tolist())
        window = self._model.context_window
        if window is not None and self.length + len(new) > window:
            raise ValueError(
                f"tokens must fit the context window of {window}: "
                f"{self.length} read, {len(new)} more given"
            )
        sequence = self._sequence + new
        logits = np.empty((len(new), vocab_size))
        for i in range(len(new)):
            row = self._model.logits_after(sequence[: self.length + i + 1])
            if np.shape(row) != (vocab_size,):
                raise ValueError(
                    f"logits_after must return shape ({vocab_size},), "
                    f"got {np.shape(row)}"
                )
            logits[i] = row
        self._sequence = sequence
        return logits

    def rewind(self, length: int) -> None:
        self._sequence = self._sequence[: check_rewind(length, self.length)]
