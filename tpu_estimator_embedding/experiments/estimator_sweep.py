# SPDX-License-Identifier: Apache-2.0
"""A sweep from Python, which runs every setting in this process, one after the other."""

import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.experiments import directory_lock, run_records, table_summaries
from tpu_estimator_embedding.experiments.looks import check_formats
from tpu_estimator_embedding.experiments.overrides import CannotOverrideError, Overrides
from tpu_estimator_embedding.experiments.results import Results
from tpu_estimator_embedding.experiments.run_directory import Run
from tpu_estimator_embedding.experiments.setting import Setting, settings_of
from tpu_estimator_embedding.experiments.sweep_directory import SweepDirectory
from tpu_estimator_embedding.figures import FORMATS
from tpu_estimator_embedding.multipliers.schedule import Schedule
from tpu_estimator_embedding.types import Structure

if TYPE_CHECKING:
    from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator


def sweep(make_estimator: "Callable[[], TPUEstimator]",
          settings: Iterable[Setting | Schedule | float | str], *,
          train_input_fn: Callable[..., Structure], eval_input_fn: Callable[..., Structure],
          max_steps: int, evaluations: int = 5, eval_steps: int | None = None,
          out: str | pathlib.Path = "sweep", seeds: int = 1, metric: str | None = None,
          target: float | None = None, figures: Sequence[str] = FORMATS,
          log: Sequence[str] = ()) -> Results:
    """Trains and evaluates an estimator once for every setting and seed.

    Successful runs are not repeated, so calling it again continues an interrupted sweep, or adds
    settings or seeds; the report has those of the last call. A failed run is a row of the results
    with the error. `out` also gets `report.html`, figures, `results.csv`, `results.json` and event
    files for TensorBoard.

        results = sweep(make_estimator, [0, 0.1, 1, "warmup:1000"], train_input_fn=train_input_fn,
                        eval_input_fn=eval_input_fn, max_steps=5000, seeds=3, metric="auc",
                        figures=["pdf"], log=["mlflow"])

    Args:
        make_estimator: returns a new TPUEstimator with an embedding_config_spec. The sweep
            overrides its setting, its model directory and, from the second seed on, its seed.
        settings: `Setting`s, or multipliers: numbers, schedules or their text formats.
        train_input_fn: input function of `TPUEstimator.train`.
        eval_input_fn: input function of `TPUEstimator.evaluate`.
        max_steps: global step at which training ends.
        evaluations: number of evaluations, evenly spaced, the last one at `max_steps`.
        eval_steps: batches per evaluation; None means all.
        out: directory of the sweep.
        seeds: number of runs of each setting.
        metric: metric by which settings are compared; None means the loss.
        target: a value of the metric; the report also compares the steps until it is reached.
        figures: formats of the figures for papers beside the page: some of `png`, `svg` and
            `pdf`; none for the page only.
        log: trackers that also get the runs and the report: `mlflow`.

    Raises:
        TypeError: if an argument has another type.
        ValueError: if an argument is invalid, no setting can be applied to the estimator, the
            metric does not exist, `out` contains another sweep or is that of one that runs, or a
            tracker is not installed.
        RuntimeError: if a tracker does not take the runs; the report was written. Another call
            tries again.
        KeyboardInterrupt: after the report was written.
    """
    for argument, function in (("make_estimator", make_estimator),
                               ("train_input_fn", train_input_fn),
                               ("eval_input_fn", eval_input_fn)):
        checks.check(callable(function), argument, "a function", function)
    checks.check_type((str, os.PathLike), "out", "a path", out)
    checks.check_can_hold_checkpoints("out", pathlib.Path(out).resolve())
    checks.check_positive_int("max_steps", max_steps)
    checks.check_positive_int("evaluations", evaluations)
    check_formats(figures)
    run_records.check_trackers(log, "log")
    directory = SweepDirectory(pathlib.Path(out).resolve(), tuple(settings_of(settings)), seeds,
                               metric, target, argument="`out`")
    made_by = getattr(make_estimator, "func", make_estimator)  # of a functools.partial
    name = f"{made_by.__module__}.{getattr(made_by, '__qualname__', type(made_by).__qualname__)}"
    stops = [max(1, max_steps * number // evaluations) for number in range(1, evaluations + 1)]

    def train_and_evaluate(changes: Overrides) -> None:
        estimator = make_estimator()
        changes.check_reached()
        for stop in dict.fromkeys(stops):
            estimator.train(train_input_fn, max_steps=stop)
            estimator.evaluate(eval_input_fn, steps=eval_steps)

    with directory_lock.held(directory.path, directory.argument):
        directory.keep({"make_estimator": name, "max_steps": max_steps})
        directory.check_metric(*directory.runs)
        try:
            for run in directory.missing_runs:
                _run(run, train_and_evaluate)
                directory.check_metric(run)
        finally:
            results = directory.results()
            paths = directory.write_report(results, [name], formats=figures)
            for tracker in dict.fromkeys(log):
                run_records.write(tracker, results, paths)
    return results


def _run(run: Run, train_and_evaluate: Callable[[Overrides], None]) -> None:
    run.start_over()
    changes = Overrides(run.setting, run.seed, run.directory)
    try:
        with changes.applied():
            train_and_evaluate(changes)
    except CannotOverrideError as error:
        raise ValueError(str(error)) from error
    except Exception as error:  # a failure of the model is a result too
        run.end({"error": f"{type(error).__name__}: {error}"})
        return
    run.end({"examples_per_second": changes.timer.examples_per_second,
             "steps_of_this_start": changes.timer.steps,
             "models": [path.name for path in changes.model_dirs],
             "tables": table_summaries.write_all(run.directory, changes.model_dirs)})
