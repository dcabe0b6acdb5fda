"""Rules that look right and are not: their output is not the target's distribution.

They are published, plausible, and measured in the chapter on rules that look right.
Nothing else in the library uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..drafts import ModelDraft, Proposal, Session
from ..randomness import RandomSource
from .exact import Floats, Verdict, Verify, checked


def verify_argmax(
    target_probabilities: Floats, proposal: Proposal, rng: RandomSource
) -> Verdict:
    """Accept a guess if it is the target's most probable token, else emit that token.

    Greedy decoding in disguise: whatever the draft and the temperature, the output is
    the target's argmax (the lowest id among equals) at every position.
    """
    p, _ = checked(target_probabilities, proposal)
    best = p.argmax(axis=1)
    accepted = 0
    while (
        accepted < len(proposal.tokens) and proposal.tokens[accepted] == best[accepted]
    ):
        accepted += 1
    return Verdict(accepted, int(best[accepted]))


def probability_threshold(tau: float) -> Verify:
    """Rule: accept x if p(x) > tau, else emit the target's argmax.

    For tau >= 1/2 only the argmax can pass, so the output is greedy decoding again;
    below that it depends on the draft.
    """
    _check_threshold("tau", tau)

    def verify(
        target_probabilities: Floats, proposal: Proposal, rng: RandomSource
    ) -> Verdict:
        p, _ = checked(target_probabilities, proposal)
        for i, token in enumerate(proposal.tokens):
            if not p[i, token] > tau:
                return Verdict(i, int(p[i].argmax()))
        return Verdict(len(proposal.tokens), int(p[-1].argmax()))

    return verify


def ratio_threshold(tau: float) -> Verify:
    """Rule: accept x if p(x) / q(x) > tau, else sample the target.

    One token then has the distribution q(x) [p(x)/q(x) > tau] + R p(x), R being the
    probability that q gives to the guesses that fail.
    """
    _check_threshold("tau", tau)

    def verify(
        target_probabilities: Floats, proposal: Proposal, rng: RandomSource
    ) -> Verdict:
        p, q = checked(target_probabilities, proposal)
        for i, token in enumerate(proposal.tokens):
            q_token = 1.0 if q is None else q[i, token]
            if not p[i, token] > tau * q_token:
                return Verdict(i, rng.categorical(p[i]))
        return Verdict(len(proposal.tokens), rng.categorical(p[-1]))

    return verify


def logit_ratio(p0: float) -> Verify:
    """Rule: accept x if exp(draft logit - target logit) > 1 / (1 - p0), else sample
    the target; ``p0`` is a constant inside [0, 1).

    Logits are taken as log probabilities, so the test reads q(x) / p(x) > 1 / (1 - p0):
    a guess passes where the draft is surer of it than the target is, which is the
    exact rule's ratio upside down.
    """
    if not 0.0 <= p0 < 1.0:
        raise ValueError(f"p0 must be in [0, 1), got {p0}")

    def verify(
        target_probabilities: Floats, proposal: Proposal, rng: RandomSource
    ) -> Verdict:
        p, q = checked(target_probabilities, proposal)
        for i, token in enumerate(proposal.tokens):
            q_token = 1.0 if q is None else q[i, token]
            if not q_token * (1.0 - p0) > p[i, token]:
                return Verdict(i, rng.categorical(p[i]))
        return Verdict(len(proposal.tokens), rng.categorical(p[-1]))

    return verify


@dataclass(frozen=True)
class SoftGreedyDraft:
    """A draft that breaks the contract: proposes argmaxes, reports soft probabilities.

    The tokens come from a point mass, the reported distributions from the model. The
    exact rule is then fed a q that nothing was drawn from, and its output is no longer
    the target's. Real libraries have shipped this.
    """

    draft: ModelDraft

    def start(self, prompt: Sequence[int]) -> Session:
        return _SoftGreedySession(self.draft, prompt)


class _SoftGreedySession:
    def __init__(self, draft: ModelDraft, prompt: Sequence[int]) -> None:
        self._session: Session = draft.start(prompt)

    def propose(self, k: int, rng: RandomSource) -> Proposal:
        return self._session.propose(k, _TakeTheBest())

    def commit(self, tokens: Sequence[int]) -> None:
        self._session.commit(tokens)


class _TakeTheBest:
    """A 'random' source that always takes the most probable outcome."""

    def bernoulli(self, p: float) -> bool:
        return p >= 0.5

    def categorical(self, distribution: ArrayLike) -> int:
        return int(np.argmax(distribution))


def _check_threshold(name: str, value: float) -> None:
    if not (np.isfinite(value) and value >= 0.0):
        raise ValueError(f"{name} must be a finite number >= 0, got {value}")
