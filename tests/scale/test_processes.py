"""A sweep on processes: the same records, also where some of them are killed."""

import functools
import os
import pickle
import signal
import subprocess
import sys
import time

import pytest
from scale_kit import began, ended, small_sweep

from specdec_lib import scale, workers
from specdec_lib.experiments import read_records


@pytest.fixture(scope="module")
def records():
    return small_sweep().run()


def test_processes_give_the_same_records(records, tmp_path):
    notes = tmp_path / "notes"
    path = tmp_path / "records.jsonl"
    done = []
    found = scale.run(
        small_sweep(notes),
        path,
        where="processes",
        workers=2,
        progress=lambda *each: done.append(each),
    )
    assert found == records
    assert done == [(i, 24) for i in range(25)]
    assert sorted(map(str, read_records(path))) == sorted(map(str, records))
    assert len(began(notes)) == 24
    assert len(set(began(notes))) <= 2
    assert all(ended(pid) for pid in began(notes))


def test_each_process_may_make_the_sweep_itself(records, tmp_path):
    notes = tmp_path / "notes"

    class Unpicklable:
        def __call__(self, sampler):
            raise AssertionError("a worker makes its own")

    make = functools.partial(small_sweep, notes)
    sweep = small_sweep()
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(Unpicklable())
    assert scale.run(sweep, where="processes", workers=2, make=make) == records
    assert len(began(notes)) == 24


def test_what_a_killed_worker_had_is_run_again(records, tmp_path):
    notes, path, lost = tmp_path / "notes", tmp_path / "records.jsonl", []
    make = functools.partial(small_sweep, notes, deadly=2, once=tmp_path / "once")
    found = scale.run(
        small_sweep(),
        path,
        where="processes",
        workers=2,
        make=make,
        on_loss=lost.append,
    )
    assert found == records
    stored = read_records(path)  # refuses a file in which a cell stands twice
    assert sorted(map(str, stored)) == sorted(map(str, records))
    assert len(lost) == 1
    assert 1 <= lost[0] <= 4
    assert 24 < len(began(notes)) <= 24 + lost[0]  # some were begun twice
    assert 3 <= len(set(began(notes))) <= 4


@pytest.mark.parametrize("how_many", (1, 2))
def test_workers_that_are_killed_from_outside(records, tmp_path, how_many):
    notes, path, killed = tmp_path / "notes", tmp_path / "records.jsonl", []

    def progress(done, total):
        if done in (6, 15) and len(set(began(notes))) > 2 * (done > 6):
            for pid in [pid for pid in set(began(notes)) if pid not in killed]:
                if len(killed) < how_many * (1 + (done > 6)) and not ended(pid, 0):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    sweep = small_sweep(notes, wait=0.01)
    assert sweep.run(path, workers=2, progress=progress) == records
    assert len(killed) >= how_many
    assert len(path.read_bytes().splitlines()) == 24


def test_a_cell_that_kills_every_worker_is_given_up(tmp_path):
    notes, path = tmp_path / "notes", tmp_path / "records.jsonl"
    sweep = small_sweep(notes)
    make = functools.partial(small_sweep, notes, deadly=3)
    with pytest.raises(ChildProcessError, match=r"ended 3 times .* prompt='p3'"):
        scale.run(sweep, path, where="processes", workers=2, make=make)
    lines = notes.read_text().splitlines()
    assert 3 <= sum(line.endswith(" 3") for line in lines) <= 12
    # What was done is kept, and a mended sweep goes on from there.
    kept = read_records(path)
    assert all(record["prompt"] != "p3" for record in kept)
    assert scale.run(sweep, path) == small_sweep().run()


def test_an_error_is_the_one_that_was_raised():
    calls = workers.in_processes(int, functools.partial(int, 7), ["1"], workers=1)
    with pytest.raises(TypeError, match="int"):
        list(calls)  # int(7, "1")


