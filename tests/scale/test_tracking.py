"""Runs kept in a real SQLite store and on a real server, and read back."""

import json
import subprocess
import sys

import pytest
from scale_kit import small_sweep

from specdec_lib import cli, scale, tracking
from specdec_lib.experiments import read_records
from specdec_lib.records import ratio

pytest.importorskip("mlflow")


@pytest.fixture(scope="module")
def records():
    return small_sweep().run()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One SQLite file: to make it takes seconds."""
    return str(tmp_path_factory.mktemp("store") / "runs.db")


@pytest.fixture(params=["file", "server"])
def uri(request):
    if request.param == "file":
        return request.getfixturevalue("store")
    return request.getfixturevalue("mlflow_server")[0]


def test_a_run_is_read_back_as_it_was_kept(uri, records):
    parameters = {"ks": [1, 3], "draft": "a model", "top_k": 5}
    id = tracking.log_run(
        records, name="first", parameters=parameters, metrics={"seconds": 2.5}, uri=uri
    )
    empty = tracking.log_run([], name="empty", uri=uri)
    runs = tracking.read_runs(uri)
    assert [run.id for run in runs] == [id, empty]  # the oldest first
    run = runs[0]
    assert (run.name, run.status) == ("first", "FINISHED")
    assert run.parameters == {"ks": "[1, 3]", "draft": "a model", "top_k": "5"}
    assert run.records() == records
    assert run.metrics["seconds"] == 2.5
    for name in ("emitted", "accepted"):
        assert run.metrics[name] == sum(record[name] for record in records)
    accepted, tested = (sum(r[n] for r in records) for n in ("accepted", "tested"))
    assert run.metrics["acceptance_rate"] == accepted / tested
    # The curve over k is that of the records of each k.
    curve = run.curves["tokens_per_call/model/T 1"]
    assert [k for k, _ in curve] == [1, 3]
    for k, value in curve:
        some = [record for record in records if record["k"] == k]
        assert value == ratio(some, "emitted", "target_calls")
    assert run.figures == ["acceptance by position", "tokens against k"]
    assert run.figure("tokens against k").startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="name must be one of"):
        run.figure("another")
    assert [run.name for run in tracking.read_runs(uri, name="empty")] == ["empty"]
    assert tracking.read_runs(uri, experiment="no such one") == []


def test_with_defaults_alone(records, tmp_path, monkeypatch):
    """A name and no more; it is kept in the folder where it is done."""
    monkeypatch.chdir(tmp_path)
    tracking.log_run(records, name="logged")
    tracking.start_run(name="begun").finish(records)
    runs = tracking.read_runs()
    assert sorted(run.name for run in runs) == ["begun", "logged"]
    assert all(run.records() == records for run in runs)
    assert list(tmp_path.iterdir())


def test_figures_of_ones_own(store, records):
    import matplotlib.pyplot as plt

    figure, _ = plt.subplots()
    tracking.log_run(
        records, name="own", figures={"mine": figure}, uri=store, experiment="figures"
    )
    plt.close(figure)
    (run,) = tracking.read_runs(store, experiment="figures")
    assert run.figures == ["mine"]
    assert run.parameters == {}


def test_many_parameters_and_odd_names(store, records):
    parameters = {f"p{i}": i for i in range(230)}
    odd = [record | {"draft": "ö=1, a/b"} for record in records]
    tracking.log_run(odd, name="x", parameters=parameters, uri=store, experiment="many")
    (run,) = tracking.read_runs(store, experiment="many")
    assert run.parameters == {name: str(value) for name, value in parameters.items()}
    assert run.records() == odd
    assert "tokens_per_call/__1_ a_b/T 1" in run.curves


FLAGS = ["--k", "1", "3", "--prompts", "2", "--max-tokens", "12"]


def sweep(*flags):
    return cli.main(["sweep", *FLAGS, *map(str, flags)])


def test_the_command_keeps_its_run(store, tmp_path, capsys):
    path = tmp_path / "sweep.jsonl"
    flags = ["-o", path, "--track", store, "--experiment", "command", "--json"]
    assert sweep(*flags) == 0
    report = json.loads(capsys.readouterr().out)
    (run,) = tracking.read_runs(store, experiment="command")
    assert run.id == report["run"]
    assert run.name == "sweep"
    assert run.parameters["ks"] == "[1, 3]"
    assert run.parameters["where"] == "here"
    assert run.records() == read_records(path)
    assert run.metrics["records"] == 4
    assert run.metrics["seconds"] == pytest.approx(report["seconds"])


def test_by_the_usual_variable(monkeypatch, mlflow_server, tmp_path, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server[0])
    path = tmp_path / "sweep.jsonl"
    flags = ["-o", path, "--experiment", "variable", "--run-name", "named", "--track"]
    assert sweep(*flags) == 0
    (run,) = tracking.read_runs(experiment="variable")
    assert run.name == "named"
    assert run.records() == read_records(path)


def test_a_sweep_that_breaks_off_is_a_failed_run(store, tmp_path, capsys):
    path = tmp_path / "sweep.jsonl"
    assert sweep("-o", path) == 0
    flags = ["-o", path, "--track", store, "--experiment", "broken"]
    assert sweep(*flags, "--top-k", 3) == 2
    assert "holds a record of another setup" in capsys.readouterr().err
    (run,) = tracking.read_runs(store, experiment="broken")
    assert run.status == "FAILED"
    with pytest.raises(tracking.TrackingError, match="reading records failed"):
        run.records()


def test_a_store_that_is_wrong_is_named_before_any_work(tmp_path, capsys):
    path = tmp_path / "sweep.jsonl"
    wrong = tmp_path / "wrong.db"
    wrong.write_bytes(b"no database at all, but long enough to be one" * 100)
    assert sweep("-o", path, "--track", wrong) == 2
    assert "starting a run failed" in capsys.readouterr().err
    assert sweep("-o", path, "--track", tmp_path / "none" / "a.db") == 2
    assert "track: there is no folder" in capsys.readouterr().err
    assert not path.exists()
    with pytest.raises(FileNotFoundError, match="there are no runs in"):
        tracking.read_runs(str(tmp_path / "other.db"))
    assert not (tmp_path / "other.db").exists()


# The last one: it ends the server.
def test_records_are_not_lost_with_the_server(
    mlflow_server, kill, monkeypatch, tmp_path, capsys
):
    uri, process = mlflow_server
    path = tmp_path / "sweep.jsonl"

    def run_and_kill(*arguments, **settings):
        records = scale.run(*arguments, **settings)
        kill(process)
        return records

    monkeypatch.setattr("specdec_lib.scale.command.run", run_and_kill)
    assert sweep("-o", path, "--track", uri, "--experiment", "lost") == 2
    out, err = capsys.readouterr()
    assert "tokens per call" in out
    assert "the run is not tracked: keeping a run failed" in err
    assert f"All records are in {path}" in err
    assert err.count("\n") == 1
    assert len(read_records(path)) == 4


def test_without_mlflow_it_says_what_to_install():
    code = (
        "import sys; sys.modules['mlflow'] = None\n"
        "from specdec_lib import tracking; tracking.read_runs()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last == "ImportError: this needs mlflow: pip install 'specdec_lib[track]'"
