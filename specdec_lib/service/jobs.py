"""The queue and the workers.

A job waits in a queue with a bound, is decoded by one of a few threads, and sends its
pieces to the event loop, where one coroutine awaits them. It can be ended from outside
at any time: while it waits at once, while it runs after the round that is going on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

from ..engine import Completion, Engine, TextStream
from .calls import watched
from .errors import Busy, Internal, Invalid, Overdue, Refusal, Unavailable
from .hooks import Hooks
from .schemas import Task
from .settings import Settings

log = logging.getLogger("specdec.service")

OVERRUN = 2.0  # seconds past the deadline in which the last round may still end
LONGEST_WAIT = 60.0  # seconds, most that Retry-After asks for
USUAL_SECONDS = 1.0  # of a request, before any was seen
END = None  # after the last piece


@dataclass(frozen=True)
class Outcome:
    """How a request ended: what was written, and when."""

    completion: Completion  # what was written
    seconds: float  # since it was accepted
    queue_seconds: float  # of these, until its turn came
    first_text_seconds: float | None  # until there was any text, if there was


class Job:
    """One request, from the queue to its end.

    request_id, task, headers, path
        what it is.
    deadline
        when it has to end, by ``time.monotonic``.
    started
        when its turn came, or None.
    outcome, refusal
        how it ended.
    degraded
        what was missing: "draft" where guesses were given up. Part of each answer.
    notes
        for hooks, to keep what belongs to this request.
    """

    def __init__(
        self, request_id: str, task: Task, headers: Mapping[str, str], path: str
    ) -> None:
        self.request_id = request_id
        self.task = task
        self.headers = headers
        self.path = path
        self.accepted = monotonic()
        self.deadline = self.accepted + task.seconds
        self.started: float | None = None
        self.first_text: float | None = None
        self.outcome: Outcome | None = None
        self.refusal: Refusal | None = None
        self.gone = False  # the client
        self.degraded: list[str] = []
        self.notes: dict[str, Any] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None  # of its deadline
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue()

    @property
    def queue_seconds(self) -> float:
        """How long it has waited for its turn, or did."""
        return (monotonic() if self.started is None else self.started) - self.accepted

    def degrade(self, what: str) -> None:
        """Note that ``what`` was missing."""
        if what not in self.degraded:
            self.degraded.append(what)

    async def pieces(self) -> AsyncIterator[str]:
        """The pieces that are not empty; then its outcome is there.

        None but the end where the task is not to be streamed. Raises its refusal, and
        :class:`Overdue` where a round does not come back.
        """
        while True:
            if self._pieces.empty():
                left = self.deadline + OVERRUN - monotonic()
                try:
                    piece = await asyncio.wait_for(self._pieces.get(), left)
                except TimeoutError:
                    self.gone = True  # nobody waits for it any more
                    self.refusal = Overdue("a call of the model took too long")
                    raise self.refusal from None
            else:  # it is there, however late the client comes for it
                piece = self._pieces.get_nowait()
            if piece is END:
                break
            yield piece
        if self.refusal is not None:
            raise self.refusal

    def at_deadline(self, do: Callable[[Job], None]) -> None:
        """Call ``do(job)`` at its deadline, unless :meth:`rest` comes before."""
        self._timer = self._loop.call_later(self.task.seconds, do, self)

    def rest(self) -> None:
        """No longer mind the deadline; the loop lets go of the job."""
        if self._timer is not None:
            self._timer.cancel()

    def send(self, piece: str | None) -> None:
        """From any thread: the next piece for the coroutine that awaits them."""
        if piece and self.first_text is None:
            self.first_text = monotonic()
        if piece is not END and not (piece and self.task.stream):
            return  # a whole answer need not wake the loop at each piece
        try:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
        except RuntimeError:  # the loop is closed: nobody is there
            self.gone = True

    def refuse(self, refusal: Refusal) -> None:
        """End it by ``refusal``."""
        self.refusal = refusal
        self.send(END)

    def finish(self, completion: Completion) -> None:
        """End it by ``completion``, which is its answer."""
        now = monotonic()
        first = self.first_text
        self.outcome = Outcome(
            completion,
            now - self.accepted,
            self.queue_seconds,
            None if first is None else first - self.accepted,
        )
        self.send(END)


class Workers:
    """``settings.workers`` threads, and the jobs that wait for them."""

    def __init__(self, engine: Engine, settings: Settings, hooks: Hooks) -> None:
        self.engine = engine
        self.settings = settings
        self._hooks = hooks
        self._waiting: deque[Job] = deque()
        self._running: set[Job] = set()
        self._changed = threading.Condition()
        # Some tokenizers keep settings of one call, so that no two may encode at once.
        self._encoding = threading.Lock()
        self._stopped = False
        self._ends_at: float | None = None  # set at shutdown
        self._usual_seconds = USUAL_SECONDS
        self._threads = [
            threading.Thread(target=self._work, name=f"worker-{i}", daemon=True)
            for i in range(settings.workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def drain(self) -> None:
        """Take no more; end what there is in ``settings.grace`` seconds.

        Takes no lock, so that a handler of signals may call it.
        """
        if self._ends_at is None:
            self._ends_at = monotonic() + self.settings.grace

    async def stop(self) -> None:
        """End the threads, each after the round that it is in."""
        self.drain()
        self._ends_at = monotonic()
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        end = monotonic() + OVERRUN  # for all of them: a call may never come back
        for thread in self._threads:
            await asyncio.to_thread(thread.join, max(0.0, end - monotonic()))

    @property
    def draining(self) -> bool:
        """Whether no more jobs are taken."""
        return self._ends_at is not None

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """How many jobs are being decoded."""
        return len(self._running)

    def submit(self, job: Job) -> None:
        """Give the job a place; from the event loop. Raises :class:`Busy` where there
        is none, :class:`Unavailable` at shutdown."""
        if self.draining:
            raise Unavailable(
                "the service is stopping", retry_after=self.settings.grace + 1
            )
        with self._changed:
            places = self.settings.workers + self.settings.queue
            if len(self._running) + len(self._waiting) >= places:
                raise Busy(
                    f"all {places} places are taken", retry_after=self._wait_seconds()
                )
            # Told before it can start; it may start as soon as it is in the queue.
            self._hooks.accepted(job)
            self._waiting.append(job)
            self._changed.notify()
        job.at_deadline(self._end_waiting)

    def leave(self, job: Job) -> None:
        """Nobody awaits the job any more, done or not: from the event loop."""
        job.gone = True
        job.rest()
        job.send(END)  # to whoever still awaits its pieces
        with self._changed:
            if job not in self._waiting:
                return
            self._waiting.remove(job)
        self._told_finished(job)

    def _end_waiting(self, job: Job) -> None:
        """At its deadline: it no longer waits."""
        with self._changed:
            if job not in self._waiting:
                return
            self._waiting.remove(job)
        job.refuse(Overdue("its turn did not come before the deadline"))
        self._told_finished(job)

    def _wait_seconds(self) -> float:
        """When a place is likely to be free: one round of all that run."""
        ahead = (len(self._waiting) + 1) / self.settings.workers
        return min(ahead * self._usual_seconds, LONGEST_WAIT)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._stopped:
                    self._changed.wait()
                if not self._waiting:
                    return
                job = self._waiting.popleft()
                self._running.add(job)
            try:
                self._run(job)
            finally:
                with self._changed:
                    self._running.discard(job)

    def _run(self, job: Job) -> None:
        job.started = monotonic()
        try:
            if self._ends_at is not None and monotonic() >= self._ends_at:
                raise Unavailable("the service is stopping")
            self._hooks.started(job)
            self._decode(job)
        except Refusal as refusal:
            job.refuse(refusal)
        except BaseException:  # some libraries' panics are no Exception
            log.exception("request %s failed", job.request_id)
            job.refuse(Internal(job.request_id))
        seconds = monotonic() - job.started
        self._usual_seconds += 0.1 * (seconds - self._usual_seconds)
        self._told_finished(job)

    def _decode(self, job: Job) -> None:
        stream = self._begin(job)
        for piece in stream:
            self._hooks.round(job, stream.rounds[-1])
            if job.gone:
                stream.close()
                return
            job.send(piece)
            reason = self._reason_to_end(job)
            if reason is not None:
                job.send(stream.end(reason))
        job.finish(stream.completion)

    def _begin(self, job: Job) -> TextStream:
        """The stream of the job; what is wrong with the request is said here."""
        task, limit = job.task, self.settings.prompt_tokens
        engine = self._hooks.engine(job, self.engine)
        guard = self._hooks.guard(job)
        if guard is not None:
            engine = watched(
                engine, guard, task.sampler, task.verify, lambda: job.degrade("draft")
            )
        with self._encoding, _said_of(task):
            stream = engine.stream(
                task.prompt,
                max_new_tokens=task.max_new_tokens,
                k=task.k,
                sampler=task.sampler,
                verify=engine.verify if guard is not None else task.verify,
                stop=task.stop,
                seed=task.seed,
            )
        if stream.completion.prompt_tokens > limit:
            stream.close()
            raise Invalid(
                f"{task.fields['prompt']} must have at most {limit} tokens, "
                f"got {stream.completion.prompt_tokens}",
                param=task.fields["prompt"],
            )
        return stream

    def _reason_to_end(self, job: Job) -> str | None:
        now = monotonic()
        if now >= job.deadline:
            return "deadline"
        if self._ends_at is not None and now >= self._ends_at:
            return "shutdown"
        return None

    def _told_finished(self, job: Job) -> None:
        try:
            self._hooks.finished(job)
        except Exception:
            log.exception("a hook failed after request %s", job.request_id)


@contextmanager
def _said_of(task: Task) -> Iterator[None]:
    """The library's own complaints about arguments become those of the request."""
    try:
        yield
    except (ValueError, TypeError) as error:
        # Each begins with the name of the argument.
        name, _, rest = str(error).partition(" ")
        if name not in task.fields:
            raise
        field = task.fields[name]
        raise Invalid(f"{field} {rest}", param=field) from None
