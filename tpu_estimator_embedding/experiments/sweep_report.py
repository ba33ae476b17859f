# SPDX-License-Identifier: Apache-2.0
"""The page and the figures about a sweep."""

import dataclasses
import pathlib
import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tpu_estimator_embedding import figures
from tpu_estimator_embedding.experiments import conclusions, explorer, html_page, plots, report
from tpu_estimator_embedding.experiments.event_files import TRAINING_LOSS, table_curves
from tpu_estimator_embedding.experiments.report import Section
from tpu_estimator_embedding.experiments.results import Results, RunResult, rounded, summary_rows
from tpu_estimator_embedding.experiments.setting import Setting

_STATISTICS = {"gradient_norm": "Norm of the gradients of each table",
               "update_ratio": "Update of each table relative to its rows"}

Figures = list[plots.Figure]

_SINGLE = "; thin lines are single seeds, and thick ones the means of n seeds"


@dataclasses.dataclass(frozen=True)
class SearchReport:
    """What a report says about the search that chose the settings.

    Attributes:
        numbers: the settings that had a range, with whether it was logarithmic.
        importances: setting -> its share of the metric's variance; empty if that is not known.
        complete: number of trials that ran to their end, of which the shares are.
    """

    numbers: Mapping[str, bool]
    importances: Mapping[str, float]
    complete: int


def write_report(results: Results, subject: Sequence[str], search: SearchReport | None = None,
                 formats: Sequence[str] = figures.FORMATS) -> list[pathlib.Path]:
    """Writes `report.html` and its figures.

    Args:
        results: the results of the sweep.
        subject: the program with its arguments, or the name of the function that was run.
        search: the search that chose the settings, if one did.
        formats: formats of the figures beside the page, some of `figures.FORMATS`.

    Returns:
        The paths of the files, starting with the page.
    """
    return report.write(results.directory, f"Sweep of {_name(subject)}", [
        Section("", [
            html_page.paragraph(conclusions.opening(results)),
            *map(html_page.paragraph, conclusions.warnings_of(results)),
            html_page.table(summary_rows(results)),
            html_page.paragraph(
                "± is the standard deviation of three or more runs with different seeds. The "
                "column runs has their number n. A program's own seed is seed 0. "
                "examples/s excludes the first step of each training session.")]),
        Section("", explorer.section(_explored(results), results.metric, has_seeds=True)),
        Section("Figures", [*_search_figures(results, search), *_figures(results)]),
        Section("What was run", [
            html_page.preformatted(shlex.join(subject)),
            html_page.table(_run_rows(results)),
            html_page.paragraph("TensorBoard shows the curves, the tables and the settings:"),
            html_page.preformatted(
                f"tensorboard --logdir {shlex.quote(str(results.directory))}")])], formats)


def _explored(results: Results) -> list[explorer.ExploredRun]:
    return [explorer.ExploredRun(
        result.run.name, result.run.setting.label,
        {**result.run.setting.texts, "seed": str(result.run.seed)},
        _finals(results, result), result.curves, result.error or "") for result in results.runs]


def _finals(results: Results, result: RunResult) -> dict[str, float]:
    """The last values, of runs that ended: those of a run that was stopped do not compare."""
    finals = {} if result.error else {
        name: value for name in dict.fromkeys([results.metric, *results.metric_names])
        if (value := result.final(name)) is not None}
    rate = result.examples_per_second
    return finals if rate is None else {**finals, "examples/s": float(f"{rate:.3g}")}


def _name(subject: Sequence[str]) -> str:
    """The program's file or module, without its directory or `-m`."""
    return subject[1] if subject[0] == "-m" else pathlib.PurePath(subject[0]).name


def _figures(results: Results) -> Figures:
    """(name, caption, drawing function) of the figures for which there are values."""
    found: Figures = []
    metric = results.metric
    values = {_tick(summary.setting): summary.values for summary in results.summaries()
              if summary.values}
    if sum(map(len, values.values())) > 1:  # one number is in the table
        found.append(("final_metric", f"Final {metric} of every setting.", partial(
            plots.dots, f"Final {metric}", _axis(results), metric, values, baseline="1",
            settings=[_tick(summary.setting) for summary in results.summaries()])))
    for name, curve, is_shown in (
            ("metric_over_steps", metric, lambda points: len(points) > 1),
            ("loss_over_steps", TRAINING_LOSS, lambda points: len(points) > 1 and (
                metric != TRAINING_LOSS))):
        groups = _groups(results, curve, is_shown)
        if groups:
            found.append((name, f"{_capitalized(_words(curve))} over steps"
                          f"{_SINGLE if any(len(one) > 1 for one in groups.values()) else ''}.",
                          _drawing_curves(curve, groups, _labels(results))))
    tables = sorted({key for result in results.runs for key in result.tables})
    norms = _norms(results, tables)
    if len(tables) * len(norms) > 1:
        found.append(("table_norms", "Mean Euclidean norm of each table's rows at the end.",
                      _drawing_bars("Rows of the tables at the end",
                                    "mean Euclidean norm of a row", tables, norms, results)))
    for statistic, label in _STATISTICS.items():
        of_settings, steps = _statistics(results, statistic)
        names = sorted({table for measured in of_settings.values() for table in measured.values})
        if names:
            found.append((f"table_{statistic}", f"{label}, mean over the {len(steps)} steps "
                          f"measured, from {min(steps):,} to {max(steps):,}.",
                          _drawing_bars(label, label, names, of_settings, results)))
    return found


