"""The block rule: guesses are judged together, and none is wasted that need not be."""

from __future__ import annotations

import numpy as np

from ..drafts import Proposal
from ..randomness import RandomSource
from .exact import Floats, Verdict, checked, one_hot, residual


def verify_block(
    target_probabilities: Floats, proposal: Proposal, rng: RandomSource
) -> Verdict:
    """Judge all guesses at once: the longest prefix that the block as a whole allows.

    Exact like :func:`verify_tokens`, from the same arguments, and for every draft it
    keeps at least as many tokens in the mean. With w_0 = 1, the weight of a prefix,
    w_i = min(1, w_(i-1) p(x_i) / q(x_i)), is how much of what the draft proposed may be
    kept; a prefix whose ratio fell below 1 can recover where a later ratio exceeds 1.
    From the last guess back, the prefix of length i is kept with probability h_i, where
    h_n = w_n and, with S_i the sum of max(w_i p - q, 0) over the next token,
    h_i = S_i / (S_i + 1 - w_i). The token after it comes from max(w_i p - q, 0),
    normalised; after a whole block it is a bonus from the target.

    Arguments and errors as in :func:`verify_tokens`.

    Source: Sun et al. 2025, algorithm 2; theorem 1 (exact) and theorem 2 (no exact
    rule that judges the same guesses brings more tokens).
    """
    p, q = checked(target_probabilities, proposal)
    n, vocab_size = len(proposal.tokens), p.shape[1]
    weights = prefix_weights(p, q, proposal.tokens)
    if n == 0 or rng.bernoulli(weights[n]):
        return Verdict(n, rng.categorical(p[n]))
    for i in range(n - 1, -1, -1):
        q_row = one_hot(proposal.tokens[i], vocab_size) if q is None else q[i]
        weighted = weights[i] * p[i]
        left = float(np.maximum(weighted - q_row, 0.0).sum())
        lost = 1.0 - weights[i]
        if i == 0 or (left > 0.0 and rng.bernoulli(left / (left + lost))):
            break
    return Verdict(i, rng.categorical(residual(weighted, q_row)))


def prefix_weights(p: Floats, q: Floats | None, tokens: tuple[int, ...]) -> list[float]:
    """w_0 .. w_n: w_0 = 1 and w_i = min(1, w_(i-1) p(x_i) / q(x_i)).

    ``p`` is (n, V) or longer, ``q`` (n, V), or None for point masses.
    """
    weights = [1.0]
    for i, token in enumerate(tokens):
        kept = weights[-1] * float(p[i, token])
        proposed = 1.0 if q is None else float(q[i, token])
        # Compared before dividing: the ratio may be too large for a float.
        weights.append(kept / proposed if kept < proposed else 1.0)
    return weights
