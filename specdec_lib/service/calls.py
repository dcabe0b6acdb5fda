"""The seam around every call of draft, target and rule.

:func:`watched` gives an engine that does the same as another, with a guard around each
call. A guard is ``guard(call, do)``: it returns ``do()``, and may time it, write it
down, refuse it, or raise in its place:

- :class:`PartFailed` from a call of the draft: the request goes on without guesses but
  those in ``drawn``, with the same distribution (:mod:`.breakers` says on which
  condition), and ``job.degraded`` says "draft".
- a :class:`~.errors.Refusal` from any call ends the request with that status.

The loop knows nothing of all this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from ..drafts import Proposal
from ..engine import Engine
from ..randomness import RandomSource
from ..sampling import Sampler
from ..verification import Verdict, Verify

T = TypeVar("T")
NOTHING = Proposal(())


@dataclass(frozen=True)
class Call:
    """One call of a part.

    part
        "draft", "target" or "verify".
    method
        "start", "propose", "commit"; "start", "extend", "extend_last", "extend_tree",
        "keep", "rewind"; "verify".
    tokens
        how many tokens it is given; for "propose", the most that it may propose.
    """

    part: str
    method: str
    tokens: int = 0


class Guard(Protocol):
    """Stands around calls, in the thread of the worker."""

    def __call__(self, call: Call, do: Callable[[], T]) -> T:
        """Makes the ``call`` by ``do()``, and returns what that returns."""


class PartFailed(Exception):
    """A part does not work, or is too slow, and is not to be asked again.

    ``message`` says why; ``drawn`` is what a draft had drawn of its guesses by then,
    which are judged as ever.
    """

    def __init__(self, message: str = "", drawn: Proposal = NOTHING) -> None:
        super().__init__(message)
        self.drawn = drawn


def plainly(call: Call, do: Callable[[], T]) -> T:
    """The guard that does nothing about a ``call`` but to ``do`` it."""
    return do()


def nested(guards: Sequence[Guard]) -> Guard:
    """One guard of all ``guards``, the first outermost."""
    if not guards:
        return plainly
    first, rest = guards[0], nested(guards[1:])

    def guard(call: Call, do: Callable[[], T]) -> T:
        return first(call, lambda: rest(call, do))

    return guard


def watched(
    engine: Engine,
    guard: Guard,
    sampler: Sampler,
    verify: Verify,
    draft_failed: Callable[[], None],
) -> Engine:
    """The engine for a request with this sampler and rule, ``guard`` around its calls.

    ``draft_failed`` is told when its draft is given up.
    """
    draft = engine.draft_for(sampler)

    def rule(probabilities: Any, proposal: Proposal, rng: RandomSource) -> Verdict:
        call = Call("verify", "verify", len(proposal.tokens))
        return guard(call, lambda: verify(probabilities, proposal, rng))

    return replace(
        engine,
        target=_Model(engine.target, guard),
        draft=None if draft is None else _Draft(draft, guard, draft_failed),
        sampler=sampler,
        verify=rule,
    )


class _Model:
    """A language model; all but ``start`` is the model's own."""

    def __init__(self, model: Any, guard: Guard) -> None:
        self._model, self._guard = model, guard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def start(self) -> Any:
        state = self._guard(Call("target", "start"), self._model.start)
        return _State(state, self._guard)


class _State:
    """A state; what it can do beyond the contract it can do here too."""

    def __init__(self, state: Any, guard: Guard) -> None:
        self._state, self._guard = state, guard

    @property
    def length(self) -> int:
        length: int = self._state.length
        return length

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._state, name)
        if name not in ("extend", "extend_last", "extend_tree", "keep", "rewind"):
            return method

        def call(first: Any, *rest: Any) -> Any:
            tokens = 0 if isinstance(first, int) else len(first)
            return self._guard(
                Call("target", name, tokens), lambda: method(first, *rest)
            )

        return call


class _Draft:
    def __init__(
        self, draft: Any, guard: Guard, draft_failed: Callable[[], None]
    ) -> None:
        self._draft, self._guard, self._failed = draft, guard, draft_failed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._draft, name)

    def start(self, prompt: Sequence[int]) -> _Session:
        return _Session(self._draft, self._guard, self._failed, prompt)


class _Session:
    """A draft's session; once a call of it failed, it proposes nothing."""

    def __init__(
        self,
        draft: Any,
        guard: Guard,
        draft_failed: Callable[[], None],
        prompt: Sequence[int],
    ) -> None:
        self._guard, self._failed = guard, draft_failed
        self._session: Any = None
        self._session = self._try("start", len(prompt), lambda: draft.start(prompt))

    def propose(self, k: int, rng: RandomSource) -> Proposal:
        if self._session is None:
            return NOTHING
        call = Call("draft", "propose", k)
        try:
            proposal: Proposal = self._guard(
                call, lambda: self._session.propose(k, rng)
            )
        except PartFailed as failed:
            self._give_up()
            return failed.drawn
        return proposal

    def commit(self, tokens: Sequence[int]) -> None:
        if self._session is not None:
            self._try("commit", len(tokens), lambda: self._session.commit(tokens))

    def _try(self, method: str, tokens: int, do: Callable[[], Any]) -> Any:
        try:
            return self._guard(Call("draft", method, tokens), do)
        except PartFailed:
            self._give_up()
            return None

    def _give_up(self) -> None:
        self._session = None
        self._failed()
