"""The closed forms: acceptance, tokens per call, speedup, best draft length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .models import check_count
from .verification.exact import distributions


def total_variation(p: ArrayLike, q: ArrayLike) -> float:
    """Half the L1 distance of two distributions p and q of shape (V,); in [0, 1]."""
    p, q = np.asarray(p), np.asarray(q)
    if p.shape != q.shape or p.ndim != 1:
        raise ValueError(
            f"p and q must have the same shape (V,), got {p.shape} and {q.shape}"
        )
    p = distributions(p[np.newaxis], "p")
    q = distributions(q[np.newaxis], "q")
    return float(0.5 * np.abs(p - q).sum())


def acceptance(p: ArrayLike, q: ArrayLike) -> float:
    """Probability that the token rule accepts a guess from q: 1 - TV(p, q).

    The same as the overlap, the sum of min(p, q). Source: Leviathan et al. 2023,
    theorem 3.5.

    >>> round(acceptance([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]), 12)
    0.7
    """
    return 1.0 - total_variation(p, q)


def acceptance_by_row(p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
    """:func:`acceptance` of n pairs at once: (n, V) and (n, V) give (n,).

    The rows are taken as distributions, unchecked: the sum of min(p, q) of each, at
    most 1 whatever the rounding.
    """
    overlap = np.minimum(p, q).sum(axis=1, dtype=np.float64)
    return np.asarray(np.minimum(overlap, 1.0), dtype=np.float64)


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens per target call where each guess is accepted with probability ``alpha``.

    (1 - alpha^(k+1)) / (1 - alpha), which is k + 1 at alpha = 1; ``k`` guesses a round,
    accepted independently. Source: Leviathan et al. 2023, equation 1.

    >>> round(expected_tokens(0.8, 4), 4)
    3.3616
    """
    _check_alpha(alpha)
    check_count("k", k)
    return float(sum(alpha**i for i in range(k + 1)))


def expected_tokens_by_position(rates: Sequence[float]) -> float:
    """Tokens per target call where the chance of acceptance depends on the place.

    rates
        k numbers in [0, 1]: ``rates[i]`` is the chance that guess i is accepted given
        that it is tested, which is that all before it were accepted; as in
        :attr:`specdec_lib.metrics.Positions.rates`.

    A round emits one token, and one more for each accepted guess; guess i is accepted
    with probability ``rates[0] ... rates[i]``. So it is the sum of these products, and
    1. Nothing is assumed independent; :func:`expected_tokens` is the case where all
    rates are alpha.

    >>> round(expected_tokens_by_position([0.5, 0.8]), 12)
    1.9
    """
    _check_rates(rates)
    return 1.0 + float(np.cumprod(np.array(rates, dtype=np.float64)).sum())


def expected_calls(rates: Sequence[float], k: int) -> float:
    """Target calls that a text of n tokens takes, by the chances along that very text.

    rates
        n numbers in [0, 1]: ``rates[t]`` is the chance that a guess for token t of the
        text was accepted, given the text. Where p and q are the two distributions
        there and x the token that came, that is min(1, q(x) / p(x)): the guess is x
        and accepted with probability min(p(x), q(x)), and x comes with p(x).
    k
        guesses a round; less at the end, where less than k + 1 tokens are left.

    Nothing is assumed independent: neighbouring contexts may be as alike as they are in
    the text. A round that starts at t emits a tokens up to the first rejection, so the
    calls left are R(t) = 1 + sum over a of P(a guesses pass) R(t + a + 1), R(n) = 0.
    Averaged over texts of the target, it is the mean number of calls of decoding.

    >>> expected_calls([1.0] * 12, 3), expected_calls([0.0] * 12, 3)
    (3.0, 12.0)
    """
    _check_rates(rates)
    check_count("k", k)
    chances = [float(rate) for rate in rates]
    n = len(chances)
    calls = [0.0] * (n + 1)  # calls[t]: those still to come when t tokens are there
    for t in range(n - 1, -1, -1):
        passed, left = 1.0, 0.0
        length = min(k, n - t - 1)
        for i in range(length):
            rate = chances[t + i]
            left += passed * (1.0 - rate) * calls[t + i + 1]
            passed *= rate
        calls[t] = 1.0 + left + passed * calls[t + length + 1]
    return calls[0]


@dataclass(frozen=True)
class CostCurve:
    """n -> T(n) / T(1), from measured times; :func:`cost_curve` makes one.

    Calling it with n inside the measured range gives the ratio, on the straight line
    between the two measured points beside n: ``ratios`` at ``ns`` tokens. ValueError
    outside that range: nothing was measured there.
    """

    ns: tuple[int, ...]
    ratios: tuple[float, ...]

    def __call__(self, n: int) -> float:
        if not self.ns[0] <= n <= self.ns[-1]:
            raise ValueError(
                f"n must be inside the measured {self.ns[0]} .. {self.ns[-1]} tokens "
                f"a call, got {n}; a k up to {self.ns[-1] - 1} can be judged"
            )
        return float(np.interp(n, self.ns, self.ratios))


def cost_curve(ns: Sequence[int], times: Sequence[float]) -> CostCurve:
    """A measured verification curve: what a call for n tokens costs beside one.

    ns
        tokens per call, increasing integers from 1.
    times
        the time of such a call, > 0, in any unit.

    Raises ValueError or TypeError otherwise.

    >>> curve = cost_curve([1, 5], [20.0, 28.0])
    >>> curve(1), curve(3), curve(5)
    (1.0, 1.2, 1.4)
    """
    ns = list(ns)
    for n in ns:
        check_count("ns", n)
    if not ns or ns[0] != 1 or any(a >= b for a, b in pairwise(ns)):
        raise ValueError(f"ns must increase and start with 1, got {ns}")
    seconds = np.array(times, dtype=np.float64)
    if seconds.shape != (len(ns),):
        raise ValueError(f"times must have one time for each of ns, got {times!r}")
    if not (np.isfinite(seconds).all() and seconds.min() > 0):
        raise ValueError(f"times must be finite and > 0, got {times!r}")
    return CostCurve(tuple(map(int, ns)), tuple((seconds / seconds[0]).tolist()))


