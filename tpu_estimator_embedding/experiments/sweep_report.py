# SPDX-License-Identifier: Apache-2.0
"""The page and the figures about a sweep."""

import pathlib
import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence

from tpu_estimator_embedding import figures
from tpu_estimator_embedding.experiments import html_page, plots
from tpu_estimator_embedding.experiments.event_files import TRAINING_LOSS, table_curves
from tpu_estimator_embedding.experiments.files import write_text
from tpu_estimator_embedding.experiments.results import Results, rounded, summary_rows
from tpu_estimator_embedding.experiments.setting import Setting

_STATISTICS = {"gradient_norm": "Norm of the gradients of each table",
               "update_ratio": "Update of each table relative to its rows"}

_SINGLE = "; thin lines are single seeds, and thick ones the means of n seeds"


def write_report(results: Results, subject: Sequence[str]) -> None:
    """Writes `report.html` and its figures.

    Args:
        results: the results of the sweep.
        subject: the program with its arguments, or the name of the function that was run.
    """
    parts = [html_page.paragraph(_opening(results)),
             html_page.table(summary_rows(results)),
             html_page.paragraph(
                 "± is the standard deviation of n runs with different seeds, of which the column "
                 "runs has the number. A program's own seed is seed 0. "
                 "examples/s excludes the first step of each training session.")]
    if figures.can_draw():
        for name, caption, draw in _figures(results):
            drawing = draw()
            plots.write(results.directory, name, drawing)
            parts.append(html_page.figure(drawing["png"], caption))
    else:
        parts.append(html_page.paragraph(
            f"Figures need matplotlib: {figures.HOW_TO_GET}, and the same command again."))
    parts += [html_page.heading("What was run"), html_page.preformatted(shlex.join(subject)),
              html_page.table(_run_rows(results)),
              html_page.paragraph("TensorBoard shows the curves, the tables and the settings:"),
              html_page.preformatted(f"tensorboard --logdir {shlex.quote(str(results.directory))}")]
    write_text(results.directory / "report.html",
               html_page.page(f"Sweep of {_name(subject)}", parts))


def _name(subject: Sequence[str]) -> str:
    """The program's file or module, without its directory or `-m`."""
    return subject[1] if subject[0] == "-m" else pathlib.PurePath(subject[0]).name


def _opening(results: Results) -> str:
    ended = [result for result in results.runs if not result.error]
    text = f"{len(ended)} of {len(results.runs)} runs were successful."
    summaries = [summary for summary in results.summaries() if summary.values]
    if not summaries:
        return text
    choose = min if results.lower_is_better else max
    best = choose(summaries, key=lambda summary: sum(summary.values) / len(summary.values))
    extreme = "lowest" if results.lower_is_better else "highest"
    return f"{text} The {extreme} mean {results.metric} is that of {best.setting.label}."


def _figures(results: Results) -> list[tuple[str, str, Callable[[], plots.Drawing]]]:
    """(name, caption, drawing function) of the figures for which there are values."""
    found: list[tuple[str, str, Callable[[], plots.Drawing]]] = []
    metric = results.metric
    values = {_tick(summary.setting): summary.values for summary in results.summaries()
              if summary.values}
    if values:
        found.append(("final_metric", f"Final {metric} of every setting.", lambda: plots.dots(
            f"Final {metric}", _axis(results), metric, values, baseline="1")))
    for name, curve, is_shown in (
            ("metric_over_steps", metric, lambda points: len(points) > 1),
            ("loss_over_steps", TRAINING_LOSS, lambda points: len(points) > 1 and (
                metric != TRAINING_LOSS))):
        groups = _groups(results, curve, is_shown)
        if groups:
            found.append((name, f"{_capitalized(_words(curve))} over steps"
                          f"{_SINGLE if any(map(_are_several, groups.values())) else ''}.",
                          _drawing_curves(curve, groups)))
    tables = sorted({key for result in results.runs for key in result.tables})
    if tables:
        found.append(("table_norms", "Mean Euclidean norm of each table's rows at the end.",
                      lambda: plots.bars("Rows of the tables at the end", "table",
                                         "mean Euclidean norm of a row", plots.short_names(tables),
                                         _norms(results, tables))))
    for statistic, label in _STATISTICS.items():
        of_settings = _statistics(results, statistic)
        names = sorted({table for values in of_settings.values() for table in values})
        if names:
            found.append((f"table_{statistic}", f"{label}, mean over training.",
                          _drawing_bars(label, names, of_settings)))
    return found


def _statistics(results: Results, statistic: str) -> dict[str, dict[str, float]]:
    """Setting -> table -> mean of a statistic over all measured steps and seeds."""
    groups: dict[str, dict[str, list[float]]] = {}
    for setting in dict.fromkeys(result.run.setting for result in results.runs):
        found = [curves for result in results.of(setting)
                 if (curves := table_curves(result.curves).get(statistic))]
        tables = groups.setdefault(plots.with_count(setting.label, len(found)), {})
        for table, points in (item for curves in found for item in curves.items()):
            tables.setdefault(table, []).extend(value for _, value in points)
    return {label: {table: statistics.fmean(values) for table, values in tables.items()}
            for label, tables in groups.items() if tables}


def _drawing_bars(label: str, tables: Sequence[str], groups: Mapping[str, Mapping[str, float]]
                  ) -> Callable[[], plots.Drawing]:
    bars = {setting: [values.get(table, 0.0) for table in tables]
            for setting, values in groups.items()}
    return lambda: plots.bars(label, "table", label, plots.short_names(tables), bars)


def _drawing_curves(curve: str, groups: plots.Groups) -> Callable[[], plots.Drawing]:
    return lambda: plots.curves(f"{_capitalized(_words(curve))} over steps", "global step",
                                _words(curve), groups)


def _groups(results: Results, curve: str, is_shown: Callable[[Sequence[object]], bool]
            ) -> dict[str, list[list[tuple[float, float]]]]:
    groups = {setting.label: [plots.smoothed(result.curves[curve]) for result in results.of(setting)
                              if is_shown(result.curves.get(curve, []))]
              for setting in dict.fromkeys(result.run.setting for result in results.runs)}
    return {label: members for label, members in groups.items() if members}


def _norms(results: Results, tables: Sequence[str]) -> dict[str, list[float]]:
    groups = {}
    for summary in results.summaries():
        measured = [result.tables for result in results.of(summary.setting) if result.tables]
        if measured:
            groups[plots.with_count(summary.setting.label, len(measured))] = [
                sum(item.get(key, {}).get("mean_norm", 0.0) for item in measured) / len(measured)
                for key in tables]
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


def _are_several(members: Sequence[object]) -> bool:
    return len(members) > 1


def _words(curve: str) -> str:
    return "training loss" if curve == TRAINING_LOSS else curve
