"""The closed forms: acceptance, tokens per call, speedup, best draft length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .verification.exact import check_distributions


def total_variation(p: ArrayLike, q: ArrayLike) -> float:
    """Half the L1 distance between two distributions of shape (V,); inside [0, 1]."""
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if p.shape != q.shape or p.ndim != 1:
        raise ValueError(
            f"p and q must have the same shape (V,), got {p.shape} and {q.shape}"
        )
    check_distributions(p[np.newaxis], "p")
    check_distributions(q[np.newaxis], "q")
    return float(0.5 * np.abs(p - q).sum())


def acceptance(p: ArrayLike, q: ArrayLike) -> float:
    """Probability that the token rule accepts a guess from q: 1 - TV(p, q).

    The same as the overlap, the sum of min(p, q). Source: Leviathan et al. 2023,
    theorem 3.5.

    >>> round(acceptance([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]), 12)
    0.7
    """
    return 1.0 - total_variation(p, q)


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens per target call where each guess is accepted with probability ``alpha``.

    (1 - alpha^(k+1)) / (1 - alpha), which is k + 1 at alpha = 1; ``k`` guesses a round,
    accepted independently. Source: Leviathan et al. 2023, equation 1.

    >>> round(expected_tokens(0.8, 4), 4)
    3.3616
    """
    _check_alpha(alpha)
    _check_k(k)
    return float(sum(alpha**i for i in range(k + 1)))


def speedup(
    alpha: float,
    k: int,
    draft_cost: float,
    verify_cost: Callable[[int], float] | None = None,
) -> float:
    """How many times faster than autoregressive decoding, by the cost model.

    draft_cost
        c = time of one draft call / time of one target call for one token, >= 0.
    verify_cost
        n -> T(n) / T(1), the cost of one target call for n tokens; 1 where not given.

    Source: Leviathan et al. 2023, theorem 3.8 (there with T(n) = T(1)).

    >>> round(speedup(0.8, 4, 0.1), 3)
    2.401
    """
    _check_k(k)
    if not 0 <= draft_cost < np.inf:
        raise ValueError(f"draft_cost must be finite and >= 0, got {draft_cost}")
    call = 1.0 if verify_cost is None else float(verify_cost(k + 1))
    if not 0 < call < np.inf:
        raise ValueError(
            f"verify_cost must be finite and > 0, got {call} for {k + 1} tokens"
        )
    return expected_tokens(alpha, k) / (k * draft_cost + call)


def best_k(
    alpha: float,
    draft_cost: float,
    verify_cost: Callable[[int], float] | None = None,
    *,
    max_k: int = 32,
) -> int:
    """The draft length in 0 .. max_k with the largest :func:`speedup` (the smallest
    among equals; 0 means that guessing does not pay).

    >>> best_k(0.7, 0.1)
    4
    """
    _check_k(max_k, "max_k")
    speedups: NDArray[np.float64] = np.array(
        [speedup(alpha, k, draft_cost, verify_cost) for k in range(max_k + 1)]
    )
    return int(speedups.argmax())


def _check_alpha(alpha: float) -> None:
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must be in [0, 1], got {alpha}")


def _check_k(k: int, name: str = "k") -> None:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {k!r}")
    if k < 0:
        raise ValueError(f"{name} must be 0 or more, got {k}")