def speedup_from_tokens(
    tokens_per_call: float,
    k: int,
    draft_cost: float,
    verify_cost: Callable[[int], float] | None = None,
) -> float:
    """How many times faster than autoregressive decoding, by what a call brings.

    A round takes k draft calls and one target call for k + 1 tokens, so it takes
    k c + T(k + 1) / T(1) in units of one plain target call, which would bring 1 token.

    tokens_per_call
        emitted tokens per target call, measured or expected, 1 .. k + 1.
    draft_cost, verify_cost
        as in :func:`speedup`.

    >>> round(speedup_from_tokens(3.3616, 4, 0.1), 3)
    2.401
    """
    check_count("k", k)
    if not 1 - 1e-9 <= tokens_per_call <= k + 1 + 1e-9:
        raise ValueError(
            f"tokens_per_call must be inside 1 .. k + 1 = {k + 1}, "
            f"got {tokens_per_call}"
        )
    return tokens_per_call / (k * _checked_cost(draft_cost) + _call(verify_cost, k + 1))


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
    return speedup_from_tokens(expected_tokens(alpha, k), k, draft_cost, verify_cost)


def oracle_speedup(
    alpha: float,
    k: int,
    draft_cost: float,
    verify_cost: Callable[[int], float] | None = None,
) -> float:
    """The speedup of a draft that stops just before its first rejection.

    It knows in advance which guess would be rejected, and drafts only those before it,
    at most ``k``; each is accepted with probability ``alpha``, independently. No work
    is wasted, and as many tokens come as from drafting k every time, so it bounds
    :func:`speedup` from above where T(n) does not fall with n. With alpha = 1 it is a
    draft that is always right: k + 1 tokens a call.

    A round keeps a < k guesses with probability (1 - alpha) alpha^a, and k with
    alpha^k. It brings a + 1 tokens and takes a c + T(a + 1) / T(1). The speedup is the
    mean of the one over the mean of the other. Where T is a straight line or bends
    upwards, the best of it over k bounds every rule for when to stop, since each such
    rule drafts past a rejection, which brings nothing, or stops at some a.

    >>> round(oracle_speedup(0.8, 4, 0.1), 3), oracle_speedup(1.0, 4, 0.0)
    (2.719, 5.0)
    """
    _check_alpha(alpha)
    check_count("k", k)
    _checked_cost(draft_cost)
    kept = np.arange(k + 1)
    probability = np.power(float(alpha), kept)
    probability[:-1] *= 1.0 - alpha
    cost = [a * draft_cost + _call(verify_cost, a + 1) for a in range(k + 1)]
    return float(probability @ (kept + 1) / (probability @ np.array(cost)))


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
    check_count("max_k", max_k)
    speedups: NDArray[np.float64] = np.array(
        [speedup(alpha, k, draft_cost, verify_cost) for k in range(max_k + 1)]
    )
    return int(speedups.argmax())


def best_k_from_tokens(
    tokens_per_call: Mapping[int, float],
    draft_cost: float,
    verify_cost: Callable[[int], float] | None = None,
) -> int:
    """The draft length with the largest :func:`speedup_from_tokens`.

    ``tokens_per_call`` maps each draft length k to what a call brings there, measured
    or expected. The smallest among equals. ValueError where it is empty.

    >>> best_k_from_tokens({0: 1.0, 2: 2.2, 4: 2.6}, 0.1)
    4
    """
    if not tokens_per_call:
        raise ValueError("tokens_per_call must have at least one draft length")
    return max(
        sorted(tokens_per_call),
        key=lambda k: speedup_from_tokens(
            tokens_per_call[k], k, draft_cost, verify_cost
        ),
    )


def best_k_by_position(
    rates: Sequence[float],
    draft_cost: float,
    verify_cost: Callable[[int], float] | None = None,
) -> int:
    """The draft length in 0 .. len(rates) that is best by the rates at each place.

    ``rates`` as in :func:`expected_tokens_by_position`; a draft of length k has the
    first k of them. Rates measured at one k are not quite those at another: a round
    begins after a correction more often where drafts are long, and what follows a
    correction is harder to guess. :func:`expected_calls` has no such flaw.

    >>> best_k_by_position([0.7, 0.7, 0.0, 0.7], 0.1)
    2
    """
    tokens = {k: expected_tokens_by_position(rates[:k]) for k in range(len(rates) + 1)}
    return best_k_from_tokens(tokens, draft_cost, verify_cost)


def _call(verify_cost: Callable[[int], float] | None, n: int) -> float:
    call = 1.0 if verify_cost is None else float(verify_cost(n))
    if not 0 < call < np.inf:
        raise ValueError(
            f"verify_cost must be finite and > 0, got {call} for {n} tokens"
        )
    return call


def _checked_cost(draft_cost: float) -> float:
    if not 0 <= draft_cost < np.inf:
        raise ValueError(f"draft_cost must be finite and >= 0, got {draft_cost}")
    return draft_cost


def _check_rates(rates: Sequence[float]) -> None:
    for i, rate in enumerate(rates):
        if rate is None:
            raise ValueError(f"rates must be numbers: nothing was tested at place {i}")
        if not 0.0 <= rate <= 1.0:
            raise ValueError(f"rates must be in [0, 1], got {rate} at place {i}")


def _check_alpha(alpha: float) -> None:
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must be in [0, 1], got {alpha}")
