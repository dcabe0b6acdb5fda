"""The loop: guess, score all guesses in one call, keep a prefix, go on.

Without a draft it is ordinary autoregressive decoding; a guess is only ever an
addition to the one call that has to be made anyway.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from .drafts import Draft, Proposal
from .metrics import Metrics, Round
from .models import (
    LanguageModel,
    LastRowsState,
    TreeState,
    are_tokens,
    check_count,
    check_parents,
    check_path,
    check_same_vocabulary,
    check_tokens,
    extend_by_branches,
    node_depths,
    path_to,
)
from .randomness import RandomSource, SeededRandom
from .sampling import DEFAULT_SAMPLER, Sampler, as_numbers, is_integer
from .verification import Verdict, Verify, verify_tokens


class DraftLength(Protocol):
    """An object that chooses k each round, in place of a fixed integer.

    Every call of :func:`generate` works on a copy, so one call never affects another.
    """

    def next_k(self) -> int:
        """Most tokens to draft in the coming round, >= 0."""

    def observe(self, round: Round) -> None:
        """Told what the round brought."""


@dataclass(frozen=True)
class Generation:
    """What :func:`generate` returns.

    tokens
        the new tokens, without the prompt.
    rounds
        one :class:`Round` for each call of the target.
    finish_reason
        "stop" (a stop id came), "length" (max_new_tokens reached), or "context" (the
        target's context window is full).
    """

    tokens: tuple[int, ...]
    rounds: tuple[Round, ...]
    finish_reason: str

    @classmethod
    def from_rounds(cls, rounds: Iterable[Round], *, if_none: str) -> Generation:
        """All ``rounds`` that :func:`stream` gave; ``if_none`` is the finish reason
        where it gave none at all."""
        rounds = tuple(rounds)
        tokens = tuple(token for each in rounds for token in each.emitted)
        reason = rounds[-1].finish_reason if rounds else None
        return cls(tokens, rounds, reason or if_none)

    @property
    def metrics(self) -> Metrics:
        """The figures of all rounds."""
        return Metrics.from_rounds(self.rounds)


def generate(
    target: LanguageModel,
    prompt: Sequence[int],
    *,
    draft: Draft | None = None,
    k: int | DraftLength = 4,
    max_new_tokens: int,
    min_new_tokens: int = 0,
    sampler: Sampler = DEFAULT_SAMPLER,
    verify: Verify = verify_tokens,
    stop_ids: Sequence[int] = (),
    seed: int | None = None,
    rng: RandomSource | None = None,
) -> Generation:
    """Continue ``prompt``, distributed exactly as the target alone would continue it.

    target, draft
        the model that decides, and what guesses for it (None: no guesses).
    k
        most guesses a round, >= 0, or an object that chooses (:class:`DraftLength`).
    max_new_tokens, min_new_tokens
        bounds on the number of new tokens; before the minimum, stop ids have
        probability 0 in the target.
    sampler
        makes probabilities from the target's logits.
    verify
        the acceptance rule.
    stop_ids
        tokens that end the text; the stop id itself is kept.
    seed, rng
        give one of them at most; neither means fresh entropy.

    An empty prompt starts from the target's ``bos_id``. Raises ValueError or TypeError
    for bad arguments before any work, and ValueError for a draft that breaks its
    contract.

    Source: Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2.
    """
    rounds = stream(
        target,
        prompt,
        draft=draft,
        k=k,
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        sampler=sampler,
        verify=verify,
        stop_ids=stop_ids,
        seed=seed,
        rng=rng,
    )
    return Generation.from_rounds(
        rounds, if_none="length" if max_new_tokens == 0 else "context"
    )


def stream(
    target: LanguageModel,
    prompt: Sequence[int],
    *,
    draft: Draft | None = None,
    k: int | DraftLength = 4,
    max_new_tokens: int,
    min_new_tokens: int = 0,
    sampler: Sampler = DEFAULT_SAMPLER,
    verify: Verify = verify_tokens,
    stop_ids: Sequence[int] = (),
    seed: int | None = None,
    rng: RandomSource | None = None,
) -> Iterator[Round]:
    """Like :func:`generate`, one :class:`Round` at a time, as soon as it is done.

    Arguments are checked at the call, not at the first round. No round comes where no
    token may be added.
    """
    if not (hasattr(target, "vocab_size") and hasattr(target, "start")):
        raise TypeError(f"target must be a language model, got {target!r}")
    vocab_size = target.vocab_size
    start: list[int] = check_tokens(prompt, vocab_size, "prompt").tolist()
    if not start:
        if target.bos_id is None:
            raise ValueError("prompt must not be empty: the target has no bos_id")
        start = check_tokens([target.bos_id], vocab_size, "target.bos_id").tolist()
    window = target.context_window
    if window is not None and len(start) > window:
        raise ValueError(
            f"prompt must fit the target's context window of {window}, "
            f"got {len(start)} tokens"
        )
    check_count("max_new_tokens", max_new_tokens)
    check_count("min_new_tokens", min_new_tokens)
    if min_new_tokens > max_new_tokens:
        raise ValueError(
            f"min_new_tokens must be at most max_new_tokens = {max_new_tokens}, "
            f"got {min_new_tokens}"
        )
    if hasattr(k, "next_k"):
        k = copy.deepcopy(k)  # what it learns here is forgotten afterwards
    else:
        check_count("k", k)
        k = int(k)
    if hasattr(draft, "bos_id"):
        raise TypeError(
            "draft must be a draft, got a language model; give ModelDraft(model)"
        )
    if draft is not None and not hasattr(draft, "start"):
        raise TypeError(f"draft must have start(prompt), got {draft!r}")
    draft_vocab_size = getattr(draft, "vocab_size", vocab_size)
    if draft_vocab_size != vocab_size:
        raise ValueError(
            f"draft must share the target's vocabulary of {vocab_size} tokens, "
            f"got {draft_vocab_size}"
        )
    check_same_vocabulary(target, draft)
    if not isinstance(sampler, Sampler):
        raise TypeError(f"sampler must be a Sampler, got {sampler!r}")
    if not callable(verify):
        raise TypeError(f"verify must be callable, got {verify!r}")
    listed = list(stop_ids) if hasattr(stop_ids, "__iter__") else stop_ids
    stops = frozenset(check_tokens(listed, vocab_size, "stop_ids").tolist())
    if rng is None:
        rng = SeededRandom(seed)
    elif seed is not None:
        raise ValueError("give seed or rng, not both")
    if not (hasattr(rng, "bernoulli") and hasattr(rng, "categorical")):
        raise TypeError(f"rng must have bernoulli and categorical, got {rng!r}")
    limit = len(start) + max_new_tokens
    if window is not None:
        limit = min(limit, window)
    reason = "length" if limit == len(start) + max_new_tokens else "context"
    loop = _Loop(target, start, draft, sampler, verify, stops, min_new_tokens, rng)
    return loop.run(k, limit, reason)


class _Loop:
    """One sequence being decoded.

    The target's state holds every token but the last one: that token is read together
    with the next guesses, in one call.
    """

    def __init__(
        self,
        target: LanguageModel,
        prompt: list[int],
        draft: Draft | None,
        sampler: Sampler,
        verify: Verify,
        stops: frozenset[int],
        min_new_tokens: int,
        rng: RandomSource,
    ) -> None:
        self.sequence = list(prompt)
        self.vocab_size = target.vocab_size
        self.sampler = sampler
        self.verify = verify
        self.stops = stops
        self.stop_from = len(prompt) + min_new_tokens  # first length that may stop
        self.rng = rng
        self.state = target.start()
        self.tree_state: TreeState | None = None  # the same, where it reads trees
        if hasattr(self.state, "extend_tree"):
            self.tree_state = cast(TreeState, self.state)
        self.last_rows: LastRowsState | None = None  # where it can leave rows out
        if hasattr(self.state, "extend_last"):
            self.last_rows = cast(LastRowsState, self.state)
        self.session = draft.start(tuple(prompt)) if draft is not None else None
        session = self.session
        if draft is not None and not (
            hasattr(session, "propose") and hasattr(session, "commit")
        ):
            raise TypeError(f"draft.start must return a session, got {session!r:.80}")

    def run(self, k: int | DraftLength, limit: int, reason: str) -> Iterator[Round]:
        """Rounds until ``limit`` tokens are in the sequence, or a stop id came."""
        finish = None
        while finish is None and len(self.sequence) < limit:
            if isinstance(k, int):
                wanted = k
            else:
                wanted = k.next_k()
                check_count("k", wanted)
            # A round emits at most one token more than it drafts.
            wanted = min(int(wanted), limit - len(self.sequence) - 1)
            proposal, draft_seconds = self._propose(wanted)
            probabilities, target_seconds = self._score(proposal)
            verdict = self.verify(probabilities, proposal, self.rng)

            accepted, emitted = self._cut_at_stop(proposal, verdict)
            path = None
            if verdict.path is not None:
                path = tuple(map(int, verdict.path[:accepted]))
            started = perf_counter()
            self._keep(accepted, emitted, path)
            target_seconds += perf_counter() - started
            started = perf_counter()
            if self.session is not None:
                self.session.commit(emitted)
            draft_seconds += perf_counter() - started

            if emitted[-1] in self.stops:
                finish = "stop"
            elif len(self.sequence) == limit:
                finish = reason
            drafted = proposal.tokens
            result = Round(
                drafted, accepted, emitted, draft_seconds, target_seconds, finish
            )
            if path is not None:
                result = replace(result, parents=proposal.parents, path=path)
            if not isinstance(k, int):
                k.observe(result)
            yield result

    def _propose(self, k: int) -> tuple[Proposal, float]:
        if self.session is None or k == 0:
            return Proposal(()), 0.0
        started = perf_counter()
        proposal = self.session.propose(k, self.rng)
        seconds = perf_counter() - started
        if not hasattr(getattr(proposal, "tokens", None), "__len__"):
            raise TypeError(
                f"draft must return a Proposal with a tuple of tokens, got {proposal!r}"
            )
        length = len(proposal.tokens)
        if proposal.parents is not None:
            parents = check_parents(proposal.parents, length, "proposal.parents")
            proposal = replace(proposal, parents=parents)
            length = max(node_depths(parents), default=0)
        if length > k:
            raise ValueError(
                f"draft must propose at most {k} tokens in a row, got {length}"
            )
        if not are_tokens(proposal.tokens, self.vocab_size):
            tokens = check_tokens(proposal.tokens, self.vocab_size, "proposal.tokens")
            proposal = replace(proposal, tokens=tuple(tokens.tolist()))
        return proposal, seconds

    def _score(self, proposal: Proposal) -> tuple[NDArray[np.float64], float]:
        """Target probabilities (n + 1, V), by one call over all that is unread."""
        n = len(proposal.tokens)
        unread = [*self.sequence[self.state.length :], *proposal.tokens]
        started = perf_counter()
        if self.last_rows is not None and len(unread) > n + 1:
            logits, due = self._extend_last(unread, proposal, self.last_rows), n + 1
        elif proposal.parents is None:
            logits, due = self.state.extend(unread), len(unread)
        else:
            logits, due = self._extend_tree(unread, proposal.parents), len(unread)
        seconds = perf_counter() - started
        logits = as_numbers(logits, "target must return logits, which")
        if np.shape(logits) != (due, self.vocab_size):
            raise ValueError(
                f"target must return logits of shape {(due, self.vocab_size)}, "
                f"got {np.shape(logits)}"
            )
        logits = logits[-(n + 1) :]
        if proposal.parents is None:
            logits = self._forbid_stops(logits, range(n + 1))
            return self.sampler(logits, self.sequence, proposal.tokens), seconds
        depths = [0, *node_depths(proposal.parents)]
        logits = self._forbid_stops(logits, depths)
        if not self.sampler.processors:
            return self.sampler(logits), seconds
        rows = []
        for node, row in enumerate(logits, start=-1):
            branch = [proposal.tokens[i] for i in path_to(node, proposal.parents)]
            rows.append(self.sampler(row, [*self.sequence, *branch]))
        return np.array(rows), seconds

    def _forbid_stops(
        self, logits: NDArray[np.floating], depths: Sequence[int]
    ) -> NDArray[np.floating]:
        """No stop id before the minimum; row i is ``depths[i]`` guesses ahead."""
        missing = self.stop_from - len(self.sequence)
        if missing <= 0 or not self.stops:
            return logits
        logits = np.array(logits, dtype=np.float64)
        early = np.array(depths) < missing
        logits[np.ix_(early, np.array([*self.stops]))] = -np.inf
        return logits

    def _extend_last(
        self, unread: list[int], proposal: Proposal, state: LastRowsState
    ) -> NDArray[np.floating]:
        """A prompt is unread: only the rows after it are asked for."""
        rows = len(proposal.tokens) + 1
        if proposal.parents is None:
            return state.extend_last(unread, rows)
        state.extend_last(unread[:-rows], 0)
        return self._extend_tree(unread[-rows:], proposal.parents)

    def _extend_tree(
        self, unread: list[int], parents: tuple[int, ...]
    ) -> NDArray[np.floating]:
        """One call over what is unread, a chain, and the tree that grows from it."""
        stem = len(unread) - len(parents)
        whole = [*range(-1, stem - 1), *(stem + parent for parent in parents)]
        if self.tree_state is not None:
            return self.tree_state.extend_tree(unread, whole)
        return extend_by_branches(self.state, unread, whole)

    def _cut_at_stop(
        self, proposal: Proposal, verdict: Verdict
    ) -> tuple[int, tuple[int, ...]]:
        """How many guesses are kept, and all that the round emits."""
        if not (
            is_integer(getattr(verdict, "accepted", None))
            and is_integer(getattr(verdict, "next_token", None))
            and hasattr(verdict, "path")
        ):
            raise TypeError(
                f"verify must return a Verdict of whole numbers, got {verdict!r:.80}"
            )
        if not 0 <= verdict.accepted <= len(proposal.tokens):
            raise ValueError(
                f"verify must accept 0 to {len(proposal.tokens)} guesses, "
                f"got {verdict.accepted}"
            )
        if (proposal.parents is None) != (verdict.path is None):
            raise ValueError(
                "verify must give the path of nodes for a tree of guesses, and only "
                f"there, got {verdict}"
            )
        if proposal.parents is not None and verdict.path is not None:
            path = check_path(verdict.path, proposal.parents, "verdict.path")
            if len(path) != verdict.accepted:
                raise ValueError(
                    "verify must accept as many guesses as its path has, got "
                    f"{verdict.accepted} and {len(path)}"
                )
        if not 0 <= verdict.next_token < self.vocab_size:
            raise ValueError(
                f"verify must give a next_token inside 0 .. {self.vocab_size - 1}, "
                f"got {verdict.next_token}"
            )
        kept = proposal.tokens[: verdict.accepted]
        if verdict.path is not None:
            kept = tuple(proposal.tokens[node] for node in verdict.path)
        emitted = (*kept, verdict.next_token)
        for i, token in enumerate(emitted) if self.stops else ():
            if token in self.stops:
                emitted = emitted[: i + 1]
                break
        return min(verdict.accepted, len(emitted)), emitted

    def _keep(
        self, accepted: int, emitted: tuple[int, ...], path: tuple[int, ...] | None
    ) -> None:
        """Append what was emitted; drop rejected guesses from the target's state."""
        read = len(self.sequence) + accepted
        if path is not None and self.tree_state is not None:
            stem = len(self.sequence) - self.state.length
            self.tree_state.keep([*range(stem), *(stem + node for node in path)])
        # Without, the state holds no guess after the tree's first fork; accepted ones
        # from there on are read again with the next guesses.
        self.sequence += emitted
        if self.state.length > read:
            self.state.rewind(read)
