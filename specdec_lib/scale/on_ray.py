"""The same work on a Ray cluster: what all tasks need once a node, then task by task.

Ray runs the tasks of a worker or of a node that was lost again by itself; results are
so small that they come back with the answer, and so cannot be lost any more.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ..workers import TRIES

Common = TypeVar("Common")
Task = TypeVar("Task")
Result = TypeVar("Result")

STORE = 128 * 2**20  # bytes of a local object store, besides what is put there
PATIENCE = 180.0  # seconds until a cluster on this machine must be there


def on_ray(
    call: Callable[[Common, Task], Result],
    make: Callable[[], Common],
    tasks: Sequence[Task],
    *,
    workers: int | None = None,
    address: str | None = None,
    tries: int = TRIES,
) -> Generator[tuple[Task, Result], None, None]:
    """As :func:`specdec_lib.workers.in_processes`, on Ray.

    ``make`` goes into the object store: once to each node, where its arrays are shared
    by all workers. ``workers`` and ``address`` as in :func:`specdec_lib.scale.run`.
    """
    ray = _ray()
    with _connected(ray, workers, address, make) as ours:
        common = ray.put(make)
        remote = ray.remote(
            num_cpus=1,
            max_retries=tries - 1,
            scheduling_strategy="SPREAD",
        )(_run)
        capacity = int(ray.cluster_resources().get("CPU", 0))
        if capacity < 1:
            raise ConnectionError("the Ray cluster has no processors for this work")
        # Twice as many as are run, so that no worker waits for its next; but no more at
        # a time than were asked for, on a cluster that others use too.
        most = 2 * capacity if ours or workers is None else workers
        left = iter(range(len(tasks)))
        handed: dict[Any, int] = {}
        try:
            while True:
                while len(handed) < most and (i := next(left, None)) is not None:
                    # In a list the reference stays one: the worker asks for it once.
                    handed[remote.remote(call, [common], tasks[i])] = i
                if not handed:
                    return
                for done in ray.wait([*handed], num_returns=1)[0]:
                    i = handed.pop(done)
                    yield tasks[i], _result(ray, done, tasks[i], tries)
        finally:
            for reference in handed:
                ray.cancel(reference)


def _result(ray: Any, reference: Any, task: Any, tries: int) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ray.exceptions.RayError):  # not its own, but Ray's
            raise ChildProcessError(
                f"a worker on Ray could not run the task {task}: "
                f"{str(error.cause).splitlines()[0]}"
            ) from error
        raise error.cause from None  # what the task raised, as if it were run here
    except ray.exceptions.RayError as error:
        raise ChildProcessError(
            f"workers on Ray ended {tries} times before their work was done, with the "
            f"task {task} ({type(error).__name__})"
        ) from error


_made: dict[str, Any] = {}  # in a worker process: what its tasks have in common


def _run(call: Callable[[Any, Any], Any], common: list[Any], task: Any) -> Any:
    import ray

    key = common[0].hex()
    if key not in _made:
        _made.clear()
        _made[key] = ray.get(common[0])()
    return call(_made[key], task)


def _ray() -> Any:
    # No report of this use is sent to anyone, unless somebody asked for that.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            f"this needs {error.name}: pip install 'specdec_lib[scale]'",
            name=error.name,
        ) from error
    return ray


def _knock(address: str) -> None:
    """ConnectionError at once where nobody listens: Ray itself asks for two minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto" or "://" in address:
        return
    if not (host and port.isdigit()):
        raise ValueError(f"address must be HOST:PORT, or 'auto', got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(
            f"the Ray cluster {address} does not answer: {error}"
        ) from error


@contextmanager
def local_ray(workers: int | None = None, store_bytes: int = STORE) -> Iterator[None]:
    """A Ray cluster on this machine, for some runs, ended with the block.

    workers
        its processors; by default those that this program may use.
    store_bytes
        of the memory that its workers share.

    It has no dashboard, and reports to nobody. Raises ImportError without Ray,
    ConnectionError where it does not come.
    """
    from . import processors

    with _initialised(
        "Ray on this machine",
        address="local",
        num_cpus=workers or processors(),
        include_dashboard=False,
        object_store_memory=store_bytes,
    ):
        yield


@contextmanager
def _connected(
    ray: Any, workers: int | None, address: str | None, make: Any
) -> Iterator[bool]:
    """With a cluster, and whether it was made for this alone."""
    if ray.is_initialized():
        if address is not None:
            raise ValueError(
                f"address must be None while this program is connected to Ray, got "
                f"{address!r}"
            )
        yield False
    elif address is None:
        # As Ray will send it: that may be a function which pickle itself cannot.
        with local_ray(workers, STORE + 2 * len(ray.cloudpickle.dumps(make))):
            yield True
    else:
        _knock(address)
        with _initialised(f"the Ray cluster {address}", address=address):
            yield False


@contextmanager
def _initialised(what: str, **settings: Any) -> Iterator[None]:
    ray = _ray()
    try:
        with patience():
            ray.init(log_to_driver=False, logging_level="error", **settings)
    except Exception as error:  # Ray raises this very class, among others
        ray.shutdown()
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConnectionError(f"{what} does not answer: {first}") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def patience(seconds: float = PATIENCE) -> Iterator[None]:
    """Wait so long for a node that starts, where Ray gives it up after 30 seconds.

    On a machine that is full of other work it needs longer. Where Ray has its question
    for a node elsewhere, by another version, nothing is changed.
    """
    from ray._private import services

    once = getattr(services, "get_node", None)
    if once is None:
        yield
        return
    until = time.monotonic() + seconds

    def get_node(*arguments: Any, **named: Any) -> Any:
        while True:
            try:
                return once(*arguments, **named)
            except RuntimeError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    services.get_node = get_node
    try:
        yield
    finally:
        services.get_node = once
