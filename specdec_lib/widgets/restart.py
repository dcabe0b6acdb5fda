"""Work that is begun anew at each wish, and only ever finished for the latest one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any


class Latest:
    """Runs ``start(*wish)`` for the latest wish, in pieces, on the running event loop.

    start
        makes a generator that does the work in small steps. A run whose wish is no
        longer the latest is closed after the step that it is in.
    show
        called with what the run yielded last and whether it is done: once at each
        pause, and at the end.
    fail
        called with an error of the run.
    delay
        seconds between a wish and its run; wishes that come meanwhile replace it.
    pause_every
        seconds of work after which other work of the loop, such as the next wish, has
        its turn.

    There is no thread and one task at most. Where no event loop runs, ``wish`` does all
    the work before it returns. ``clock`` and ``sleep`` can be replaced in tests.
    """

    def __init__(
        self,
        start: Callable[..., Generator[Any, None, None]],
        show: Callable[[Any, bool], None],
        fail: Callable[[Exception], None],
        *,
        delay: float = 0.02,
        pause_every: float = 0.01,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._start, self._show, self._fail = start, show, fail
        self._delay, self._pause_every = delay, pause_every
        self._clock, self._sleep = clock, sleep
        self._wish: tuple[Any, ...] = ()
        self._wishes = 0  # how many there were; the number of the latest one
        self._served = 0  # the number of the last one that is over
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a wish is still to be served."""
        return self._served != self._wishes

    def wish(self, *wish: Any) -> None:
        """Ask for ``start(*wish)``, in place of all that was asked before."""
        self._wish = wish
        self._wishes += 1
        if self._task is not None and not self._task.done():
            return  # it sees at its next pause that there is a later wish
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            for _ in self._work():
                pass
            return
        self._task = loop.create_task(self._follow())

    def cancel(self) -> None:
        """Drop all wishes; a run stops at its next pause."""
        self._wishes += 1
        self._served = self._wishes

    async def _follow(self) -> None:
        for seconds in self._work():
            await self._sleep(seconds)

    def _work(self) -> Generator[float, None, None]:
        """Serve wishes until none is left; what it yields is how long to sleep."""
        yield self._delay
        while self.busy:
            number = self._wishes
            try:
                yield from self._run(number)
            except Exception as error:
                self._served = number
                self._fail(error)

    def _run(self, number: int) -> Generator[float, None, None]:
        run = self._start(*self._wish)
        try:
            last, since = None, self._clock()
            for last in run:
                if self._clock() - since < self._pause_every:
                    continue
                self._show(last, False)
                yield 0.001  # not 0: a message takes the loop several turns
                if number != self._wishes:
                    return
                since = self._clock()
            self._served = number
            self._show(last, True)
        finally:
            run.close()
