# SPDX-License-Identifier: Apache-2.0
"""The results of a sweep, by run and by setting, and the tables and files made of them."""

import csv
import dataclasses
import difflib
import functools
import io
import math
import pathlib
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.experiments.event_files import TRAINING_LOSS, Curves, read_scalars
from tpu_estimator_embedding.experiments.files import write_text
from tpu_estimator_embedding.experiments.plots import FEWEST_OF_SPREAD
from tpu_estimator_embedding.experiments.run_directory import Run
from tpu_estimator_embedding.experiments.setting import Setting
from tpu_estimator_embedding.json_text import json_text

if TYPE_CHECKING:
    from tpu_estimator_embedding.experiments.table_summaries import TableFacts

# Lower is better for a metric with one of these in its name.
_LOWER_IS_BETTER = ("loss", "error", "rmse", "mse", "mae", "perplexity", "entropy")
_TRAINING = "training/"
_MOST_DECIMALS = 6
Rows = list[list[str]]

_SETTING_FIELDS = ("multiplier", "learning_rate", "clipping_limit")

Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The results of one run.

    Attributes:
        run: the run.
        error: why it failed; "interrupted" or "not run" if it has not ended; "pruned at step N"
            if a search stopped it; otherwise None.
        curves: name of a metric -> (step, value) pairs in the order of steps.
        examples_per_second: speed of training, without the first step of each `train` call.
        tables: key of a table in the checkpoint -> rows, dim, mean_norm, never_trained.
    """

    run: Run
    error: str | None
    curves: Curves
    examples_per_second: float | None
    tables: "dict[str, TableFacts]"

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, successfully or not."""
        return self.run.outcome is not None

    @property
    def is_pruned(self) -> bool:
        """Whether a search stopped the run as hopeless."""
        return "pruned" in (self.run.outcome or {})

    @property
    def has_failed(self) -> bool:
        """Whether the run was to reach its end and did not."""
        return bool(self.error) and not self.is_pruned

    def final(self, metric: str) -> float | None:
        """The last value of a metric; None if it was never evaluated."""
        return self.curves[metric][-1][1] if metric in self.curves else None

    @property
    def step(self) -> int | None:
        """The last step with a summary."""
        return max((points[-1][0] for points in self.curves.values()), default=None)

    def steps_to(self, metric: str, target: float) -> int | None:
        """The first step whose evaluation reached a value; None if no evaluation did."""
        reached = _is_reached(metric, target)
        return next((step for step, value in self.curves.get(metric, ()) if reached(value)), None)


@dataclasses.dataclass(frozen=True)
class Summary:
    """The results of all runs of one setting.

    Attributes:
        setting: the setting.
        values: the final metric of each run that has one.
        steps_to_target: the number of steps of each run that reached the target.
        examples_per_second: the speed of each run that measured it.
        errors: the error of each run that did not succeed.
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
        directory: directory of the sweep.
        runs: the runs, one per setting and seed.
        metric: the metric by which settings are compared.
        target: a value of the metric, for comparing the steps until it is reached, or None.
    """

    directory: pathlib.Path
    runs: tuple[RunResult, ...]
    metric: str
    target: float | None = None

    @property
    def lower_is_better(self) -> bool:
        """Whether lower values of the metric are better, according to its name."""
        return is_lower_better(self.metric)

    @functools.cached_property
    def metric_names(self) -> list[str]:
        """Metrics that any run evaluated; without evaluations, those of training."""
        return metric_names(self.runs)

    def summaries(self) -> list[Summary]:
        """The summaries, one per setting."""
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
        curves.update({prefix + name: points for name, points in read_scalars(
            model_dir, run.empty_evaluations).items()})
    if outcome is None:
        return RunResult(run, "interrupted" if run.directory.exists() else "not run", curves,
                         None, {})
    error = f"pruned at step {outcome['pruned']:,}" if "pruned" in outcome else outcome.get("error")
    return RunResult(run, error, curves, outcome.get("examples_per_second"),
                     outcome.get("tables", {}))


def metric_names(runs: Iterable[RunResult]) -> list[str]:
    """Returns the metrics that can be compared: those of evaluations or, without any, training."""
    names = sorted({name for result in runs for name in result.curves})
    evaluated = [name for name in names if not is_of_training(name)
                 and not name.endswith("global_step")]
    return evaluated or names


def is_of_training(name: str) -> bool:
    """Whether a metric is a summary of training, not of an evaluation."""
    return name.startswith(_TRAINING)


def choose_metric(asked_for: str | None, runs: Sequence[RunResult]) -> str:
    """Returns the requested metric, or the loss.

    Raises:
        ValueError: if no run has the requested metric, and a run has ended with others.
    """
    names = sorted({name for result in runs for name in result.curves})
    if asked_for is None:
        return next((name for name in ("loss", TRAINING_LOSS) if name in names), "loss")
    if names and asked_for not in names and any(result.has_ended for result in runs):
        nearest = difflib.get_close_matches(asked_for, names, 1, 0.4)
        main = [*metric_names(runs), TRAINING_LOSS]
        shown = [name for name in names if name in main]
        others = len(names) - len(shown)
        more = f" or {others} more under {_TRAINING!r}" if others else ""
        raise ValueError(checks.complaint(
            "--metric", f"one of {', '.join(shown)}{more}", asked_for,
            f"Nearest: {nearest[0]}." if nearest else ""))
    return asked_for


