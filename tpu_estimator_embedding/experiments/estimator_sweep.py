# SPDX-License-Identifier: Apache-2.0
"""A sweep from Python: every setting in this process, one after the other."""

import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.experiments import table_summaries
from tpu_estimator_embedding.experiments.overrides import CannotOverrideError, Overrides
from tpu_estimator_embedding.experiments.results import Results
from tpu_estimator_embedding.experiments.run_directory import Run
from tpu_estimator_embedding.experiments.setting import settings_of
from tpu_estimator_embedding.experiments.sweep_directory import SweepDirectory


def sweep(make_estimator: Callable[[], Any], settings: Iterable[Any], *,
          train_input_fn: Callable[..., Any], eval_input_fn: Callable[..., Any],
          max_steps: int, evaluations: int = 5, eval_steps: int | None = None,
          out: str | pathlib.Path = "sweep", seeds: int = 1, metric: str | None = None,
          target: float | None = None) -> Results:
    """Trains and evaluates an estimator once for every setting and seed.

    What has ended well is not run again, so that a call that was interrupted, or is repeated
    with more settings or seeds, goes on. A run that fails is a row of the results that says
    why. Beside the results, `out` gets `report.html`, figures, `results.csv`, `results.json`
    and everything that TensorBoard shows.

    Args:
        make_estimator: returns a new TPUEstimator with an embedding_config_spec. The setting,
            the directory of the model and, from the second seed on, the seed override what
            it was made with.
        settings: `Setting`s, or multipliers: numbers, schedules or their text forms.
        train_input_fn: as for `TPUEstimator.train`.
        eval_input_fn: as for `TPUEstimator.evaluate`.
        max_steps: where training ends.
        evaluations: how many times to evaluate, evenly spaced, at `max_steps` last.
        eval_steps: batches of an evaluation; None takes all.
        out: directory of the sweep.
        seeds: runs of each setting.
        metric: what settings are compared by; None takes the loss.
        target: a value of the metric; the steps until it are compared, too.

    Raises:
        ValueError: if an argument has no such value, no setting can be applied to what
            make_estimator returns, the metric does not exist, or `out` holds another sweep.
        KeyboardInterrupt: as it comes; the report is written before.
    """
    checks.check_positive_int("max_steps", max_steps)
    checks.check_positive_int("evaluations", evaluations)
    directory = SweepDirectory(pathlib.Path(out).resolve(), tuple(settings_of(settings)), seeds,
                               metric, target)
    name = f"{make_estimator.__module__}.{make_estimator.__qualname__}"
    directory.keep({"make_estimator": name, "max_steps": max_steps})
    stops = [max(1, max_steps * number // evaluations) for number in range(1, evaluations + 1)]

    def train_and_evaluate(changes: Overrides) -> None:
        estimator = make_estimator()
        changes.check_reached()
        for stop in dict.fromkeys(stops):
            estimator.train(train_input_fn, max_steps=stop)
            estimator.evaluate(eval_input_fn, steps=eval_steps)

    try:
        for run in directory.missing_runs:
            _run(run, train_and_evaluate)
            if run.is_done:
                directory.check_metric(run)
    finally:
        results = directory.write_report([name])
    return results


def _run(run: Run, train_and_evaluate: Callable[[Overrides], None]) -> None:
    run.start_over()
    changes = Overrides(run.setting, run.seed, run.directory)
    try:
        with changes.applied():
            train_and_evaluate(changes)
    except CannotOverrideError as error:
        raise ValueError(str(error)) from error
    except Exception as error:  # a setting under which the model fails is a result, too
        run.end({"error": f"{type(error).__name__}: {error}"})
        return
    run.end({"examples_per_second": changes.timer.examples_per_second,
             "steps_of_this_start": changes.timer.steps,
             "models": [path.name for path in changes.model_dirs],
             "tables": table_summaries.write_all(run.directory, changes.model_dirs)})
