"""Faults of draft and target: each behind a circuit breaker of ``pybreaker``.

A part has failed where a call of it raises, gives what breaks its contract (a wrong
shape, no number), or takes longer than the operator allows.

Draft fails
    the request goes on without it, and ``degraded`` in the answer says "draft". Its
    distribution stays that of the target. The rule counts on it that no proposal is
    chosen, or thrown away, for what is in it; yet a language model may fail because of
    the tokens that it has just drawn. What such a call had drawn is therefore judged as
    ever, and only what it had not drawn yet is missing. Drafts that draw nothing, as
    copies from the text, can fail by the text alone. Of other drafts, which draw in
    ways of their own, a failed call is dropped as a whole: were one to fail *because of
    what it drew*, an answer's distribution would be off by at most the chance of that.
Target fails
    the request ends with 503 and Retry-After. With ``draft_only``, and as long as the
    target has not yet read the prompt, the draft answers in its place; ``degraded``
    says "target" and ``exact`` is false. No answer is half of each.

After ``failures`` requests in a row that saw a part fail, its breaker opens: for
``seconds`` the part is not asked at all. Then one request may try it, while the others
go on without; a whole round that works closes the breaker, a failure opens it again.

``CircuitBreaker.call`` of pybreaker holds its lock until the call is done, so that all
requests would wait for each other. Calls are therefore made outside of it, and it is
told how they ended: it counts, and keeps the state.
"""

from __future__ import annotations

import contextvars
import logging
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, NoReturn, TypeVar

import numpy as np
import pybreaker

from ..drafts import ModelDraft, Proposal
from ..engine import Engine
from ..metrics import Round
from ..models import are_tokens, check_parents, check_tokens, node_depths
from ..randomness import RandomSource
from ..verification.exact import distributions
from .calls import NOTHING, Guard, PartFailed, plainly
from .errors import Unavailable
from .hooks import Hooks
from .jobs import Job

log = logging.getLogger("specdec.service")
__all__ = ["Breaker", "Faults", "Open", "Slow"]

T = TypeVar("T")

FAILURES = 5
SECONDS = 30.0
PROBE_SECONDS = 30.0  # at least, that one may take to try a part
STATES = (pybreaker.STATE_CLOSED, pybreaker.STATE_HALF_OPEN, pybreaker.STATE_OPEN)


class Open(Exception):
    """The breaker does not let this call through."""


class Slow(Exception):
    """A call took longer than it may."""


class Breaker:
    """A part's breaker, shared by all requests. Each stands there by an object of its
    own, ``who``."""

    def __init__(self, part: str, failures: int, seconds: float) -> None:
        self.part = part
        self.seconds = seconds
        self._lock = threading.Lock()
        self._breaker = pybreaker.CircuitBreaker(
            fail_max=failures, reset_timeout=seconds, name=part
        )
        self._opened = -math.inf
        self._probe: object = None  # who tries, while it is half open
        self._probe_since = -math.inf

    @property
    def state(self) -> str:
        """One of ``STATES``."""
        return self._breaker.current_state

    @property
    def admits(self) -> bool:
        """Whether a request that comes now may ask the part."""
        with self._lock:
            return self._admits(None)

    @property
    def retry_after(self) -> float:
        """Seconds after which another try makes sense."""
        if self.state != pybreaker.STATE_OPEN:
            return 1.0
        return max(1.0, self._opened + self.seconds - monotonic())

    def enter(self, who: object) -> None:
        """Before a call for ``who``; raises :class:`Open`."""
        if self.state == pybreaker.STATE_CLOSED:
            return
        with self._lock:
            if not self._admits(who):
                raise Open(f"the breaker of the {self.part} is open")
            if self.state == pybreaker.STATE_OPEN:
                self._breaker.half_open()
            if self.state == pybreaker.STATE_HALF_OPEN and self._probe is not who:
                self._probe, self._probe_since = who, monotonic()

    def succeeded(self, who: object) -> None:
        """A round of ``who`` is done, in which the part did what it should."""
        if self.state == pybreaker.STATE_CLOSED and not self._breaker.fail_counter:
            return
        with self._lock:
            if self._counts(who):
                self._breaker.call(lambda: None)
                self._probe = None

    def failed(self, who: object, error: Exception) -> None:
        """A call for ``who`` failed by this ``error``."""

        def fail() -> NoReturn:
            raise error

        with self._lock:
            if self._counts(who):
                with suppress(Exception):  # what it makes of the error
                    self._breaker.call(fail)
                self._probe = None
                if self.state == pybreaker.STATE_OPEN:
                    self._opened = monotonic()
                    log.warning("the breaker of the %s is open", self.part)

    def left(self, who: object) -> None:
        """``who`` has ended; if it was to try the part, another may."""
        with self._lock:
            if self._probe is who:
                self._probe = None

    def _admits(self, who: object) -> bool:
        now = monotonic()
        if self.state == pybreaker.STATE_OPEN:
            return now >= self._opened + self.seconds
        if self.state == pybreaker.STATE_HALF_OPEN:
            # One that never comes back does not keep the others out for ever.
            overdue = now >= self._probe_since + max(self.seconds, PROBE_SECONDS)
            return self._probe is None or self._probe is who or overdue
        return True

    def _counts(self, who: object) -> bool:
        """Late news of calls from before it opened change nothing."""
        if self.state == pybreaker.STATE_HALF_OPEN:
            return self._probe is who
        return self.state == pybreaker.STATE_CLOSED


