"""What a language model is, to this library: start a sequence, extend it, rewind it.

Anything with these few names can be a target or a draft: the n-gram models here, a
transformer with its cache, or a reader's own class. No base class is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .sampling import as_numbers, is_integer


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


class TreeState(State, Protocol):
    """A state that can also score several continuations in one call.

    Optional: for a state without these two methods, :func:`extend_by_branches` gives
    the same rows with one call for each branch.
    """

    def extend_tree(
        self, tokens: Sequence[int], parents: Sequence[int]
    ) -> NDArray[np.floating]:
        """Read a tree of ``tokens``; return (len(tokens), V) logits.

        ``tokens[i]`` follows ``tokens[parents[i]]``, or what was read so far where
        ``parents[i]`` is -1; ``parents[i] < i``. Row i holds the logits of the token
        that follows ``tokens[i]`` and what leads to it. ``length`` stays as it is until
        :meth:`keep`; any other call forgets the tree.
        """

    def keep(self, nodes: Sequence[int]) -> None:
        """Append one path of the tree that was read last, and forget the rest of it.

        ``nodes`` are indices into its tokens, each the child of the one before, the
        first a child of -1. ValueError otherwise.
        """


class LastRowsState(State, Protocol):
    """A state that can leave out the logits nobody asks for.

    Optional: a long prompt is read faster where each row of logits costs work.
    """

    def extend_last(self, tokens: Sequence[int], rows: int) -> NDArray[np.floating]:
        """Read ``tokens``; return (rows, V), the last rows that ``extend`` would give.

        ValueError unless 0 <= rows <= len(tokens).
        """


class LanguageModel(Protocol):
    """A source of next-token logits.

    It may have a ``vocabulary`` too, a string that names what its ids stand for, as
    :func:`specdec_lib.text.vocabulary_name` makes it. Where target and draft both have
    one, they must be the same.
    """

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
    try:
        given = np.asarray(tokens)
    except ValueError:
        raise TypeError(f"{name} must be integers, got lists of several") from None
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


def check_same_vocabulary(target: object, other: object, name: str = "draft") -> None:
    """ValueError where two models, drafts or tokenizers say that their ids stand for
    different tokens: each may have a ``vocabulary``, a string that names its tokens,
    None where nobody said. ``name`` is that of ``other`` in the message."""
    mine, theirs = (getattr(each, "vocabulary", None) for each in (target, other))
    if isinstance(mine, str) and isinstance(theirs, str) and mine != theirs:
        raise ValueError(
            f"{name} must have the target's tokens; its ids stand for others, as their "
            f"vocabularies say: {mine[:12]!r} and {theirs[:12]!r}"
        )


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
    if not is_integer(value):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be {least} or more, got {value}")


def check_rewind(length: int, present: int) -> int:
    """``length`` if a state of ``present`` tokens can be rewound to it; ValueError."""
    if not is_integer(length):
        raise TypeError(f"length must be an integer, got {length!r}")
    if not 0 <= length <= present:
        raise ValueError(f"length must be inside 0 .. {present}, got {length}")
    return int(length)


def check_parents(
    parents: Sequence[int], n: int, name: str = "parents"
) -> tuple[int, ...]:
    """``parents`` as a tuple if they make a tree of ``n`` nodes, in an order in which
    no node comes before its parent; ValueError or TypeError otherwise."""
    if not hasattr(parents, "__iter__"):
        raise TypeError(f"{name} must be some integers, got {parents!r}")
    given = tuple(parents)
    if len(given) != n:
        raise ValueError(
            f"{name} must have one entry for each of {n} tokens, got {len(given)}"
        )
    for i, parent in enumerate(given):
        if not is_integer(parent):
            raise TypeError(f"{name} must be integers, got {parent!r}")
        if not -1 <= parent < i:
            raise ValueError(f"{name}[{i}] must be inside -1 .. {i - 1}, got {parent}")
    return tuple(map(int, given))


def check_path(
    nodes: Sequence[int], parents: Sequence[int], name: str = "nodes"
) -> tuple[int, ...]:
    """``nodes`` as a tuple if they lead from a root of the tree down, one by one;
    ValueError or TypeError otherwise."""
    if not hasattr(nodes, "__iter__"):
        raise TypeError(f"{name} must be some integers, got {nodes!r}")
    given = tuple(nodes)
    before = -1
    for node in given:
        if not is_integer(node):
            raise TypeError(f"{name} must be integers, got {node!r}")
        if not 0 <= node < len(parents) or parents[node] != before:
            raise ValueError(
                f"{name} must be a path from a root of the tree down, got {given}"
            )
        before = node
    return tuple(map(int, given))


def node_depths(parents: Sequence[int]) -> list[int]:
    """How deep each node of a tree lies: 1 for a child of -1.

    >>> node_depths([-1, -1, 0, 2])
    [1, 1, 2, 3]
    """
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return depths


def path_to(node: int, parents: Sequence[int]) -> list[int]:
    """The nodes that lead to ``node``, itself included; none for -1.

    >>> path_to(3, [-1, -1, 0, 2])
    [0, 2, 3]
    """
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


def extend_last(state: State, tokens: Sequence[int], rows: int) -> NDArray[np.floating]:
    """Read ``tokens``; (rows, V), the last rows of their logits.

    Spares a state with ``extend_last`` the others; of any other, ``extend`` is asked.
    """
    if hasattr(state, "extend_last"):
        return _checked_rows(state.extend_last(tokens, rows), rows)
    return _checked_rows(state.extend(tokens), len(tokens))[len(tokens) - rows :]


def _checked_rows(logits: NDArray[np.floating], n: int) -> NDArray[np.floating]:
    """``logits``, of n rows; TypeError or ValueError otherwise."""
    logits = as_numbers(logits, "logits")
    if logits.ndim != 2 or len(logits) != n:
        raise ValueError(f"logits must have shape ({n}, V), got {logits.shape}")
    return logits


def extend_by_branches(
    state: State, tokens: Sequence[int], parents: Sequence[int]
) -> NDArray[np.floating]:
    """The rows of :meth:`TreeState.extend_tree`, by ``extend`` and ``rewind`` alone.

    One call for the tokens before the first fork, then one for every node. The state
    is left with the tokens before the first fork.
    """
    parents = check_parents(parents, len(tokens))
    children = Counter(parents)
    if not len(tokens):
        return state.extend(tokens)
    stem = 0  # tokens before the first fork
    while children[stem - 1] == 1 and parents[stem] == stem - 1:
        stem += 1
    start = state.length
    rows = list(state.extend(tokens[:stem])) if stem else []
    depths = node_depths(parents)
    path = list(range(stem))  # the nodes that the state holds now
    rows += [np.empty(0)] * (len(tokens) - stem)
    for node in _depth_first(parents, stem):
        above = depths[node] - 1
        if path[above:]:
            state.rewind(start + above)
            del path[above:]
        rows[node] = state.extend([tokens[node]])[0]
        path.append(node)
    if len(path) > stem:
        state.rewind(start + stem)
    return np.array(rows)


def _depth_first(parents: Sequence[int], first: int) -> list[int]:
    """The nodes from ``first`` on, each after its parent and right before its own
    descendants, so that a state goes down every branch once."""
    children: dict[int, list[int]] = {}
    for node in range(len(parents) - 1, first - 1, -1):
        children.setdefault(parents[node], []).append(node)
    waiting, order = children.get(first - 1, []), []
    while waiting:
        order.append(waiting.pop())
        waiting += children.get(order[-1], [])
    return order


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
            row = np.asarray(self._model.logits_after(sequence[: self.length + i + 1]))
            if row.shape != (vocab_size,):
                raise ValueError(
                    f"logits_after must return shape ({vocab_size},), got {row.shape}"
                )
            if row.dtype.kind not in "biuf":
                raise TypeError(
                    f"logits_after must return real numbers, got {row.dtype.name}"
                )
            logits[i] = row
        self._sequence = sequence
        return logits

    def rewind(self, length: int) -> None:
        self._sequence = self._sequence[: check_rewind(length, self.length)]
