"""The token rule of speculative sampling: exact for every draft."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..drafts import Proposal
from ..models import are_tokens, check_tokens
from ..randomness import RandomSource
from ..sampling import as_numbers

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """The first ``accepted`` proposed tokens are kept; ``next_token`` follows them.

    ``next_token`` is a correction where a guess was rejected, and a bonus token where
    all of them were accepted. ``path`` has the kept nodes of a tree, from the first one
    down; None where the proposal is a chain.
    """

    accepted: int
    next_token: int
    path: tuple[int, ...] | None = None


Verify = Callable[[Floats, Proposal, RandomSource], Verdict]


def verify_tokens(
    target_probabilities: Floats, proposal: Proposal, rng: RandomSource
) -> Verdict:
    """Judge guesses one by one: accept x with probability min(1, p(x) / q(x)).

    The first rejected guess is replaced by a token from the residual distribution;
    if all n are accepted, a bonus token comes from the last row of the target.

    target_probabilities
        (n + 1, V); row i is the target's distribution p given the first i guesses.
    proposal
        n tokens with the (n, V) distributions q that they were drawn from.

    Raises ValueError where shapes disagree, a token is outside the vocabulary, a row
    is not a distribution, or a token was proposed that has probability 0 in q.

    Source: Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2.
    """
    p, q = checked(target_probabilities, proposal)
    for i, token in enumerate(proposal.tokens):
        p_token = float(p[i, token])
        q_token = 1.0 if q is None else float(q[i, token])
        if not rng.bernoulli(p_token / q_token if p_token < q_token else 1.0):
            q_row = one_hot(token, p.shape[1]) if q is None else q[i]
            return Verdict(i, rng.categorical(residual(p[i], q_row)))
    return Verdict(len(proposal.tokens), rng.categorical(p[-1]))


def residual(p: ArrayLike, q: ArrayLike) -> Floats:
    """What is left of p where q already gave enough: max(p - q, 0), normalised.

    ``p`` and ``q`` are (V,) distributions. Where nothing is left (p = q, so that no
    guess can be rejected) it is p itself. Source: Leviathan et al. 2023, section 2.3.

    >>> residual([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]).tolist()
    [1.0, 0.0, 0.0]
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if p.shape != q.shape or p.ndim != 1:
        raise ValueError(
            f"p and q must have the same shape (V,), got {p.shape} and {q.shape}"
        )
    left = np.maximum(p - q, 0.0)
    total = np.add.reduce(left)
    return left / total if total > 0.0 else p


def one_hot(token: int, vocab_size: int) -> Floats:
    """The (V,) distribution that is certain of ``token``."""
    row = np.zeros(vocab_size)
    row[token] = 1.0
    return row


def checked(
    target_probabilities: Floats, proposal: Proposal, *, tree: bool = False
) -> tuple[Floats, Floats | None]:
    """The arrays p (n + 1, V) and q (n, V) or None, after all checks of a rule.

    A rule that can judge a tree of guesses says so by ``tree``.
    """
    if proposal.parents is not None and not tree:
        raise ValueError(
            "proposal must be a chain for this rule; verify_tree takes trees"
        )
    p = as_numbers(target_probabilities, "target_probabilities")
    n = len(proposal.tokens)
    if p.ndim != 2 or p.shape[0] != n + 1 or p.shape[1] == 0:
        raise ValueError(
            f"target_probabilities must have shape ({n + 1}, V) for {n} proposed "
            f"tokens, got {p.shape}"
        )
    p = distributions(p, "target_probabilities")
    if not are_tokens(proposal.tokens, p.shape[1]):
        check_tokens(proposal.tokens, p.shape[1], "proposal.tokens")
    if proposal.probabilities is None:
        return p, None
    given = as_numbers(proposal.probabilities, "proposal.probabilities")
    if given.shape != (n, p.shape[1]):
        raise ValueError(
            f"proposal.probabilities must have shape {(n, p.shape[1])} or be None, "
            f"got {given.shape}"
        )
    q = distributions(given, "proposal.probabilities")
    for i, token in enumerate(proposal.tokens):
        if not q[i, token] > 0.0:
            raise ValueError(
                f"proposal.tokens[{i}] = {token} has probability 0 in "
                "proposal.probabilities, so it cannot have been drawn from them"
            )
    return p, q


def distributions(given: NDArray[Any], name: str) -> Floats:
    """The rows of ``given`` (n, V) in float64, checked to be distributions.

    Those of a coarser type sum to 1 within 1e-2 only. They are normalised, which is how
    ``rng.categorical`` draws from them: a rule must judge what was drawn from.
    """
    rows = np.asarray(given, dtype=np.float64)
    if given.dtype.kind != "f" or given.dtype.itemsize >= 8:
        check_distributions(rows, name)
        return rows
    check_distributions(rows, name, within=1e-2)
    return rows / np.add.reduce(rows, axis=1, keepdims=True)


def check_distributions(rows: Floats, name: str, *, within: float = 1e-6) -> None:
    """ValueError unless every row is non-negative and sums to 1."""
    if not rows.size:
        return
    if not rows.min() >= 0.0:
        raise ValueError(f"{name} must have no negative and no NaN entry")
    with np.errstate(over="ignore"):
        totals = np.add.reduce(rows, axis=1).tolist()
    for i, total in enumerate(totals):
        if not abs(total - 1.0) <= within:
            raise ValueError(
                f"{name} must have rows that sum to 1, row {i} sums to {total}"
            )
