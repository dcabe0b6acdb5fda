"""A sweep on all cores of a machine, or on many machines, with the same records.

    run        a sweep here, on processes of this machine, or on Ray
    local_ray  Ray on this machine, for several of them
    measure    what a sweep costs: seconds and bytes of its parts
    predict    from these: how long it takes with so many workers, and what limits it

The sweep is the one of :mod:`specdec_lib.experiments`. Its cells have nothing to do
with each other: each has a source of random numbers made from its own key, so that its
record is the same wherever it is run, and however often. That is what all of this rests
on: a cell that was lost with its worker is simply run again, and a file of records goes
on where it stopped. (The same to the bit on processors of one kind. Another kind may
add up in another order, and so change the last digit of ``overlap``.)

What moves, for the book's pair (chapter 8's sweep: 192 cells, 200 tokens each), as
measured on two cores and a slow disk:

    the sweep, models and prompts    2.7 MB, once to each process; on Ray once to each
                                     node, whose workers share it in memory
    how to make it, in its place     some hundred bytes, and 0.3 s of training for each
                                     worker; with a real model the seconds of loading
    a task                           100 bytes
    a record                         600 bytes
    a cell's work                    25 ms
    handing out a task, on Ray       1 ms
    a record safely on the disk      4 ms; 0.2 ms at the best

So a cell moves 700 bytes for 25 ms of work: 28 kB a second for each worker. A network
of a gigabit would carry thousands of workers. The one program that hands out the cells
and keeps their records is at its limit long before: with 5 ms for each of them workers
beyond five wait for it, with 1.2 ms those beyond twenty. Longer texts, or a real model
with its seconds for a cell, move that limit in proportion: at 2 s a cell it is 400
workers. A program and a file for each part of the sweep (some drafts, say), merged
afterwards, removes it. :func:`measure` and :func:`predict` say it with the figures of a
sweep and a machine.

Processes need nothing more than the core; Ray needs ``pip install specdec_lib[scale]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from ..experiments import Sweep
from ..models import check_count
from ..records import AnyPath, Cell, Record
from ..workers import Sent, in_processes
from .costs import Costs, Prediction, measure, predict

__all__ = ["WHERE", "Costs", "Prediction", "local_ray", "measure", "predict", "run"]

WHERE = ("here", "processes", "ray")


def run(
    sweep: Sweep,
    path: AnyPath | None = None,
    *,
    where: str = "here",
    workers: int | None = None,
    address: str | None = None,
    make: Callable[[], Sweep] | None = None,
    progress: Callable[[int, int], None] | None = None,
    on_loss: Callable[[int], None] | None = None,
) -> list[Record]:
    """The records of a sweep, in the order of its cells, wherever they are run.

    path, progress
        as in :meth:`specdec_lib.experiments.Sweep.run`: a file that resumes.
    where
        "here": one process, this one. "processes": processes of this machine. "ray": a
        Ray cluster.
    workers
        processes; by default one for each processor. On a cluster that was there before
        the most cells at a time; by default as many as its processors take.
    address
        of a Ray cluster, ``"10.0.0.1:6379"`` or ``"auto"``; None: that to which this
        program is connected, else one on this machine, for this call only. Each node
        needs this library.
    make
        makes the same sweep in each worker; an importable function, or a
        ``functools.partial`` of one; on Ray any function. None: the sweep is sent to
        the workers, and has to be picklable; on Ray by its ``cloudpickle``, which also
        takes what a notebook defines.
    on_loss
        called with how many cells are run again, where a process was lost. Ray runs
        them again by itself.

    A cell that takes its worker with it three times is a ChildProcessError; what was
    done until then is in the file. Raises ValueError for arguments that do not go
    together, ImportError without Ray, ConnectionError where no cluster answers.

    >>> from specdec_lib import FunctionModel, experiments
    >>> coin = FunctionModel(lambda seq: [0.0, 0.0], 2, bos_id=0)
    >>> sweep = experiments.Sweep(coin, {"coin": coin}, {"a": (0,)}, ks=(1, 2))
    >>> [record["acceptance_rate"] for record in run(sweep)]
    [1.0, 1.0]
    """
    if where not in WHERE:
        raise ValueError(f"where must be one of {', '.join(WHERE)}, got {where!r}")
    if workers is not None:
        check_count("workers", workers, least=1)
    if where == "here" and workers not in (None, 1):
        raise ValueError(f"workers must be 1 where all is run here, got {workers}")
    if address is not None and where != "ray":
        raise ValueError(f"where must be 'ray' with an address, got {where!r}")
    if where == "here":
        return sweep.run(path, progress=progress)
    common = make if make is not None else Sent(sweep)

    def runner(_: Sweep, cells: list[Cell]) -> Iterator[tuple[Cell, Record]]:
        if where == "processes":
            return in_processes(
                Sweep.run_cell,
                common,
                cells,
                workers=workers or processors(),
                on_loss=on_loss,
            )
        from .on_ray import on_ray

        return on_ray(Sweep.run_cell, common, cells, workers=workers, address=address)

    return sweep.run(path, runner=runner, progress=progress)


def local_ray(workers: int | None = None) -> AbstractContextManager[None]:
    """A Ray cluster on this machine for several runs, ended with the ``with`` block.

    workers
        its processors; by default those that this program may use.

    It takes seconds to start. It has no dashboard and reports to nobody. Raises
    ImportError without Ray, ConnectionError where it does not come.

    >>> with local_ray(workers=2):  # doctest: +SKIP
    ...     first, second = (run(each, where="ray") for each in sweeps)
    """
    from .on_ray import local_ray as start

    return start(workers)


def processors() -> int:
    """The processors that this program may use.

    >>> processors() >= 1
    True
    """
    import os

    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1