class Aside:
    """Makes calls in a thread of its own, waits ``seconds`` for each, and no longer.

    A call that is late raises :class:`Slow` and goes on alone; nobody waits for it, and
    the thread ends with it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, do: Callable[[], T]) -> T:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name="aside", daemon=True
            )
            self._thread.start()
        context = contextvars.copy_context()
        self._calls.put(lambda: context.run(do))
        try:
            result, error = self._results.get(timeout=self._seconds)
        except Empty:
            self.close()
            raise Slow(f"a call took more than {self._seconds} s") from None
        if error is not None:
            raise error
        returned: T = result
        return returned

    def close(self) -> None:
        if self._thread is not None:
            self._calls.put(None)

    def _work(self) -> None:
        while (do := self._calls.get()) is not None:
            try:
                self._results.put((do(), None))
            except BaseException as error:
                self._results.put((None, error))


class Severable:
    """A source of randomness for a call that may fail or be given up: cut off, it
    raises, so that nothing but the request itself draws from its source. ``drawn`` are
    the outcomes of ``categorical`` and the distributions that they came from."""

    def __init__(self, rng: RandomSource) -> None:
        self._rng = rng
        self._lock = threading.Lock()
        self._cut = False
        self.drawn: list[tuple[int, Any]] = []

    def bernoulli(self, p: float) -> bool:
        with self._lock:
            self._check()
            return self._rng.bernoulli(p)

    def categorical(self, distribution: Any) -> int:
        with self._lock:
            self._check()
            token = self._rng.categorical(distribution)
            self.drawn.append((token, distribution))
            return token

    def cut(self) -> None:
        with self._lock:
            self._cut = True

    def _check(self) -> None:
        if self._cut:
            raise RuntimeError("this call was given up")


class Use:
    """One request's use of a part."""

    def __init__(self, faults: Faults, job: Job, breaker: Breaker) -> None:
        self._faults, self._job, self._breaker = faults, job, breaker
        seconds = faults.limits[breaker.part]
        self._aside = None if seconds is None else Aside(seconds)
        self.asked = False  # to do its work, in this round
        self.failed = False

    def __call__(self, do: Callable[[], T], check: Callable[[T], None] | None) -> T:
        """``do()``; raises what it raises, :class:`Open` and :class:`Slow`."""
        self._breaker.enter(self)
        try:
            result = do() if self._aside is None else self._aside(do)
            if check is not None:
                check(result)
                self.asked = True
        except Exception as error:
            self.failed = True
            log.warning(
                "request %s: the %s failed",
                self._job.request_id,
                self._breaker.part,
                exc_info=error,
            )
            self._breaker.failed(self, error)
            self._faults.tell(self._breaker.part, _kind(error))
            raise
        return result

    def round(self) -> None:
        if self.asked and not self.failed:
            self._breaker.succeeded(self)
        self.asked = False

    def close(self) -> None:
        self._breaker.left(self)
        if self._aside is not None:
            self._aside.close()

    @property
    def retry_after(self) -> float:
        return self._breaker.retry_after


