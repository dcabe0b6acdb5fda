"""A sweep on a real Ray cluster: the same records, also where a node is killed."""

import functools
import pickle
import subprocess
import sys
import time

import pytest
from scale_kit import began, ended, small_sweep

from specdec_lib import cli, scale
from specdec_lib.experiments import read_records

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def records():
    return small_sweep().run()


def test_a_cluster_gives_the_same_records(ray_cluster, records, tmp_path):
    notes, path = tmp_path / "notes", tmp_path / "records.jsonl"
    address = ray_cluster.address
    sweep = small_sweep(notes, wait=0.03)
    found = scale.run(sweep, path, where="ray", address=address)
    assert found == records
    assert sorted(map(str, read_records(path))) == sorted(map(str, records))
    assert len(began(notes)) == 24
    assert len(set(began(notes))) >= 2  # both nodes had work
    assert not ray.is_initialized()  # left as it was found


def test_a_file_begun_here_is_ended_there(ray_cluster, records, tmp_path):
    notes, path = tmp_path / "notes", tmp_path / "records.jsonl"
    small_sweep(seeds=(0, 1)).run(path)
    begun = path.read_bytes()
    make = functools.partial(small_sweep, notes)
    with ray.init(ray_cluster.address, log_to_driver=False):
        found = scale.run(small_sweep(), path, where="ray", workers=1, make=make)
        assert ray.is_initialized()  # left as it was found
        with pytest.raises(ValueError, match="address must be None while this program"):
            scale.run(small_sweep(), where="ray", address=ray_cluster.address)
    assert found == records
    assert path.read_bytes().startswith(begun)
    assert len(began(notes)) == 8


def test_what_a_cell_raises_is_raised_here(ray_cluster):
    make = functools.partial(divmod, 1, 0)
    address = ray_cluster.address
    with pytest.raises(ZeroDivisionError):
        scale.run(small_sweep(), where="ray", address=address, make=make)


def test_what_a_killed_worker_had_is_run_again(ray_cluster, records, tmp_path):
    notes, path = tmp_path / "notes", tmp_path / "records.jsonl"
    make = functools.partial(small_sweep, notes, deadly=2, once=tmp_path / "once")
    with ray.init(ray_cluster.address, log_to_driver=False):
        found = scale.run(small_sweep(), path, where="ray", make=make)
    assert found == records
    assert (tmp_path / "once").exists()  # one was killed in the midst of its cell
    assert len(began(notes)) > 24
    assert len(path.read_bytes().splitlines()) == 24


def test_the_command_on_a_cluster(ray_cluster, tmp_path, capsys):
    flags = ["--k", "1", "3", "--prompts", "2", "--max-tokens", "12"]
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    assert cli.main(["sweep", "-o", str(here), *flags]) == 0
    where = ["--ray", ray_cluster.address]
    assert cli.main(["sweep", "-o", str(there), *flags, *where]) == 0
    assert "4 records; 4 made in" in capsys.readouterr().out
    assert sorted(here.read_bytes().splitlines()) == sorted(
        there.read_bytes().splitlines()
    )


# The last of those that need the second node.
def test_the_cells_of_a_killed_node_are_run_again(ray_cluster, records, tmp_path):
    notes, path, killed = tmp_path / "notes", tmp_path / "records.jsonl", []
    raylets = [each.process.pid for each in ray_cluster.worker.all_processes["raylet"]]

    def progress(done, total):
        if done == 6:
            ray_cluster.remove_node(ray_cluster.worker, allow_graceful=False)
            killed.extend(raylets)

    sweep = small_sweep(notes, wait=0.02)
    address = ray_cluster.address
    found = scale.run(sweep, path, where="ray", address=address, progress=progress)
    assert killed
    assert all(ended(pid) for pid in killed)
    assert found == records
    assert len(path.read_bytes().splitlines()) == 24
    workers = began(notes)
    assert len(workers) >= 24
    gone = [pid for pid in set(workers) if ended(pid, 10)]
    assert gone  # its worker ended with it


def test_a_cluster_of_its_own(records, tmp_path, capsys):
    with scale.local_ray(workers=2):
        assert ray.cluster_resources()["CPU"] == 2
        assert scale.run(small_sweep(), where="ray", workers=1) == records
        path = tmp_path / "a.jsonl"
        flags = ["sweep", "-o", str(path), "--k", "1", "--prompts", "2"]
        assert cli.main([*flags, "--max-tokens", "5", "--ray", "local"]) == 0
    assert not ray.is_initialized()
    assert len(read_records(path)) == 2


def test_a_cluster_has_the_processors_of_this_program():
    with scale.local_ray():
        assert ray.cluster_resources()["CPU"] == scale.processors()
    assert not ray.is_initialized()


def test_a_function_without_an_import_path_makes_its_own_cluster(records):
    def make():
        return small_sweep()

    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(make)
    found = scale.run(small_sweep(), where="ray", workers=1, make=make)
    assert found == records
    assert not ray.is_initialized()


def test_no_cluster_is_named_at_once(tmp_path, capsys):
    started = time.monotonic()
    flags = ["sweep", "-o", str(tmp_path / "a.jsonl"), "--prompts", "1"]
    assert cli.main([*flags, "--ray", "127.0.0.1:1"]) == 2
    assert "Ray cluster 127.0.0.1:1 does not answer" in capsys.readouterr().err
    for wrong in ("here", "127.0.0.1:x"):
        assert cli.main([*flags, "--ray", wrong]) == 2
        error = capsys.readouterr().err
        assert "HOST:PORT" in error
        assert f"got {wrong!r}" in error
    assert time.monotonic() - started < 30


def test_without_ray_it_says_what_to_install():
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from specdec_lib import FunctionModel, experiments, scale\n"
        "coin = FunctionModel(lambda seq: [0.0, 0.0], 2, bos_id=0)\n"
        "sweep = experiments.Sweep(coin, {'coin': coin}, {'a': (0,)}, ks=(1,))\n"
        "scale.run(sweep, where='ray')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last == "ImportError: this needs ray: pip install 'specdec_lib[scale]'"
