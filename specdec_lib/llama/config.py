"""What shape a Llama has, and the weights it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Config:
    """The sizes and constants of a Llama.

    vocab_size, context_window
        tokens V; most positions.
    width, hidden
        numbers that stand for one position; numbers inside the feed-forward part.
    layers, heads, kv_heads, head_width
        query head h reads the keys and values of head h // (heads // kv_heads).
    epsilon
        added under the root of RMSNorm.
    rope_base, rope_factors
        pair j of a head turns by 1 / (base^(2j / head_width) * factors[j]) radians
        from one position to the next; None: all factors are 1.
    """

    vocab_size: int
    context_window: int
    width: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    epsilon: float = 1e-5
    rope_base: float = 10000.0
    rope_factors: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in (
            *("vocab_size", "context_window", "width", "hidden"),
            *("layers", "heads", "kv_heads", "head_width"),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value!r}")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads must be a multiple of kv_heads = {self.kv_heads}, "
                f"got {self.heads}"
            )
        if self.head_width % 2:
            raise ValueError(f"head_width must be even, got {self.head_width}")
        if not 0 < self.rope_base < math.inf:
            raise ValueError(
                f"rope_base must be finite and above 0, got {self.rope_base}"
            )
        if not 0 <= self.epsilon < math.inf:
            raise ValueError(
                f"epsilon must be finite and 0 or more, got {self.epsilon}"
            )
        factors = self.rope_factors
        if factors is not None and len(factors) != self.head_width // 2:
            raise ValueError(
                f"rope_factors must be {self.head_width // 2} numbers, "
                f"got {len(factors)}"
            )
        if factors is not None and not all(0 < each < math.inf for each in factors):
            raise ValueError(f"rope_factors must be finite and above 0, got {factors}")


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of one layer; D is the width, F the hidden width, d a head's width.

    A matrix is (out, in), so that each of its rows makes one number: an array of
    floats or, with the compiled kernel, the file's own blocks.
    """

    attention_norm: Floats  # (D,)
    qkv: Any  # ((heads + 2 kv_heads) d, D): queries, then keys, then values
    output: Any  # (D, heads d)
    feed_norm: Floats  # (D,)
    gate_up: Any  # (2 F, D): the gate's rows, then those it lets through
    down: Any  # (D, F)


@dataclass(frozen=True, eq=False)
class Weights:
    """All weights of a model, ``layers`` from the first to the last; ``head is
    embedding`` where the two are tied."""

    embedding: Any  # (V, D)
    layers: tuple[Layer, ...]
    norm: Floats  # (D,)
    head: Any  # (V, D)