class Faults(Hooks):
    """The breakers of draft and target, and what is done where they fail.

    failures
        requests in a row that must fail to open a breaker.
    seconds
        how long it stays open before one may try.
    draft_seconds, target_seconds
        how long one call may take, or None for no limit. Calls with a limit are made in
        a second thread; to hand a call over and back costs some 20 microseconds on an
        idle machine, and several milliseconds where other threads compute in Python.
    draft_only
        answer by the draft, which must be a language model, where the target fails.

    ValueError for other numbers.
    """

    def __init__(
        self,
        failures: int = FAILURES,
        seconds: float = SECONDS,
        *,
        draft_seconds: float | None = None,
        target_seconds: float | None = None,
        draft_only: bool = False,
    ) -> None:
        if failures < 1:
            raise ValueError(f"failures must be 1 or more, got {failures}")
        for name, value in (
            ("seconds", seconds),
            ("draft_seconds", draft_seconds),
            ("target_seconds", target_seconds),
        ):
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be finite and above 0, got {value}")
        self.draft = Breaker("draft", failures, seconds)
        self.target = Breaker("target", failures, seconds)
        self.limits = {"draft": draft_seconds, "target": target_seconds}
        self.draft_only = draft_only
        # Told of each failure: the part, and "error", "slow" or "wrong".
        self.listeners: list[Callable[[str, str], None]] = []

    def tell(self, part: str, kind: str) -> None:
        """Let all listeners know of a fault of ``part``, and its ``kind``."""
        for listener in self.listeners:
            listener(part, kind)

    def startup(self, app: Any) -> None:
        if self.draft_only and not is_model(app.state.workers.engine.draft):
            raise ValueError("draft_only needs a draft that is a language model")

    def not_ready(self) -> str | None:
        # Ready again as soon as one may try: it has to come from somewhere.
        if self.draft_only or self.target.admits:
            return None
        return "the target does not work"

    def check(self) -> None:
        if not (self.draft_only or self.target.admits):
            raise _unavailable(self.target)

    def engine(self, job: Job, engine: Engine) -> Engine:
        target_use = Use(self, job, self.target)
        draft_use = Use(self, job, self.draft)
        job.notes["faults"] = (target_use, draft_use)
        fallback = None
        if self.draft_only and is_model(engine.draft):
            own_use = Use(self, job, self.draft)
            job.notes["faults"] += (own_use,)
            fallback = _Fallback(engine.draft, own_use, lambda: job.degrade("target"))
            if not self.target.admits:
                fallback.told()
                alone = _Target(fallback.model, own_use, None)
                return replace(engine, target=alone, draft=None)
        draft = engine.draft_for(job.task.sampler)
        if draft is not None and job.task.k != 0:
            draft = _Draft(draft, draft_use, engine.target.vocab_size)
        else:
            draft = None  # which is never asked
        target = _Target(engine.target, target_use, fallback)
        return replace(engine, target=target, draft=draft)

    def guard(self, job: Job) -> Guard:
        return plainly  # so that PartFailed is minded

    def round(self, job: Job, result: Round) -> None:
        for use in job.notes.get("faults", ()):
            use.round()

    def finished(self, job: Job) -> None:
        for use in job.notes.get("faults", ()):
            use.close()


class _Draft:
    def __init__(self, draft: Any, use: Use, vocab_size: int) -> None:
        self._draft, self._use, self._size = draft, use, vocab_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._draft, name)

    def start(self, prompt: Sequence[int]) -> _Session:
        return _Session(self._draft, self._use, self._size, prompt)


class _Session:
    """Its failures are :class:`PartFailed`."""

    def __init__(
        self, draft: Any, use: Use, vocab_size: int, prompt: Sequence[int]
    ) -> None:
        self._use, self._size = use, vocab_size
        self._draws_its_guesses = type(draft) is ModelDraft
        self._session = self._try(lambda: draft.start(prompt), None)

    def propose(self, k: int, rng: RandomSource) -> Proposal:
        def check(proposal: object) -> None:
            check_proposal(proposal, k, self._size)

        source = Severable(rng)
        try:
            proposal: Proposal = self._try(
                lambda: self._session.propose(k, source), check
            )
        except PartFailed as failed:
            source.cut()
            if self._draws_its_guesses:
                failed.drawn = _as_far_as_it_is_one(source.drawn, self._size)
            raise
        return proposal

    def commit(self, tokens: Sequence[int]) -> None:
        self._try(lambda: self._session.commit(tokens), None)

    def _try(self, do: Callable[[], Any], check: Any) -> Any:
        try:
            return self._use(do, check)
        except Exception as error:
            raise PartFailed(f"the draft failed: {type(error).__name__}") from error


def _as_far_as_it_is_one(drawn: list[tuple[int, Any]], vocab_size: int) -> Proposal:
    """The proposal of these draws, to the first from what is no distribution."""
    tokens: list[int] = []
    rows: list[Any] = []
    for token, row in drawn:
        try:
            check_proposal(Proposal((token,), np.array([row])), 1, vocab_size)
        except (TypeError, ValueError):
            break
        tokens.append(token)
        rows.append(row)
    return Proposal(tuple(tokens), np.array(rows)) if tokens else NOTHING


class _Fallback:
    def __init__(self, model: Any, use: Use, told: Callable[[], None]) -> None:
        self.model, self.use, self.told = model, use, told