def _search_figures(results: Results, search: SearchReport | None) -> Figures:
    """Importance of every setting, and the metric against each one that has numbers."""
    if search is None:
        return []
    found: Figures = []
    if search.importances:
        names = list(search.importances)
        label = f"share of the variance of {results.metric}"
        title = f"Importance of the settings (n = {search.complete} trials)"
        found.append(("importance", f"Importance of the settings: {label}, estimated by PED-ANOVA "
                      f"from n = {search.complete} trials.", partial(
                          plots.bars, title, "setting", label, names,
                          {"": [search.importances[name] for name in names]})))
    for name, is_log in search.numbers.items():
        points = [(float(result.run.setting.texts[name]), value) for result in results.runs
                  if not result.error and name in result.run.setting.texts
                  and (value := result.final(results.metric)) is not None]
        if points:
            found.append((f"{results.metric}_by_{name}".replace("/", "_").replace(":", "_"),
                          f"Final {results.metric} of every trial that ran to its end, by {name}; "
                          f"n = {len(points)}.", _drawing_points(results.metric, name, points,
                                                                 is_log)))
    return found


def _drawing_points(metric: str, name: str, points: Sequence[tuple[float, float]], is_log: bool
                    ) -> Callable[..., plots.Drawing]:
    return partial(plots.points, f"Final {metric} by {name} (n = {len(points)})", name, metric,
                   points, is_log)


@dataclasses.dataclass(frozen=True)
class _Measured:
    """Table -> mean of what was measured of it in the n runs of a setting."""

    values: Mapping[str, float]
    count: int


def _statistics(results: Results, statistic: str) -> tuple[dict[str, _Measured], set[int]]:
    """Setting -> means of a statistic over all measured steps and seeds; and those steps."""
    found: dict[str, _Measured] = {}
    steps: set[int] = set()
    for setting in dict.fromkeys(result.run.setting for result in results.runs):
        runs = [curves for result in results.of(setting)
                if (curves := table_curves(result.curves).get(statistic))]
        tables: dict[str, list[float]] = {}
        for table, points in (item for curves in runs for item in curves.items()):
            tables.setdefault(table, []).extend(value for _, value in points)
            steps.update(step for step, _ in points)
        if tables:
            found[setting.label] = _Measured({
                table: statistics.fmean(values) for table, values in tables.items()}, len(runs))
    return found, steps


def _drawing_bars(title: str, label: str, tables: Sequence[str],
                  groups: Mapping[str, _Measured], results: Results
                  ) -> Callable[..., plots.Drawing]:
    bars = {setting: [measured.values.get(table, 0.0) for table in tables]
            for setting, measured in groups.items()}
    counts = {setting: measured.count for setting, measured in groups.items()}
    return partial(plots.bars, title, "table", label, plots.short_names(tables), bars,
                   counts=counts, settings=_labels(results))


def _drawing_curves(curve: str, groups: plots.Groups, settings: Sequence[str]
                    ) -> Callable[..., plots.Drawing]:
    return partial(plots.curves, f"{_capitalized(_words(curve))} over steps", "global step",
                   _words(curve), groups, settings)


def _labels(results: Results) -> list[str]:
    """All settings, by whose order each has its colour in every figure."""
    return list(dict.fromkeys(result.run.setting.label for result in results.runs))


def _groups(results: Results, curve: str, is_shown: Callable[[Sequence[object]], bool]
            ) -> dict[str, list[list[tuple[float, float]]]]:
    groups = {setting.label: [plots.smoothed(result.curves[curve]) for result in results.of(setting)
                              if is_shown(result.curves.get(curve, []))]
              for setting in dict.fromkeys(result.run.setting for result in results.runs)}
    return {label: members for label, members in groups.items() if members}


def _norms(results: Results, tables: Sequence[str]) -> dict[str, _Measured]:
    groups = {}
    for summary in results.summaries():
        measured = [result.tables for result in results.of(summary.setting) if result.tables]
        if measured:
            groups[summary.setting.label] = _Measured({
                key: sum(item.get(key, {}).get("mean_norm", 0.0) for item in measured)
                / len(measured) for key in tables}, len(measured))
    return groups


def _run_rows(results: Results) -> list[list[str]]:
    rows = [["setting", "seed", "step", results.metric, "examples/s", "directory"]]
    for result in results.runs:
        value, rate = result.final(results.metric), result.examples_per_second
        rows.append([
            result.run.setting.label, str(result.run.seed),
            "-" if result.step is None else str(result.step),
            result.error or ("-" if value is None else f"{value:.4g}"),
            "-" if rate is None else rounded(rate),
            str(result.run.directory.relative_to(results.directory))])
    return rows


def _tick(setting: Setting) -> str:
    texts = setting.texts
    return next(iter(texts.values())) if len(texts) == 1 else setting.label


def _axis(results: Results) -> str:
    names = {tuple(result.run.setting.texts) for result in results.runs}
    if len(names) == 1 and len(next(iter(names))) == 1:
        [[name]] = names
        return {"multiplier": "gradient multiplier", "learning_rate": "learning rate of the tables",
                "clipping_limit": "clipping limit"}.get(
                    name, f"gradient multiplier of {name.removeprefix('table:')}")
    return "setting"


def _capitalized(words: str) -> str:
    return words[:1].upper() + words[1:]


def _words(curve: str) -> str:
    return "training loss" if curve == TRAINING_LOSS else curve
