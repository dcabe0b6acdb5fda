"""Prompt lookup: the text is its own draft.

Find the last few tokens further up in the text, and guess that what followed them there
follows again. No model, no arithmetic: one dict from n-gram to place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..models import are_tokens, check_count, check_tokens
from ..randomness import RandomSource
from ..sampling import is_number
from .model import Proposal

MOST_TOKENS = 2**31  # a draft that copies knows no vocabulary; ids stay below this


@dataclass(frozen=True)
class PromptLookup:
    """Copies what followed the last tokens where they stood before.

    max_match, min_match
        the longest and the shortest run of last tokens to look for; the longest that
        is found decides.
    earliest
        False: copy from the most recent place. True: from the first one, which is the
        rule of the published code.
    reach
        None, or at most ``reach`` guesses for each matched token, rounded down: a long
        match is trusted further than a short one.

    Proposals are deterministic: their probabilities are None. They end where the text
    ends, so they may be shorter than k. Any prompt will do, even an empty one. The work
    for a committed token or a proposal does not grow with the text; the memory does, by
    one entry for each token and each length of match.

    Source: Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding; ``reach`` is the
    idea of Oliaro et al. 2025 (SuffixDecoding).

    >>> PromptLookup(max_match=2).start([1, 2, 3, 1, 2]).propose(10).tokens
    (3, 1, 2)
    """

    max_match: int = 3
    min_match: int = 1
    earliest: bool = False
    reach: float | None = None

    def __post_init__(self) -> None:
        check_match(self.max_match, self.min_match)
        reach = self.reach
        if reach is None:
            return
        if not is_number(reach):
            raise TypeError(f"reach must be a number or None, got {reach!r}")
        if not 0 < reach < math.inf:
            raise ValueError(f"reach must be above 0 and finite, got {reach}")

    def start(self, prompt: Sequence[int]) -> LookupSession:
        return LookupSession(self, prompt)


class LookupSession:
    """One text and the places of its n-grams.

    ``match`` is the length of the match that the last proposal used, 0 for none.
    """

    def __init__(self, draft: PromptLookup, prompt: Sequence[int]) -> None:
        self._draft = draft
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # n-gram -> place of what followed
        self.match = 0
        self.commit(prompt)

    def propose(self, k: int, rng: RandomSource | None = None) -> Proposal:
        text, draft = self._text, self._draft
        self.match = 0
        for n in range(min(draft.max_match, len(text)), draft.min_match - 1, -1):
            place = self._after.get(tuple(text[-n:]))
            if place is not None:
                self.match = n
                if draft.reach is not None:
                    k = min(k, int(draft.reach * n))
                return Proposal(tuple(text[place : place + k]))
        return Proposal(())

    def commit(self, tokens: Sequence[int]) -> None:
        text, draft = self._text, self._draft
        for token in token_list(tokens):
            # Only now are the n-grams at the end of the text followed by something, so
            # only now can they be found: the end never matches itself.
            place = len(text)
            for n in range(draft.min_match, min(draft.max_match, place) + 1):
                ngram = tuple(text[place - n :])
                if draft.earliest:
                    self._after.setdefault(ngram, place)
                else:
                    self._after[ngram] = place
            text.append(token)


def check_match(max_match: int, min_match: int) -> None:
    """TypeError or ValueError unless 1 <= min_match <= max_match, both integers."""
    check_count("min_match", min_match, 1)
    check_count("max_match", max_match, 1)
    if min_match > max_match:
        raise ValueError(
            f"min_match must be at most max_match = {max_match}, got {min_match}"
        )


def token_list(tokens: Sequence[int]) -> list[int]:
    """``tokens`` as Python integers; TypeError or ValueError unless they are tokens."""
    if are_tokens(tokens, MOST_TOKENS):
        return list(tokens)
    return [int(token) for token in check_tokens(tokens, MOST_TOKENS)]
