# SPDX-License-Identifier: Apache-2.0
"""The results of a sweep, by run and by setting."""

import dataclasses
import difflib
import functools
import math
import pathlib
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.experiments.event_files import TRAINING_LOSS, Curves, read_scalars
from tpu_estimator_embedding.experiments.run_directory import Run
from tpu_estimator_embedding.experiments.setting import Setting

# A metric with one of these in its name gets better by getting smaller.
_LOWER_IS_BETTER = ("loss", "error", "rmse", "mse", "mae", "perplexity", "entropy")
_TRAINING = "training/"


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The results of one run.

    Attributes:
        run: which one.
        error: why it failed; "interrupted" or "not run" where it has not ended; else None.
        curves: name of a metric -> (step, value) in the order of steps.
        examples_per_second: of training, without the first step of each `train` call.
        tables: key of a table in the checkpoint -> rows, dim, mean_norm, never_trained.
    """

    run: Run
    error: str | None
    curves: Curves
    examples_per_second: float | None
    tables: dict[str, Any]

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, well or not."""
        return self.run.outcome is not None

    def final(self, metric: str) -> float | None:
        """The last value of a metric; None if it was never evaluated."""
        return self.curves[metric][-1][1] if metric in self.curves else None

    @property
    def step(self) -> int | None:
        """The last step with a summary."""
        return max((points[-1][0] for points in self.curves.values()), default=None)

    def steps_to(self, metric: str, target: float) -> int | None:
        """The first step whose evaluation reached a value; None if there is none."""
        reached = _is_reached(metric, target)
        return next((step for step, value in self.curves.get(metric, ()) if reached(value)), None)


@dataclasses.dataclass(frozen=True)
class Summary:
    """The runs of one setting together.

    Attributes:
        setting: what they override.
        values: the final metric of each run that has one.
        steps_to_target: of each run that reached the target.
        examples_per_second: of each run that measured it.
        errors: of each run that has not ended well.
    """

    setting: Setting
    values: list[float]
    steps_to_target: list[int]
    examples_per_second: list[float]
    errors: list[str]


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of a sweep.

    Attributes:
        directory: of the sweep.
        runs: one for every setting and seed.
        metric: the metric that settings are compared by.
        target: a value of it that is to be reached soon, or None.
    """

    directory: pathlib.Path
    runs: tuple[RunResult, ...]
    metric: str
    target: float | None = None

    @property
    def lower_is_better(self) -> bool:
        """Whether the metric gets better by getting smaller, by its name."""
        return is_lower_better(self.metric)

    @functools.cached_property
    def metric_names(self) -> list[str]:
        """Metrics that any run evaluated, else those of training."""
        return metric_names(self.runs)

    def summaries(self) -> list[Summary]:
        """The runs, setting by setting."""
        settings = dict.fromkeys(result.run.setting for result in self.runs)
        return [self._summary(setting) for setting in settings]

    def of(self, setting: Setting) -> list[RunResult]:
        """The runs of a setting."""
        return [result for result in self.runs if result.run.setting == setting]

    def _summary(self, setting: Setting) -> Summary:
        runs = self.of(setting)
        return Summary(
            setting, _present(result.final(self.metric) for result in runs if not result.error),
            [] if self.target is None else _present(
                result.steps_to(self.metric, self.target) for result in runs),
            _present(result.examples_per_second for result in runs),
            [result.error for result in runs if result.error])


def collect(run: Run) -> RunResult:
    """Reads the results in the directory of a run."""
    outcome = run.outcome
    curves: Curves = {}
    for model_dir in sorted(run.directory.glob("model*")):
        prefix = "" if model_dir.name == "model" else f"{model_dir.name}/"
        curves.update({prefix + name: points for name, points in read_scalars(model_dir).items()})
    if outcome is None:
        return RunResult(run, "interrupted" if run.directory.exists() else "not run", curves,
                         None, {})
    return RunResult(run, outcome.get("error"), curves, outcome.get("examples_per_second"),
                     outcome.get("tables", {}))


def metric_names(runs: Iterable[RunResult]) -> list[str]:
    """Returns the metrics that can be compared, without what training wrote if there are others."""
    names = sorted({name for result in runs for name in result.curves})
    evaluated = [name for name in names if not name.startswith(_TRAINING) and
                 not name.endswith("global_step")]
    return evaluated or names


def choose_metric(asked_for: str | None, runs: Sequence[RunResult]) -> str:
    """Returns the metric that was asked for, or the loss.

    Raises:
        ValueError: if no run has a metric of the name, and some have others.
    """
    names = sorted({name for result in runs for name in result.curves})
    if asked_for is None:
        return next((name for name in ("loss", TRAINING_LOSS) if name in names), "loss")
    if names and asked_for not in names:
        nearest = difflib.get_close_matches(asked_for, names, 1, 0.4)
        fix = f"Nearest: {nearest[0]}." if nearest else ""
        raise ValueError(checks.complaint("--metric", f"one of {', '.join(names)}", asked_for, fix))
    return asked_for


def is_lower_better(metric: str) -> bool:
    """Whether a metric gets better by getting smaller, by its name.

    >>> is_lower_better("eval_test/average_loss"), is_lower_better("auc")
    (True, False)
    """
    return any(word in metric.lower() for word in _LOWER_IS_BETTER)


def mean_and_spread(values: Sequence[float]) -> str:
    """Returns the mean and, of several values, the standard deviation of a sample.

    >>> mean_and_spread([0.5]), mean_and_spread([1.0, 2.0]), mean_and_spread([])
    ('0.5', '1.5 ± 0.7071', '-')
    """
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.4g}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4g}{spread}"


def _is_reached(metric: str, target: float) -> Any:
    lower = is_lower_better(metric)
    return lambda value: not math.isnan(value) and (value <= target if lower else value >= target)


def _present(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]
