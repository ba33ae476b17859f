# SPDX-License-Identifier: Apache-2.0
"""Writes a sweep to MLflow: an experiment with a run for every run, below one with the report."""

import logging
import os
import pathlib
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.experiments.run_records import RunRecord, TrackerError

if TYPE_CHECKING:
    from mlflow import MlflowClient, entities

_IDENTITY, _NAME = "sweep.identity", "sweep.run"
_REPORT = "report"  # the run with the report, whose children are the others
_MOST_AT_ONCE = 1000  # metrics that MLflow takes in one call
_NO_KEY = re.compile(r"[^\w\-. /:]")  # what MLflow does not take in a name


def write(directory: pathlib.Path, runs: Sequence[RunRecord], files: Sequence[pathlib.Path]) -> str:
    """Writes runs and the report; returns the command that shows them.

    The store is that of MLFLOW_TRACKING_URI or, without it, `mlflow.db` in the directory.

    Args:
        directory: directory of the sweep, after which the experiment is named.
        runs: the runs. One that is there as it is is kept; one that has changed is replaced.
        files: the report and its figures.

    Raises:
        TrackerError: if MLflow does not take them.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # off by default
    import mlflow
    logging.getLogger("alembic").setLevel(logging.WARNING)  # 50 lines about a new store's tables

    given = settings.MLFLOW_TRACKING_URI.read()
    address = given or f"sqlite:///{directory / 'mlflow.db'}"
    try:
        client = mlflow.MlflowClient(tracking_uri=address)
        experiment = _experiment(client, directory, is_local=given is None)
        known = _known(client, experiment)
        parent = known.get(_REPORT) or client.create_run(
            experiment, tags={_NAME: _REPORT}, run_name=_REPORT)
        for run in runs:
            _write_run(client, experiment, parent.info.run_id, run, known.get(run.name))
        for path in files:
            client.log_artifact(parent.info.run_id, str(path))
        client.set_terminated(parent.info.run_id)
    except mlflow.exceptions.MlflowException as error:
        raise TrackerError(f"MLflow at {address}: {error}") from error
    return f"mlflow ui --backend-store-uri {shlex.quote(address)}"


def _experiment(client: "MlflowClient", directory: pathlib.Path, is_local: bool) -> str:
    """Returns the id of the experiment, which is made unless it is there."""
    found = client.get_experiment_by_name(str(directory))
    if found is not None:
        return str(found.experiment_id)
    location = (directory / "mlflow").as_uri() if is_local else None  # else the server's choice
    return str(client.create_experiment(str(directory), artifact_location=location))


def _known(client: "MlflowClient", experiment: str) -> "dict[str, entities.Run]":
    """Returns name -> run of the runs that are there."""
    known: dict[str, entities.Run] = {}
    token = None
    while True:
        page = client.search_runs([experiment], page_token=token)
        known.update((run.data.tags.get(_NAME, ""), run) for run in page)
        token = page.token
        if not token:
            return known


def _write_run(client: "MlflowClient", experiment: str, parent: str, run: RunRecord,
               known: "entities.Run | None") -> None:
    from mlflow.entities import Param, RunTag
    if known is not None:
        if known.data.tags.get(_IDENTITY) == run.identity and known.info.status != "RUNNING":
            return
        client.delete_run(known.info.run_id)
    created = client.create_run(
        experiment, start_time=int(1000 * run.start), run_name=run.name,
        tags={"mlflow.parentRunId": parent, _NAME: run.name, _IDENTITY: run.identity})
    client.log_batch(
        created.info.run_id,
        params=[Param(_key(name), text) for name, text in run.settings.items()],
        tags=[RunTag("error", run.error)] if run.error else [])
    metrics = list(_metrics(run))
    for start in range(0, len(metrics), _MOST_AT_ONCE):
        client.log_batch(created.info.run_id, metrics[start:start + _MOST_AT_ONCE])
    status = "FAILED" if run.has_failed else "KILLED" if run.error else "FINISHED"
    client.set_terminated(created.info.run_id, status, end_time=int(1000 * run.end))


def _metrics(run: RunRecord) -> "Iterator[entities.Metric]":
    from mlflow.entities import Metric
    for name, points in run.curves.items():
        for step, value in points:
            yield Metric(_key(name), value, int(1000 * run.end), step)


def _key(name: str) -> str:
    return _NO_KEY.sub("_", name)
