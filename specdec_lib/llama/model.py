"""A Llama as a language model of this library: start, extend, rewind, and trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models import (
    check_count,
    check_parents,
    check_path,
    check_rewind,
    check_tokens,
    node_depths,
)
from . import forward
from .config import Config, Floats, Weights
from .linear import one_blas_thread

PIECE = 256  # a long prompt is read in pieces of so many tokens
FIRST_CAPACITY = 64


class LlamaModel:
    """A Llama with its weights in memory.

    Logits have the type of the weights: float32, or float64 where exact equality
    between one call and many matters. ``vocabulary`` names what the ids stand for, as
    that of a tokenizer does; a target takes no draft of another one.
    """

    def __init__(
        self,
        config: Config,
        weights: Weights,
        *,
        bos_id: int | None = None,
        vocabulary: str | None = None,
    ) -> None:
        if len(weights.layers) != config.layers:
            raise ValueError(
                f"weights must have {config.layers} layers, got {len(weights.layers)}"
            )
        if bos_id is not None and not 0 <= bos_id < config.vocab_size:
            raise ValueError(
                f"bos_id must be inside 0 .. {config.vocab_size - 1}, got {bos_id}"
            )
        self.config = config
        self.weights = weights
        self.bos_id = bos_id
        self.vocabulary = vocabulary

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def context_window(self) -> int:
        return self.config.context_window

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the logits and of all that leads to them."""
        return self.weights.norm.dtype

    def start(self) -> LlamaState:
        """A new, empty sequence."""
        return LlamaState(self)

    def __repr__(self) -> str:
        c = self.config
        return f"<LlamaModel: {c.layers} layers of width {c.width}, {c.vocab_size} ids>"


class LlamaState:
    """One sequence, by the keys and values of its tokens in every layer.

    ``_keys`` is (layers, kv_heads, head_width, capacity) and ``_values`` (layers,
    kv_heads, capacity, head_width). Of the capacity the first ``length`` places are the
    sequence, those after it the tree that was read last, or nothing.
    """

    def __init__(self, model: LlamaModel) -> None:
        self._model = model
        c = model.config
        each = c.layers, c.kv_heads
        self._keys: Floats = np.empty((*each, c.head_width, 0), model.dtype)
        self._values: Floats = np.empty((*each, 0, c.head_width), model.dtype)
        self._length = 0
        self._parents: tuple[int, ...] = ()  # of the tree read last

    @property
    def length(self) -> int:
        """Number of tokens read so far."""
        return self._length

    def extend(self, tokens: Sequence[int]) -> Floats:
        """Read ``tokens``; return (len(tokens), V) logits."""
        return self.extend_last(tokens, len(tokens))

    def extend_last(self, tokens: Sequence[int], rows: int) -> Floats:
        """Read ``tokens``; return (rows, V), the logits after the last ``rows``.

        The head is a large part of a small model's weights, so that a long prompt is
        read faster where only its last row is wanted. ValueError unless
        0 <= rows <= len(tokens).
        """
        new = self._check(tokens, len(tokens))
        check_count("rows", rows)
        if rows > len(new):
            raise ValueError(f"rows must be at most {len(new)}, got {rows}")
        self._parents = ()
        self._make_room(len(new))
        read: list[Floats] = []  # the last pieces, as far as their rows are wanted
        for first in range(0, len(new), PIECE):
            piece = new[first : first + PIECE]
            start = self._length + first
            positions = range(start, start + len(piece))
            mask = forward.causal_mask(len(piece), self._model.dtype)
            x = self._read(piece, positions, mask, start)
            read.append(x[max(0, len(new) - rows - first) :])
        logits = self._logits(read)
        self._length += len(new)
        return logits

    def extend_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Floats:
        """Read a tree of ``tokens`` in one call; return (len(tokens), V) logits.

        ``tokens[i]`` follows ``tokens[parents[i]]``, or the sequence where that is -1.
        ``length`` stays as it is until :meth:`keep`; any other call forgets the tree.
        """
        parents = check_parents(parents, len(tokens))
        depths = node_depths(parents)
        new = self._check(tokens, max(depths, default=0))
        self._parents = ()
        if not parents:
            return self._logits([])
        self._make_room(len(new))
        positions = [self._length - 1 + depth for depth in depths]
        mask = forward.tree_mask(parents, self._model.dtype)
        x = self._read(new, positions, mask, self._length)
        logits = self._logits([x])
        self._parents = parents
        return logits

    def keep(self, nodes: Sequence[int]) -> None:
        """Append one path of the tree read last, and forget the rest of it.

        ``nodes`` are indices into its tokens, each the child of the one before, the
        first a child of -1. ValueError otherwise.
        """
        check_path(nodes, self._parents)
        old = np.array(nodes, dtype=np.intp) + self._length
        new = slice(self._length, self._length + len(old))
        self._keys[..., new] = self._keys[..., old]
        self._values[:, :, new] = self._values[:, :, old]
        self._length += len(old)
        self._parents = ()

    def rewind(self, length: int) -> None:
        """Forget all but the first ``length`` tokens."""
        self._length = check_rewind(length, self._length)
        self._parents = ()

    def _check(self, tokens: Sequence[int], more: int) -> NDArray[np.int64]:
        """``tokens``, ids of the model, if ``more`` positions are left for them."""
        new = check_tokens(tokens, self._model.vocab_size)
        window = self._model.context_window
        if self._length + more > window:
            raise ValueError(
                f"tokens must fit the context window of {window}: "
                f"{self._length} read, {more} more given"
            )
        return new

    def _make_room(self, more: int) -> None:
        """Let the cache hold ``more`` tokens, twice as many as before if need be."""
        needed, capacity = self._length + more, self._keys.shape[3]
        if needed <= capacity:
            return
        twice = max(2 * capacity, FIRST_CAPACITY)
        capacity = max(needed, min(twice, self._model.context_window))
        self._keys = _with_room(self._keys, 3, capacity, self._length)
        self._values = _with_room(self._values, 2, capacity, self._length)

    def _read(
        self, tokens: Any, positions: Sequence[int], mask: Floats, start: int
    ) -> Floats:
        weights, config = self._model.weights, self._model.config
        layers = zip(self._keys, self._values, strict=True)
        caches = [forward.Cache(keys, values, start) for keys, values in layers]
        with one_blas_thread():
            return forward.read(tokens, positions, mask, caches, weights, config)

    def _logits(self, read: list[Floats]) -> Floats:
        if not sum(map(len, read)):
            return np.empty((0, self._model.vocab_size), self._model.dtype)
        x = np.concatenate(read)
        with one_blas_thread():
            return forward.logits(x, self._model.weights, self._model.config)


def _with_room(cache: Floats, axis: int, capacity: int, used: int) -> Floats:
    """The same cache with ``capacity`` places along ``axis``, the first few filled."""
    shape = list(cache.shape)
    shape[axis] = capacity
    larger = np.empty(shape, cache.dtype)
    filled = (slice(None),) * axis + (slice(used),)
    larger[filled] = cache[filled]
    return larger
