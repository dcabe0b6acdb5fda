"""A Ray cluster of two node processes, and a server of MLflow, for all tests here."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import warnings
from pathlib import Path

import pytest

# Of the tools under these tests, and not ours.
IGNORED = (
    "ignore::sqlalchemy.exc.SADeprecationWarning",
    "ignore::DeprecationWarning:mlflow.*",
    "ignore::FutureWarning:mlflow.*",
    "ignore::DeprecationWarning:pydantic.*",
    "ignore::FutureWarning:ray.*",
    "ignore::DeprecationWarning:ray.*",
    # Ray leaves some of its processes and log files to the end of the program.
    "ignore:subprocess .* is still running:ResourceWarning",
    "ignore:unclosed file .*ray.*:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.path.name != "test_processes.py":
            for ignored in IGNORED:
                item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(scope="session", autouse=True)
def quiet_extras(root):
    """Nothing is reported to anyone, and a server that is gone is given up soon.

    Workers of Ray find what these tests define.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(root), str(root / "tests")]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield
    # Ray does not wait for the processes that it ends: not to be told of that later.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def ray_cluster():
    """Two nodes with a processor each; the second, .worker, may be killed."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    import ray

    from specdec_lib.scale.on_ray import patience

    small = {"num_cpus": 1, "object_store_memory": 80_000_000}
    quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
    with patience():
        cluster = cluster_utils.Cluster(
            initialize_head=True,
            head_node_args={**small, "include_dashboard": False}
            | {"_system_config": quick},
        )
    try:
        with patience():
            cluster.worker = cluster.add_node(**small)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory):
    """The address of a real server, and its process."""
    pytest.importorskip("mlflow")
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    where = ["--host", "127.0.0.1", "--port", str(port)]
    store = ["--backend-store-uri", f"sqlite:///{folder}/server.db"]
    files = ["--artifacts-destination", str(folder / "files")]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [*command, *where, *store, *files],
            cwd=folder,
            env=dict(os.environ, MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false"),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    uri = f"http://127.0.0.1:{port}"
    until = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(f"{uri}/health", timeout=5).close()
            break
        except OSError:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.3)
    yield uri, process
    _kill(process)


def _kill(process):
    """A process and those that it started, which are in a group of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="session")
def kill():
    return _kill
