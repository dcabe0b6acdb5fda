"""Runs that are kept: their parameters, metrics, figures and records, in MLflow.

    log_run(records, name="over k", parameters={"ks": [1, 2, 4]})
    for run in read_runs():
        print(run.name, run.metrics["tokens_per_call"], len(run.records()))

Where they go: to ``uri``; without one to the server of MLflow's own variables
(``MLFLOW_TRACKING_URI``, with its user, password or token); without these to the SQLite
file ``mlflow.db`` in the current folder, and the files of a run beside it. ``mlflow ui
--backend-store-uri sqlite:///mlflow.db`` shows them.

Needs ``pip install specdec_lib[track]``. MLflow's own reports of its use are off, and a
server that does not answer is given up soon, unless its variables say otherwise.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .records import Record, group_records, ratio, read_records, write_records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPERIMENT = "specdec"
STORE = "mlflow.db"
RECORDS = "records.jsonl"
RATIOS = {
    "acceptance_rate": ("accepted", "tested"),
    "draft_efficiency": ("accepted", "drafted"),
    "tokens_per_call": ("emitted", "target_calls"),
}
COUNTS = ("drafted", "tested", "accepted", "emitted", "target_calls")
DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
AT_ONCE = 100  # parameters or metrics of one request


class TrackingError(OSError):
    """The store of runs failed; records are not lost by it."""


@dataclass(frozen=True)
class Run:
    """A run as it was kept.

    id, started
        its id in MLflow, and when it was started.
    status
        "FINISHED", "FAILED", or "RUNNING" while it runs, or where it was killed.
    parameters
        name -> text; what was no text is as JSON writes it.
    metrics
        name -> number. Those that were kept for each k hold that of the largest one.
    curves
        name -> (k, number) of each k, in order: ``"tokens_per_call/model/T 1"``.
    figures
        names of the figures.
    """

    id: str
    name: str
    status: str
    started: datetime
    parameters: dict[str, str]
    metrics: dict[str, float]
    curves: dict[str, list[tuple[int, float]]]
    figures: list[str]
    _store: _Store = field(repr=False)

    def records(self) -> list[Record]:
        """The records of the run; TrackingError where it kept none."""
        with tempfile.TemporaryDirectory() as folder, _naming("reading records"):
            return read_records(self._store.download(self.id, RECORDS, folder))

    def figure(self, name: str) -> bytes:
        """A figure, one of ``figures``: a picture, as PNG."""
        if name not in self.figures:
            raise ValueError(f"name must be one of {self.figures}, got {name!r}")
        with tempfile.TemporaryDirectory() as folder, _naming("reading a figure"):
            path = self._store.download(self.id, f"figures/{name}.png", folder)
            return Path(path).read_bytes()


def log_run(
    records: Sequence[Record],
    *,
    name: str,
    parameters: Mapping[str, Any] | None = None,
    metrics: Mapping[str, float] | None = None,
    figures: Mapping[str, Figure] | None = None,
    uri: str | None = None,
    experiment: str = EXPERIMENT,
) -> str:
    """Keep the records of a sweep and what they say as one run; returns its id.

    parameters
        what it was about: texts, numbers, lists.
    metrics
        more than is made from the records: their counts and ratios, in all, and for
        each draft and temperature by k.
    figures
        name -> figure of matplotlib. None: tokens per call against k, and acceptance by
        position, where matplotlib is installed.
    uri
        of the store, as the module says; a path that ends in ``.db`` is an SQLite file.

    Raises TrackingError where the store fails, ImportError without MLflow.
    """
    run = start_run(name=name, parameters=parameters, uri=uri, experiment=experiment)
    run.finish(records, metrics=metrics, figures=figures)
    return run.id


def start_run(
    *,
    name: str,
    parameters: Mapping[str, Any] | None = None,
    uri: str | None = None,
    experiment: str = EXPERIMENT,
) -> Started:
    """Begin a run before its records are there, so that a store that fails says so.

    Arguments are those of :func:`log_run`.
    """
    with _naming("starting a run"):
        store = _Store(uri)
        return Started(store, store.create(experiment, name, dict(parameters or {})))


class Started:
    """A run that is not over: ``finish`` it, or say that it is ``failed``."""

    def __init__(self, store: _Store, id: str) -> None:
        self.id = id
        self._store = store

    def finish(
        self,
        records: Sequence[Record],
        *,
        metrics: Mapping[str, float] | None = None,
        figures: Mapping[str, Figure] | None = None,
    ) -> None:
        """Keep the records, and what :func:`log_run` says besides."""
        with _naming("keeping a run"):
            store = self._store
            store.numbers(self.id, totals(records) | dict(metrics or {}), step=0)
            for k, numbers in by_k(records).items():
                store.numbers(self.id, numbers, step=k)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / RECORDS
                write_records(records, path)
                store.upload(self.id, path)
            pictures = _figures(records) if figures is None else _pictures(figures)
            for name, picture in pictures:
                store.picture(self.id, name, picture)
            store.end(self.id, "FINISHED")

    def failed(self) -> None:
        """Mark the run as one that broke off."""
        with _naming("ending a run"):
            self._store.end(self.id, "FAILED")


def read_runs(
    uri: str | None = None, *, experiment: str = EXPERIMENT, name: str | None = None
) -> list[Run]:
    """The runs that were kept, the oldest first; those of one name alone, if given.

    An empty list where there is no such experiment. Raises TrackingError where the
    store fails, FileNotFoundError for an SQLite file that is not there.
    """
    with _naming("reading runs"):
        store = _Store(uri, existing=True)
        runs = [store.read(each) for each in store.runs(experiment)]
        return [each for each in runs if name in (None, each.name)]


def totals(records: Sequence[Record]) -> dict[str, float]:
    """Counts and ratios of all records together; a ratio of nothing is left out.

    >>> totals([{"drafted": 4, "tested": 3, "accepted": 2, "emitted": 6,
    ...          "target_calls": 2}])["tokens_per_call"]
    3.0
    """
    numbers: dict[str, float] = {"records": float(len(records))}
    for name in COUNTS if records else ():
        numbers[name] = float(sum(record[name] for record in records))
    for name, (part, whole) in RATIOS.items() if records else ():
        value = ratio(records, part, whole)
        if value is not None:
            numbers[name] = value
    return numbers


def by_k(records: Sequence[Record]) -> dict[int, dict[str, float]]:
    """k -> the ratios of each draft and temperature, ``"acceptance_rate/model/T 1"``.

    Letters of a draft's name that MLflow does not take are ``_``.
    """
    curves: dict[int, dict[str, float]] = {}
    columns = ("k", "draft", "temperature")
    for (k, draft, temperature), group in group_records(records, columns).items():
        label = f"{re.sub('[^a-zA-Z0-9_. :-]', '_', draft)}/T {temperature:g}"
        for name, (part, whole) in RATIOS.items():
            value = ratio(group, part, whole)
            if value is not None:
                curves.setdefault(k, {})[f"{name}/{label}"] = value
    return curves


def _figures(records: Sequence[Record]) -> Iterator[tuple[str, bytes]]:
    """What the chapters draw of such records, where matplotlib is there."""
    if not records:
        return
    try:
        import matplotlib.pyplot as plt

        from . import plots
    except ImportError:
        return
    temperatures = {record["temperature"] for record in records}
    series = "temperature" if len(temperatures) > 1 else "draft"
    drawn = {"tokens against k": plots.tokens_against_k}
    if any(record.get("tested_1") for record in records):
        drawn["acceptance by position"] = plots.acceptance_by_position
    for name, draw in drawn.items():
        some = [r for r in records if r["k"]]
        if not some:
            continue
        try:
            figure = draw(some, series=series)
        except (KeyError, ValueError, ZeroDivisionError):
            continue  # guesses that were trees, or none at all: no such figure
        yield from _pictures({name: figure})
        plt.close(figure)


def _pictures(figures: Mapping[str, Figure]) -> Iterator[tuple[str, bytes]]:
    for name, figure in figures.items():
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=150)
        yield name, picture.getvalue()


class _Store:
    """What is used of MLflow: its client, without the run that is active there."""

    def __init__(self, uri: str | None, *, existing: bool = False) -> None:
        for variable, value in DEFAULTS.items():
            os.environ.setdefault(variable, value)
        try:
            import mlflow
        except ImportError as error:
            raise ImportError(
                f"this needs {error.name}: pip install 'specdec_lib[track]'",
                name=error.name,
            ) from error
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self.uri = _full_uri(uri)
        self.file = _sqlite_file(self.uri)
        if self.file is not None:
            if existing and not self.file.exists():
                raise FileNotFoundError(f"there are no runs in {self.file}")
            if not self.file.parent.is_dir():
                raise FileNotFoundError(f"track: there is no folder {self.file.parent}")
        self._entities = mlflow.entities
        self._client: Any = mlflow.MlflowClient(self.uri)

    def create(self, experiment: str, name: str, parameters: dict[str, Any]) -> str:
        found = self._client.get_experiment_by_name(experiment)
        if found is None:
            place = None
            if self.file is not None:  # by default it is the current folder
                place = (self.file.parent / f"{self.file.stem}-files").as_uri()
            number = self._client.create_experiment(experiment, artifact_location=place)
        else:
            number = found.experiment_id
        id: str = self._client.create_run(number, run_name=name).info.run_id
        texts = {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in parameters.items()
        }
        items = [self._entities.Param(*item) for item in texts.items()]
        for first in range(0, len(items), AT_ONCE):
            self._client.log_batch(id, params=items[first : first + AT_ONCE])
        return id

    def numbers(self, id: str, numbers: Mapping[str, float], *, step: int) -> None:
        now = int(1000 * time.time())
        items = [
            self._entities.Metric(name, float(value), now, step)
            for name, value in numbers.items()
        ]
        for first in range(0, len(items), AT_ONCE):
            self._client.log_batch(id, metrics=items[first : first + AT_ONCE])

    def upload(self, id: str, path: Path) -> None:
        self._client.log_artifact(id, str(path))

    def picture(self, id: str, name: str, content: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.png"
            path.write_bytes(content)
            self._client.log_artifact(id, str(path), "figures")

    def end(self, id: str, status: str) -> None:
        self._client.set_terminated(id, status)

    def download(self, id: str, path: str, folder: str) -> str:
        return str(self._client.download_artifacts(id, path, folder))

    def runs(self, experiment: str) -> list[Any]:
        found = self._client.get_experiment_by_name(experiment)
        if found is None:
            return []
        runs: list[Any] = []
        token = None
        while True:
            page = self._client.search_runs(
                [found.experiment_id],
                order_by=["attributes.start_time ASC"],
                page_token=token,
            )
            runs += page
            token = page.token
            if not token:
                return runs

    def read(self, run: Any) -> Run:
        id = run.info.run_id
        curves = {
            name: sorted(
                (each.step, each.value)
                for each in self._client.get_metric_history(id, name)
            )
            for name in run.data.metrics
            if "/" in name
        }
        pictures = self._client.list_artifacts(id, "figures")
        return Run(
            id=id,
            name=run.info.run_name,
            status=run.info.status,
            started=datetime.fromtimestamp(run.info.start_time / 1000, UTC),
            parameters=dict(run.data.params),
            metrics=dict(run.data.metrics),
            curves=curves,
            figures=sorted(Path(each.path).stem for each in pictures),
            _store=self,
        )


def _full_uri(uri: str | None) -> str:
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or STORE
    if "://" not in uri and uri.endswith(".db"):
        return f"sqlite:///{Path(uri).expanduser().absolute()}"
    return uri


def _sqlite_file(uri: str) -> Path | None:
    start = "sqlite:///"
    return Path(uri.removeprefix(start)).absolute() if uri.startswith(start) else None


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Whatever MLflow and the libraries under it raise is one error, in one line."""
    try:
        yield
    except (ImportError, FileNotFoundError, TrackingError):
        raise
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TrackingError(f"{what} failed: {first}") from error
