"""The tree rule: several guesses for one place, judged one after the other."""

from __future__ import annotations

from ..drafts import Proposal
from ..models import check_parents
from ..randomness import RandomSource
from .exact import Floats, Verdict, checked, one_hot, residual


def verify_tree(
    target_probabilities: Floats, proposal: Proposal, rng: RandomSource
) -> Verdict:
    """Go down the tree from guess to accepted guess; reject recursively at each place.

    The children of a node are judged in their order. The first is accepted with
    probability min(1, p(x) / q(x)); where it is rejected, the residual takes the place
    of p for the second, and so on. What is left after the last one gives the next
    token; a node without children, a bonus. So each place is exact whatever the number
    of guesses, and so is the text.

    target_probabilities
        (n + 1, V); row 0 is the target's distribution after the text so far, row i + 1
        that after node i.
    proposal
        n nodes; row i of its (n, V) distributions is what node i was drawn from, *given
        the siblings before it*: the same q again for draws with replacement, q without
        their tokens, normalised, for draws without.

    A proposal that is a chain is judged as :func:`verify_tokens` does, draw for draw.
    Errors as there, and ValueError where the parents make no tree.

    Source: Miao et al. 2024, algorithm 2 and theorem 4.2 (multi-step speculative
    sampling); Chen et al. 2023, algorithm 2 for one guess a place.
    """
    p, q = checked(target_probabilities, proposal, tree=True)
    tokens, vocab_size = proposal.tokens, p.shape[1]
    children = children_of(proposal)
    node = -1
    path: list[int] = []
    while True:
        left = p[node + 1]
        for child in children[node]:
            token = tokens[child]
            q_row = one_hot(token, vocab_size) if q is None else q[child]
            p_token, q_token = float(left[token]), float(q_row[token])
            if rng.bernoulli(p_token / q_token if p_token < q_token else 1.0):
                break
            left = residual(left, q_row)
        else:
            kept = None if proposal.parents is None else tuple(path)
            return Verdict(len(path), rng.categorical(left), kept)
        path.append(child)
        node = child


def children_of(proposal: Proposal) -> dict[int, list[int]]:
    """The children of each node, in their order; -1 is the text so far."""
    n = len(proposal.tokens)
    chain = tuple(range(-1, n - 1))
    given = proposal.parents
    parents = chain if given is None else check_parents(given, n)
    children: dict[int, list[int]] = {node: [] for node in range(-1, n)}
    for node, parent in enumerate(parents):
        children[parent].append(node)
    return children
