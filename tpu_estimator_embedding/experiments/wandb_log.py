# SPDX-License-Identifier: Apache-2.0
"""Writes a sweep as runs of Weights & Biases: on this machine, unless WANDB_MODE says else."""

import os
import pathlib
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tpu_estimator_embedding.experiments.run_records import RunRecord, TrackerError

if TYPE_CHECKING:
    import wandb

_PROJECT = "sweeps"  # without WANDB_PROJECT
_REPORT = "report"


def write(directory: pathlib.Path, runs: Sequence[RunRecord], files: Sequence[pathlib.Path]) -> str:
    """Writes runs, and a run with the report; returns the command that sends them.

    Args:
        directory: directory of the sweep; its subdirectory `wandb` gets the files.
        runs: the runs. One that is there as it is is kept.
        files: the report and its figures.

    Raises:
        TrackerError: if Weights & Biases does not take them.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would tell its makers
    import wandb

    known = {path.name.rpartition("-")[2] for path in (directory / "wandb").glob("*run-*-*")}
    missing = [run for run in runs if run.identity not in known]
    try:
        for run in missing:
            with _new_run(directory, run.name, run.identity, run.settings) as written:
                for step, values in sorted(_by_step(run).items()):
                    written.log(values, step=step)
                written.summary["error"] = run.error
                written.finish(exit_code=int(run.has_failed))
        if missing:
            with _new_run(directory, _REPORT, None, {}) as written:
                for path in files:
                    written.save(str(path), base_path=str(directory), policy="now")
            wandb.teardown()  # until then its process may not have written all
    except wandb.Error as error:
        raise TrackerError(f"Weights & Biases: {error}") from error
    return f"wandb sync {shlex.quote(str(directory / 'wandb'))}/offline-run-*"


def _new_run(directory: pathlib.Path, name: str, identity: str | None, settings: dict[str, str]
             ) -> "wandb.Run":
    import wandb
    mode: Any = os.environ.get("WANDB_MODE", "offline")  # wandb checks it
    return wandb.init(
        project=os.environ.get("WANDB_PROJECT", _PROJECT), group=directory.name, name=name,
        id=identity, config=settings, dir=str(directory),
        job_type=_REPORT if identity is None else "run",
        mode=mode,
        settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, save_code=False,
                                disable_git=True))


def _by_step(run: RunRecord) -> dict[int, dict[str, float]]:
    """Returns step -> metric -> value: a step is written once, with all of its values."""
    found: dict[int, dict[str, float]] = {}
    for name, points in run.curves.items():
        for step, value in points:
            found.setdefault(step, {})[name] = value
    return found