SCRIPT = """
import sys
from scale_kit import small_sweep
from specdec_lib import scale
if __name__ == "__main__":
    sweep = small_sweep(sys.argv[2], wait=0.05)
    print("begun", flush=True)
    scale.run(sweep, sys.argv[1], where="processes", workers=2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_end_with_the_program_that_started_them(records, tmp_path, root):
    script, path, notes = (tmp_path / name for name in ("run.py", "records", "notes"))
    script.write_text(SCRIPT)
    paths = os.pathsep.join([str(root), str(root / "tests")])
    process = subprocess.Popen(
        [sys.executable, script, path, notes],
        env=dict(os.environ, PYTHONPATH=paths),
        stdout=subprocess.PIPE,
    )
    until = time.monotonic() + 60
    while not (path.exists() and path.read_bytes().count(b"\n") >= 3):
        assert time.monotonic() < until
        time.sleep(0.02)
    process.kill()
    process.wait()
    process.stdout.close()
    pids = set(began(notes))
    assert len(pids) >= 2
    assert all(ended(pid) for pid in pids)
    assert 3 <= len(read_records(path)) < 24
    assert scale.run(small_sweep(), path, where="processes", workers=2) == records
    assert len(path.read_bytes().splitlines()) == 24


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"where": "cloud"}, "where must be one of here, processes, ray, got 'cloud'"),
        ({"workers": 2}, "workers must be 1 where all is run here, got 2"),
        ({"where": "processes", "workers": 0}, "workers must be 1 or more, got 0"),
        ({"where": "processes", "address": "a:1"}, "where must be 'ray' with an addr"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        scale.run(small_sweep(), **arguments)


def test_times_are_those_of_one_process():
    sweep = small_sweep(timed=True)
    with pytest.raises(ValueError, match="workers must be 1 where times are recorded"):
        scale.run(sweep, where="processes", workers=2)
    assert scale.run(sweep)[0]["target_seconds"] > 0


# Costs


def test_costs_are_those_of_the_parts():
    sweep = small_sweep(wait=0.002)
    costs = scale.measure(sweep, 6)
    cell = sweep.cells()[0]
    assert costs.cells == 24
    assert costs.task_bytes == len(pickle.dumps(cell))
    record = len(pickle.dumps(sweep.run_cell(cell)))
    assert costs.record_bytes == pytest.approx(record, rel=0.3)
    assert costs.sweep_bytes > costs.record_bytes
    assert costs.cell_seconds > 5 * 0.002  # it waits in each of its calls
    assert 0 < costs.record_seconds < costs.cell_seconds


def test_predictions_worked_out_by_hand():
    costs = scale.Costs(1_000_000, 100, 400, 0.1, 0.0, 100)

    def predict(n, **settings):
        return scale.predict(costs, n, **{"task_seconds": 0.01, **settings})

    one = predict(1, bytes_per_second=1e6)
    assert one.seconds == pytest.approx(1 + 100 * 0.1)
    assert one.limit == "workers"
    assert one.saturation == pytest.approx(0.1 / 0.01)
    four = predict(4, nodes=2, start_seconds=3, bytes_per_second=1e6)
    assert four.seconds == pytest.approx(3 + 2 + 100 * 0.1 / 4 + 0.05)
    assert four.speedup == pytest.approx(10 / four.seconds)
    many = predict(50, bytes_per_second=1e6)
    assert many.limit == "driver"
    assert many.seconds == pytest.approx(1 + 100 * 0.01 + 0.05)
    slow = predict(50, bytes_per_second=10_000)
    assert slow.limit == "network"
    assert slow.seconds == pytest.approx(100 + 100 * 0.05 + 0.05)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"workers": 0}, "workers must be 1 or more, got 0"),
        ({"nodes": 0}, "nodes must be 1 or more, got 0"),
        ({"start_seconds": -1}, "start_seconds must be finite and >= 0, got -1"),
        ({"task_seconds": float("nan")}, "task_seconds must be finite"),
        ({"bytes_per_second": 0}, "bytes_per_second must be > 0, got 0"),
    ],
)
def test_bad_predictions(arguments, message):
    costs = scale.Costs(1, 1, 1, 1.0, 0.0, 1)
    with pytest.raises(ValueError, match=message):
        scale.predict(costs, **{"workers": 1, **arguments})
