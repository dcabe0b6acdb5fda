"""The seam around a request: what observes the service, and what guards it.

A hook is a :class:`Hooks` with some of its methods replaced. ``create_app`` takes any
number of them; events go to all in their order, and the guards of the first stand
outermost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..engine import Engine
from ..metrics import Round
from .calls import Guard, nested
from .errors import Refusal

if TYPE_CHECKING:
    from .jobs import Job


class Hooks:
    """Does nothing. ``not_ready``, ``check``, ``accepted`` and ``refused`` are called
    in the event loop, and so is ``finished`` for a job whose turn did not come: they
    must be quick. The others are called in the threads of the workers, several at
    once."""

    def startup(self, app: Any) -> None:
        """The application ``app`` starts; a hook may add routes or start exporters."""

    def shutdown(self) -> None:
        """The application has stopped; what is buffered is to be sent."""

    def not_ready(self) -> str | None:
        """Why no request should be sent here now, or None."""
        return None

    def check(self) -> None:
        """Raise a :class:`Refusal` to turn away a request before it is queued."""

    def accepted(self, job: Job) -> None:
        """A request has got a place; ``job.headers`` are those it came with."""

    def refused(self, refusal: Refusal, path: str) -> None:
        """A request to ``path`` got a ``refusal``, at once or in place of an answer."""

    def started(self, job: Job) -> None:
        """Its turn has come; ``job.queue_seconds`` is known."""

    def engine(self, job: Job, engine: Engine) -> Engine:
        """The engine for this ``job``, before it is watched."""
        return engine

    def guard(self, job: Job) -> Guard | None:
        """What stands around the calls of draft, target and rule for this ``job``."""
        return None

    def round(self, job: Job, result: Round) -> None:
        """A round of ``job`` brought ``result``; its text has not been sent yet."""

    def finished(self, job: Job) -> None:
        """It has ended: ``job.outcome`` or ``job.refusal`` is there, or neither where
        the client has gone."""


class AllHooks(Hooks):
    """Several as one."""

    def __init__(self, hooks: Iterable[Hooks]) -> None:
        self._hooks: Sequence[Hooks] = tuple(hooks)

    def startup(self, app: Any) -> None:
        for hook in self._hooks:
            hook.startup(app)

    def shutdown(self) -> None:
        for hook in self._hooks:
            hook.shutdown()

    def not_ready(self) -> str | None:
        reasons = [hook.not_ready() for hook in self._hooks]
        return next((reason for reason in reasons if reason is not None), None)

    def check(self) -> None:
        for hook in self._hooks:
            hook.check()

    def accepted(self, job: Job) -> None:
        for hook in self._hooks:
            hook.accepted(job)

    def refused(self, refusal: Refusal, path: str) -> None:
        for hook in self._hooks:
            hook.refused(refusal, path)

    def started(self, job: Job) -> None:
        for hook in self._hooks:
            hook.started(job)

    def engine(self, job: Job, engine: Engine) -> Engine:
        for hook in self._hooks:
            engine = hook.engine(job, engine)
        return engine

    def guard(self, job: Job) -> Guard | None:
        guards = [hook.guard(job) for hook in self._hooks]
        present = [guard for guard in guards if guard is not None]
        return nested(present) if present else None

    def round(self, job: Job, result: Round) -> None:
        for hook in self._hooks:
            hook.round(job, result)

    def finished(self, job: Job) -> None:
        for hook in self._hooks:
            hook.finished(job)
