# SPDX-License-Identifier: Apache-2.0
"""The directory of a sweep: its runs and its report."""

import dataclasses
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tpu_estimator_embedding import checks, figures
from tpu_estimator_embedding.experiments import hparams, sweep_report
from tpu_estimator_embedding.experiments.files import read_json, write_json
from tpu_estimator_embedding.experiments.results import (
    Results,
    choose_metric,
    collect,
    is_of_training,
    write_tables,
)
from tpu_estimator_embedding.experiments.run_directory import Run
from tpu_estimator_embedding.experiments.setting import Setting
from tpu_estimator_embedding.optimizers.setting_checks import check_number

RECORD = "sweep.json"  # what a directory has a sweep of


@dataclasses.dataclass(frozen=True)
class SweepDirectory:
    """Every setting with every seed, in one directory.

    Attributes:
        path: path of the directory.
        settings: the settings to compare.
        seeds: number of runs of each setting.
        metric: metric by which settings are compared; None means the loss.
        target: a value of the metric, for comparing the steps until it is reached, or None.
        argument: the name under which `path` was given, for messages.
    """

    path: pathlib.Path
    settings: tuple[Setting, ...]
    seeds: int = 1
    metric: str | None = None
    target: float | None = None
    argument: str = "--out"

    def __post_init__(self) -> None:
        checks.check_positive_int("seeds", self.seeds)
        checks.check(bool(self.settings), "settings", "at least one", list(self.settings))
        if self.target is not None:
            check_number("target", self.target)

    @property
    def runs(self) -> list[Run]:
        """All runs, by seed and then setting: each setting runs once before any runs again."""
        return [Run(self.path, setting, seed) for seed in range(self.seeds)
                for setting in self.settings]

    @property
    def missing_runs(self) -> list[Run]:
        """The runs that are not complete, including failed ones."""
        return [run for run in self.runs if not run.is_done]

    def keep(self, what: Mapping[str, object]) -> None:
        """Records the sweep in a new directory, or compares it with the recorded one.

        Raises:
            ValueError: if the directory contains a sweep of something else.
        """
        path = self.path / RECORD
        noted = read_json(path)
        if noted is None:
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(path, what)
            return
        if any(noted.get(name) != value for name, value in what.items()):
            raise ValueError(f"{self.path} has a sweep of {_subject(noted)}, and this one is of "
                             f"{_subject(what)}. Choose another {self.argument}.")

    def check_metric(self, *runs: Run) -> None:
        """Raises ValueError if a run that has ended lacks the metric.

        Failed runs without evaluations are skipped, and runs that have not ended.
        """
        for run in runs:
            result = collect(run)
            if self.metric is None or run.outcome is None:
                continue
            if not run.is_done and all(map(is_of_training, result.curves)):
                continue
            if not result.curves:
                raise ValueError(f"`--metric` is {self.metric!r}, but {run.name} wrote no metrics "
                                 f"to {run.directory}: it neither evaluated nor logged the loss.")
            try:
                choose_metric(self.metric, [result])
            except ValueError as error:
                raise ValueError(f"{error} Finished runs are kept: run the same command again with "
                                 "that metric.") from None

    def results(self) -> Results:
        """Returns the results so far."""
        by_setting = sorted(self.runs, key=lambda run: self.settings.index(run.setting))
        runs = tuple(collect(run) for run in by_setting)
        return Results(self.path, runs, choose_metric(self.metric, runs), self.target)

    def write_report(self, results: Results, subject: Sequence[str],
                     search: sweep_report.SearchReport | None = None,
                     formats: Sequence[str] = figures.FORMATS) -> list[pathlib.Path]:
        """Writes tables, figures, summaries and the page; returns the page and the figures."""
        write_tables(results)
        hparams.write_hparams(results)
        return sweep_report.write_report(results, subject, search, formats)


def runs_before(directory: pathlib.Path, seconds: float) -> list[str]:
    """Returns the directories of runs that had ended successfully before a time of the epoch."""
    return sorted(path.parent.name for path in directory.glob("runs/*/outcome.json")
                  if path.stat().st_mtime < seconds and "error" not in (read_json(path) or {}))


def other_runs(results: Results) -> list[pathlib.Path]:
    """Returns the directories of a sweep's runs that are not among the results."""
    own = {result.run.directory for result in results.runs}
    return [path for path in sorted((results.directory / "runs").glob("*,seed=*"))
            if path not in own]


def _subject(record: Mapping[str, Any]) -> str:
    """Returns what a recorded sweep is of, in the words of its command or call."""
    if "program" not in record:
        return f"{record.get('make_estimator')} up to step {record.get('max_steps')}"
    words = shlex.join(record["program"])
    search = record.get("search") or {}
    return words + (f", searched for {search['metric']} in " + ", ".join(
        f"{name} {text}" for name, text in search.items() if name != "metric") if search else "")
