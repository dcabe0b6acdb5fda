"""From tokens to logits: a Llama in functions of a few lines, each made of those above.

T is the number of new tokens and S that of all tokens, old and new; D is the width, F
the hidden width and d a head's width; H is the number of query heads and G that of
key and value heads.

Sources: Touvron et al. (2023), section 2.2; Zhang and Sennrich (2019), equation 4; Su
et al. (2021), section 3.4; Shazeer (2020), equation 6; Ainslie et al. (2023).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .config import Config, Floats, Layer, Weights
from .linear import linear, rows_of

Complexes = NDArray[np.complexfloating[Any, Any]]


def rms_norm(x: Floats, weight: Floats, epsilon: float) -> Floats:
    """(T, D), (D,) -> (T, D): every row scaled to a mean square of 1, then weighted."""
    mean_square = np.vecdot(x, x)[:, None] / x.shape[1]
    scaled: Floats = x * (1 / np.sqrt(mean_square + epsilon)) * weight
    return scaled


def softmax(scores: Floats) -> Floats:
    """(..., S) -> (..., S), positive and summing to 1; ``scores`` is overwritten."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def rotations(positions: Sequence[int], config: Config, dtype: Any) -> Complexes:
    """(T,) -> (T, 1, d / 2): the complex numbers of size 1 that turn each pair."""
    pairs = np.arange(0, config.head_width, 2) / config.head_width
    speeds = config.rope_base**-pairs
    if config.rope_factors is not None:
        speeds = speeds / np.array(config.rope_factors)
    angles = np.asarray(positions)[:, None, None] * speeds
    turns: Complexes = np.exp(1j * angles)
    return turns.astype(np.result_type(dtype, np.complex64))


def rotate(x: Floats, turns: Complexes) -> Floats:
    """(T, heads, d), (T, 1, d / 2) -> (T, heads, d): rotary position embedding.

    Numbers 2j and 2j + 1 are the two parts of a complex number, as a GGUF file orders
    the rows of the matrices that made them; to turn it is to multiply.
    """
    return (x.view(turns.dtype) * turns).view(x.dtype)


class Cache(NamedTuple):
    """The keys and values of one layer, with room for more; ``start`` are in use.

    Keys lie as columns and values as rows, ready to be multiplied.
    """

    keys: Floats  # (G, d, capacity)
    values: Floats  # (G, capacity, d)
    start: int

    def with_new(self, keys: Floats, values: Floats) -> tuple[Floats, Floats]:
        """(T, G, d), (T, G, d) -> (G, d, S), (G, S, d): written, with all before."""
        end = self.start + len(keys)
        self.keys[:, :, self.start : end] = keys.transpose(1, 2, 0)
        self.values[:, self.start : end] = values.swapaxes(0, 1)
        return self.keys[:, :, :end], self.values[:, :end]


def split_heads(x: Floats, config: Config) -> Floats:
    """(T, (H + 2 G) d) -> (T, H + 2 G, d)."""
    return x.reshape(len(x), -1, config.head_width)


def causal_mask(n: int, dtype: Any) -> Floats:
    """(n, n): 0 where row i may look at column j, j <= i, and -inf elsewhere."""
    return np.triu(np.full((n, n), -np.inf, dtype), 1)


def tree_mask(parents: Sequence[int], dtype: Any) -> Floats:
    """(n, n): 0 where j is i or leads to i, and -inf elsewhere."""
    mask = np.full((len(parents), len(parents)), -np.inf, dtype)
    for i, parent in enumerate(parents):
        if parent >= 0:
            mask[i] = mask[parent]
        mask[i, i] = 0
    return mask


def attention(q: Floats, keys: Floats, values: Floats, mask: Floats) -> Floats:
    """(T, H, d), (G, d, S), (G, S, d), (T, T) -> (T, H d).

    The mask is for the last T of the S tokens; all those before are seen by all.
    """
    (T, H, d), (G, S, _) = q.shape, values.shape
    q = q.reshape(T, G, H // G, d).transpose(1, 2, 0, 3)
    q = q.reshape(G, -1, d) * (1 / math.sqrt(d))
    scores = (q @ keys).reshape(H, T, S)
    if T > 1:
        scores[:, :, S - T :] += mask
    mixed = softmax(scores).reshape(G, -1, S) @ values
    return mixed.reshape(H, T, d).transpose(1, 0, 2).reshape(T, H * d)


def swiglu(gate_up: Floats) -> Floats:
    """(T, 2 F) -> (T, F): the second half, let through by the first."""
    F = gate_up.shape[1] // 2
    gate, up = gate_up[:, :F], gate_up[:, F:]
    through: Floats = gate / (1 + np.exp(-gate)) * up
    return through


def attend(
    x: Floats, layer: Layer, cache: Cache, turns: Any, mask: Floats, config: Config
) -> Floats:
    """(T, D) -> (T, D): append the keys and values to ``cache``, then look back."""
    H, G = config.heads, config.kv_heads
    x = rms_norm(x, layer.attention_norm, config.epsilon)
    heads = split_heads(linear(x, layer.qkv), config)
    turned = rotate(heads[:, : H + G], turns)
    keys, values = cache.with_new(turned[:, H:], heads[:, H + G :])
    return linear(attention(turned[:, :H], keys, values, mask), layer.output)


def feed_forward(x: Floats, layer: Layer, config: Config) -> Floats:
    """(T, D) -> (T, D)."""
    x = rms_norm(x, layer.feed_norm, config.epsilon)
    return linear(swiglu(linear(x, layer.gate_up)), layer.down)


def read(
    tokens: Any,
    positions: Sequence[int],
    mask: Floats,
    caches: Iterable[Cache],
    weights: Weights,
    config: Config,
) -> Floats:
    """(T,) -> (T, D): all layers, each with its own cache."""
    x = rows_of(weights.embedding, tokens, weights.norm.dtype)
    turns = rotations(positions, config, x.dtype)
    with np.errstate(over="ignore"):  # exp(-gate) may be inf, and gate / inf is right
        for layer, cache in zip(weights.layers, caches, strict=True):
            x = x + attend(x, layer, cache, turns, mask, config)
            x = x + feed_forward(x, layer, config)
    return x


def logits(x: Floats, weights: Weights, config: Config) -> Floats:
    """(n, D) -> (n, V)."""
    return linear(rms_norm(x, weights.norm, config.epsilon), weights.head)
