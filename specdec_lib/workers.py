"""Work shared out over processes of this machine, none of it lost with a process."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from .models import check_count

Common = TypeVar("Common")
Task = TypeVar("Task")
Result = TypeVar("Result")

TRIES = 3


class Sent:
    """A function that makes what was sent along with it: ``make`` for a value.

    >>> Sent("a value")()
    'a value'
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self) -> Any:
        return self._value


def in_processes(
    call: Callable[[Common, Task], Result],
    make: Callable[[], Common],
    tasks: Sequence[Task],
    *,
    workers: int,
    tries: int = TRIES,
    on_loss: Callable[[int], None] | None = None,
) -> Iterator[tuple[Task, Result]]:
    """``call(common, task)`` of each task, in the order in which they are done.

    call, make
        importable functions. ``common = make()`` is made once in each process, so that
        a task is all that has to be sent to it later.
    workers
        processes, >= 1, started afresh ("spawn"): a script needs the usual
        ``if __name__ == "__main__":``.
    tries
        a process that ends before its time (killed, or out of memory) takes all others
        with it; new ones are started, and the tasks that had been handed out are run
        again. ChildProcessError for a task that was lost so often.
    on_loss
        called with how many tasks are run again.

    What a task raises is raised here. A task's result must not depend on where or how
    often it is run.
    """
    import multiprocessing  # not in a browser
    from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
    from concurrent.futures.process import BrokenProcessPool

    check_count("workers", workers, least=1)
    check_count("tries", tries, least=1)
    left = deque(range(len(tasks)))
    losses: Counter[int] = Counter()
    while left:
        pool = ProcessPoolExecutor(
            min(workers, len(left)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_receive,
            initargs=(make,),
        )
        handed: dict[Future[Any], int] = {}
        try:
            while left or handed:
                # One more for each process than it works on: it need not wait for it.
                while left and len(handed) < 2 * workers:
                    handed[pool.submit(_run, call, tasks[left[0]])] = left[0]
                    left.popleft()
                for future in wait(handed, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    yield tasks[handed.pop(future)], result
        except BrokenProcessPool:
            again = sorted(handed.values())
            losses.update(again)
            if again and max(losses[i] for i in again) >= tries:
                raise ChildProcessError(
                    f"worker processes ended {tries} times before their work was done, "
                    f"with one of these tasks: {[tasks[i] for i in again]}"
                ) from None
            left.extendleft(reversed(again))
            if on_loss is not None:
                on_loss(len(again))
        finally:
            pool.shutdown(cancel_futures=True)


_common: list[Any] = []  # in a worker process: what its tasks have in common


def _receive(make: Callable[[], Any]) -> None:
    import multiprocessing
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent sees to it
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _common[:] = [make()]


def _end_with(parent: Any) -> None:
    """End this process where the one that started it was killed."""
    import os

    parent.join()
    os._exit(1)


def _run(call: Callable[[Any, Any], Any], task: Any) -> Any:
    return call(_common[0], task)