class _Target:
    """A language model; its failures are :class:`Unavailable`."""

    def __init__(self, model: Any, use: Use, fallback: _Fallback | None) -> None:
        self._model, self._use, self._fallback = model, use, fallback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def start(self) -> _State:
        return _State(self._model, self._use, self._fallback)


class _State:
    """A state of the target; or, after a failure before it has read anything, of the
    fallback."""

    def __init__(self, model: Any, use: Use, fallback: _Fallback | None) -> None:
        self._use, self._fallback = use, fallback
        self._size = model.vocab_size
        self._state: Any
        self._has_read = False
        try:
            self._state = use(model.start, None)
        except Exception as error:
            self._fall_back(error)

    @property
    def length(self) -> int:
        length: int = self._state.length
        return length

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._state, name)  # AttributeError where it has not
        if name == "extend_last":
            return self._extend_last
        if name == "extend_tree":
            return lambda tokens, parents: self._read(
                lambda state: state.extend_tree(tokens, parents), len(tokens)
            )
        if name == "keep":
            return lambda nodes: self._try(lambda: self._state.keep(nodes), None)
        return method

    def extend(self, tokens: Sequence[int]) -> Any:
        return self._read(lambda state: state.extend(tokens), len(tokens))

    def rewind(self, length: int) -> None:
        self._try(lambda: self._state.rewind(length), None)

    def _extend_last(self, tokens: Sequence[int], rows: int) -> Any:
        def read(state: Any) -> Any:
            if hasattr(state, "extend_last"):
                return state.extend_last(tokens, rows)
            return state.extend(tokens)[len(tokens) - rows :]

        return self._read(read, rows)

    def _read(self, do: Callable[[Any], Any], rows: int) -> Any:
        def check(logits: Any) -> None:
            check_logits(logits, rows, self._size)

        if not self._has_read:
            try:
                result = self._use(lambda: do(self._state), check)
            except Exception as error:
                self._fall_back(error)
            else:
                self._has_read = True
                return result
        self._has_read = True
        return self._try(lambda: do(self._state), check)

    def _fall_back(self, error: Exception) -> None:
        if self._fallback is None:
            raise _unavailable(self._use) from error
        fallback, self._fallback = self._fallback, None
        fallback.told()
        self._use = fallback.use
        self._state = self._try(fallback.model.start, None)

    def _try(self, do: Callable[[], Any], check: Any) -> Any:
        try:
            return self._use(do, check)
        except Exception as error:
            raise _unavailable(self._use) from error


def check_proposal(proposal: object, k: int, vocab_size: int) -> None:
    """Raises ValueError or TypeError for what the loop or a rule would not take."""
    if not isinstance(proposal, Proposal):
        raise TypeError(f"a draft must give a Proposal, got {type(proposal)}")
    tokens, q = proposal.tokens, proposal.probabilities
    if not are_tokens(tokens, vocab_size):
        check_tokens(tokens, vocab_size, "proposal.tokens")
    length = n = len(tokens)
    if proposal.parents is not None:
        parents = check_parents(proposal.parents, n, "proposal.parents")
        length = max(node_depths(parents), default=0)
    if length > k:
        raise ValueError(f"draft must propose at most {k} tokens, got {length}")
    if q is None or n == 0:
        return
    if np.shape(q) != (n, vocab_size):
        raise ValueError(
            f"proposal.probabilities must have shape {(n, vocab_size)}, "
            f"got {np.shape(q)}"
        )
    rows = distributions(np.asarray(q), "proposal.probabilities")
    if not rows[np.arange(n), list(tokens)].all():
        raise ValueError("proposal.tokens must be possible by their probabilities")


def check_logits(logits: Any, rows: int, vocab_size: int) -> None:
    """Raises ValueError unless each row has a largest number."""
    if np.shape(logits) != (rows, vocab_size):
        raise ValueError(
            f"target must return logits of shape {(rows, vocab_size)}, "
            f"got {np.shape(logits)}"
        )
    # One pass finds NaN, infinity, and rows with nothing but minus infinity.
    if rows and not np.isfinite(np.max(logits, axis=-1)).all():
        raise ValueError("target must return logits, got NaN or infinity")


def _kind(error: Exception) -> str:
    if isinstance(error, Slow):
        return "slow"
    wrong = isinstance(error, (TypeError, ValueError))
    return "wrong" if wrong else "error"


def _unavailable(breaker: Breaker | Use) -> Unavailable:
    return Unavailable(
        "the target does not work; try again later", retry_after=breaker.retry_after
    )


def is_model(draft: object) -> bool:
    """Whether what guesses is a language model, which could answer too."""
    return hasattr(draft, "bos_id")