def is_lower_better(metric: str) -> bool:
    """Whether lower values of a metric are better, according to its name.

    >>> is_lower_better("eval_test/average_loss"), is_lower_better("auc")
    (True, False)
    """
    return any(word in metric.lower() for word in _LOWER_IS_BETTER)


def mean_and_spread(values: Sequence[float]) -> str:
    """Formats the mean and, for three or more values, the sample standard deviation.

    The deviation has two significant digits, and the mean as many decimals.

    >>> mean_and_spread([0.5]), mean_and_spread([1.0, 2.0]), mean_and_spread([1.0, 2.0, 3.0])
    ('0.5', '1.5', '2.0 ± 1.0')
    >>> mean_and_spread([]), mean_and_spread([1.0, 2.0, math.nan])
    ('-', 'nan')
    """
    if not values:
        return "-"
    mean, spread = statistics.fmean(values), spread_of(values)
    if spread is None:
        return f"{mean:.4g}"
    decimals = 1 - math.floor(math.log10(spread)) if 0 < spread < math.inf else -1
    if not 0 <= decimals <= _MOST_DECIMALS:
        return f"{mean:.4g} ± {spread:.2g}"
    return f"{mean:.{decimals}f} ± {spread:.{decimals}f}"


def spread_of(values: Sequence[float]) -> float | None:
    """Returns the sample standard deviation; None of too few values, or of one without end."""
    is_known = len(values) >= FEWEST_OF_SPREAD and all(map(math.isfinite, values))
    return statistics.stdev(values) if is_known else None


def _is_reached(metric: str, target: float) -> Callable[[float], bool]:
    lower = is_lower_better(metric)
    return lambda value: not math.isnan(value) and (value <= target if lower else value >= target)


def _present(values: Iterable[Value | None]) -> list[Value]:
    return [value for value in values if value is not None]


def summary_rows(results: Results) -> Rows:
    """Returns a headline and a row for every setting; `runs` is the number of seeds."""
    headline = ["setting", results.metric]
    if results.target is not None:
        sign = "≤" if results.lower_is_better else "≥"
        headline.append(f"steps to {sign} {results.target:g}")
    rows = [[*headline, "examples/s", "runs"]]
    for summary in results.summaries():
        row = [summary.setting.label, mean_and_spread(summary.values)]
        if results.target is not None:
            steps = summary.steps_to_target
            row.append(f"{statistics.fmean(steps):,.0f}" if steps else "-")
        rates = summary.examples_per_second
        row.append(rounded(statistics.fmean(rates)) if rates else "-")
        rows.append([*row, _count(len(results.of(summary.setting)), summary.errors)])
    return rows


def rounded(number: float) -> str:
    """Formats a speed: repetitions differ in the third digit already.

    >>> rounded(116538.4), rounded(7.258)
    ('117,000', '7')
    """
    return f"{float(f'{number:.3g}'):,.0f}"


def format_rows(rows: Rows) -> str:
    """Returns rows as columns of fixed width."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(
        cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows)


def write_tables(results: Results) -> None:
    """Writes `results.csv` and `results.json`, a row and an object for each run."""
    records = [_record(results, result) for result in results.runs]
    write_text(results.directory / "results.csv", _csv(records))
    write_text(results.directory / "results.json", json_text({
        "metric": results.metric, "target": results.target,
        "settings": [{
            "setting": summary.setting.texts, "values": summary.values,
            "mean": statistics.fmean(summary.values) if summary.values else None,
            "spread": spread_of(summary.values),
            "steps_to_target": summary.steps_to_target,
            "examples_per_second": summary.examples_per_second, "errors": summary.errors}
            for summary in results.summaries()],
        "runs": [{**record, "curves": result.curves, "tables": result.tables}
                 for record, result in zip(records, results.runs, strict=True)]}) + "\n")


def _record(results: Results, result: RunResult) -> dict[str, object]:
    record: dict[str, object] = dict.fromkeys((*_SETTING_FIELDS, *(
        name for each in results.runs for name in each.run.setting.texts)), "")
    record |= {**result.run.setting.texts, "seed": result.run.seed,
               "error": result.error or "", "step": result.step,
               "examples_per_second": result.examples_per_second}
    if results.target is not None:
        record["steps_to_target"] = result.steps_to(results.metric, results.target)
    record |= {name: result.final(name) for name in results.metric_names}
    return {**record, "directory": str(result.run.directory.relative_to(results.directory))}


def _csv(records: Sequence[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows([{name: f"{value:.7g}" if isinstance(value, float) else value
                       for name, value in record.items()} for record in records])
    return text.getvalue()


def _count(runs: int, errors: list[str]) -> str:
    if not errors:
        return str(runs)
    return f"{runs - len(errors)} of {runs}; {'; '.join(dict.fromkeys(errors))}"
