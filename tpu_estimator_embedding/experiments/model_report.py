# SPDX-License-Identifier: Apache-2.0
"""The report on models, from checkpoints and event files, also while they are trained."""

import dataclasses
import importlib.metadata
import pathlib
import platform
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

import tpu_estimator_embedding
from tpu_estimator_embedding import checks, figures
from tpu_estimator_embedding.checkpoint.contents import CheckpointContents, Table
from tpu_estimator_embedding.checkpoint.files import find_checkpoint
from tpu_estimator_embedding.checkpoint.inspection import NORM_EDGES, CheckpointReport, inspect
from tpu_estimator_embedding.checkpoint.names import GROWING_SLOTS
from tpu_estimator_embedding.checkpoint.reading import read_checkpoint
from tpu_estimator_embedding.experiments import explorer, html_page, plots, report
from tpu_estimator_embedding.experiments.event_files import (
    TABLE_STATISTICS,
    TRAINING_LOSS,
    Curves,
    read_scalars,
    steps_measured,
    table_curves,
)
from tpu_estimator_embedding.experiments.report import Section, file_name
from tpu_estimator_embedding.experiments.results import is_of_training
from tpu_estimator_embedding.plan.format_bytes import format_bytes

_TRIES = 5  # training deletes old checkpoints, possibly while one is read
_MOST_TABLES_WITH_NEIGHBOURS = 12
_MOST_TABLES_OF_FIGURE = 10
_SPEEDS = {"training/examples/sec": "examples/s", "training/global_step/sec": "steps/s"}
_DISTRIBUTIONS = ("tensorflow", "tf-keras", "tf-estimator-nightly", "tensorflow-estimator", "numpy")

Figures = list[plots.Figure]


def write_report(model_dirs: Sequence[pathlib.Path], out: pathlib.Path,
                 formats: Sequence[str] = figures.FORMATS) -> list[pathlib.Path]:
    """Writes `report.html` and its figures: on one model, or on what several have in common.

    Args:
        model_dirs: directories of Estimators, which may be training.
        out: directory of the files.
        formats: formats of the figures beside the page, some of `figures.FORMATS`.

    Returns:
        The paths of the files, starting with the page.

    Raises:
        ValueError: if a directory is given twice.
        FileNotFoundError: if there is neither a checkpoint nor an event file; of several, if one
            has no event file with a scalar.
    """
    if len(model_dirs) == 1:
        model_dir = model_dirs[0].resolve()
        name = f"{model_dir.parent.name}/{model_dir.name}"
        return report.write(out, f"Model in {name}", _sections_of_one(model_dir, name), formats)
    return report.write(out, f"Comparison of {len(model_dirs)} models",
                        _sections_of_several(model_dirs), formats)


def _sections_of_one(model_dir: pathlib.Path, name: str) -> list[Section]:
    curves = read_scalars(model_dir)
    found = _read_newest(model_dir) if model_dir.is_dir() else None
    if found is None and not curves:
        raise FileNotFoundError(checks.complaint(
            "MODEL_DIR", "a directory with a checkpoint or event files", str(model_dir)))
    newest, contents = found or (None, None)
    planned = _curve_figures({name: points for name, points in curves.items()
                              if len(points) > 1})
    shown = [metric for metric in curves
             if not metric.startswith("training/") or metric == TRAINING_LOSS]
    return [
        Section("", [html_page.paragraph(_opening(model_dir, curves, newest))]),
        Section("Tables", [html_page.table(_table_rows(newest))] if newest else []),
        _exploring({name: curves}, shown, TRAINING_LOSS),
        Section("Curves", [*planned, *(_table_figures(newest) if newest else []),
                           *_single_values(curves)]),
        Section("Neighbours of hot rows", _neighbour_parts(contents) if contents else []),
        Section("Versions", [html_page.table(_versions())])]


def _sections_of_several(model_dirs: Sequence[pathlib.Path]) -> list[Section]:
    names = [str(path) for path in model_dirs]
    checks.check(len({path.resolve() for path in model_dirs}) == len(names), "MODEL_DIR",
                 "different directories", names)
    curves_of = {name: read_scalars(path) for name, path in zip(names, model_dirs, strict=True)}
    for name, curves in curves_of.items():
        if not curves:
            raise FileNotFoundError(
                f"No event file in {name} has a scalar. Give directories of models that have "
                "recorded their loss, or leave it out.")
    metrics = _metrics(curves_of)
    planned = [_curve(file_name(metric), metric, {name: curves[metric] for name, curves in lines})
               for metric in metrics
               if (lines := [(name, curves) for name, curves in curves_of.items()
                             if len(curves.get(metric, ())) > 1])]
    return [
        Section("", [html_page.paragraph(
            "Last values. Each model is one run, so n = 1 of every number."),
            html_page.table(_last_values(curves_of, metrics))]),
        _exploring(curves_of, metrics, metrics[0]),
        Section("Figures", planned)]


def _exploring(curves_of: Mapping[str, Curves], metrics: Sequence[str], first: str) -> Section:
    return Section("", explorer.section([explorer.ExploredRun(
        name, name, {}, {metric: curves[metric][-1][1] for metric in metrics if metric in curves},
        curves) for name, curves in curves_of.items()], first, has_seeds=False))


def _metrics(curves_of: Mapping[str, Curves]) -> list[str]:
    """The metrics of evaluations and the training loss; if there are none, all scalars."""
    names = list(dict.fromkeys(name for curves in curves_of.values() for name in curves))
    return [name for name in names if name == TRAINING_LOSS or not is_of_training(name) and (
        not name.endswith("global_step"))] or names


def _last_values(curves_of: Mapping[str, Curves], metrics: Sequence[str]) -> list[list[str]]:
    rows = [["model", "last step", *metrics]]
    for name, curves in curves_of.items():
        last = max(points[-1][0] for points in curves.values())
        rows.append([name, f"{last:,}", *(
            f"{curves[metric][-1][1]:.4g}" if metric in curves else "-" for metric in metrics)])
    return rows


def _read_newest(model_dir: pathlib.Path) -> tuple[CheckpointReport, CheckpointContents] | None:
    for attempt in range(_TRIES):
        try:
            prefix = find_checkpoint(model_dir)
        except FileNotFoundError:
            return None  # nothing was saved yet
        try:
            return inspect(prefix), read_checkpoint(prefix)
        except FileNotFoundError:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _opening(model_dir: pathlib.Path, curves: Curves, report: CheckpointReport | None) -> str:
    if report is None:
        return f"{model_dir}. No checkpoint has been saved yet."
    metrics = ", ".join(f"{name} {points[-1][1]:.4g}" for name, points in curves.items()
                        if not name.startswith("training/") and name != "global_step")
    step = "an unknown step" if report.global_step is None else f"step {report.global_step:,}"
    evaluated = f" Last evaluation: {metrics}." if metrics else ""
    return f"{model_dir}. The newest checkpoint is from {step}.{evaluated}"


def _curve_figures(curves: Curves) -> Figures:
    planned: Figures = []
    for metric, members in _evaluations(curves).items():
        planned.append(_curve(f"evaluation_{file_name(metric)}", metric, {
            label: curves[name] for name, label in members.items()}))
    if TRAINING_LOSS in curves:
        planned.insert(0, _curve("training_loss", "training loss", {
            "training loss": curves[TRAINING_LOSS]}))
    for name, unit in _SPEEDS.items():
        if name in curves:
            planned.append(_curve("speed", unit, {"training": curves[name]}))
            break
    planned += [_of_tables(statistic, tables)
                for statistic, tables in table_curves(curves).items()]
    for group, members in _groups(curves).items():
        planned.append(_curve(f"training_{file_name(group)}", group, {
            label: curves[name] for name, label in members.items()}))
    return planned


def _single_values(curves: Curves) -> list[str]:
    """The scalars that were recorded once, as numbers: one point is no curve."""
    rows = [[name, f"{points[0][1]:.6g}", f"{points[0][0]:,}"]
            for name, points in curves.items() if len(points) == 1]
    return [html_page.paragraph("Recorded at one step only:"),
            html_page.table([["scalar", "value", "step"], *rows])] if rows else []


def _evaluations(curves: Curves) -> dict[str, dict[str, str]]:
    """Groups evaluations by metric: one figure per metric, one line per evaluation."""
    groups: dict[str, dict[str, str]] = {}
    for name in curves:
        evaluation, _, metric = name.rpartition("/")
        if not name.startswith("training/") and metric != "global_step":
            groups.setdefault(metric, {})[name] = evaluation or "evaluation"
    return groups


def _groups(curves: Curves) -> dict[str, dict[str, str]]:
    """Groups other scalars: tags that differ only in the last part share a figure."""
    groups: dict[str, dict[str, str]] = {}
    for name in curves:
        is_of_table = name.startswith(TABLE_STATISTICS) and "/" in name.removeprefix(
            TABLE_STATISTICS)
        if (name.startswith("training/") and name not in (TRAINING_LOSS, *_SPEEDS)
                and not is_of_table):
            group, _, member = name.removeprefix("training/").rpartition("/")
            groups.setdefault(group or member, {})[name] = member
    return groups


def _of_tables(statistic: str, tables: Curves) -> plots.Figure:
    """The figure of a statistic; of many tables, it shows those with the largest final values."""
    largest = sorted(tables, key=lambda table: -tables[table][-1][1])[:_MOST_TABLES_OF_FIGURE]
    shown = [table for table in tables if table in largest]
    lines = {name: [tables[table]]
             for name, table in zip(plots.short_names(shown), shown, strict=True)}
    words = statistic.replace("_", " ")
    more = "" if len(shown) == len(tables) else (
        f", of the {len(shown)} of {len(tables)} where it is largest at the end")
    caption = f"Tables: {words} over steps, {steps_measured(tables)}{more}."
    return f"tables_{file_name(statistic)}", caption, partial(
        plots.curves, f"Tables: {words}", "global step", words, lines)


def _curve(file: str, title: str, curves: Curves) -> plots.Figure:
    """The figure of values over steps, a line for each label."""
    lines = {label: [plots.smoothed(points)] for label, points in curves.items()}
    return file, f"{title} over steps.", partial(
        plots.curves, f"{title} over steps", "global step", title, lines)


def _table_figures(report: CheckpointReport) -> Figures:
    names = dict(zip([table.name for table in report.tables],
                     plots.short_names([table.name for table in report.tables]), strict=True))
    counts = {names[table.name]: table.statistics.histogram[1:-1] for table in report.tables
              if table.statistics is not None}
    planned: Figures = []
    if counts:
        planned.append(("row_norms", "Distribution of the Euclidean norms of the tables' rows.",
                        partial(plots.histograms, "Euclidean norm of a row", "rows", NORM_EDGES,
                                counts)))
    trained = {names[table.name]: 1 - table.statistics.never_trained / table.rows
               for table in report.tables
               if table.statistics is not None and table.statistics.never_trained is not None}
    if len(trained) > 1:  # the table has the one
        planned.append(("coverage", "Share of the rows that were ever trained.", partial(
            plots.bars, "Coverage: rows that were ever trained", "table", "share of the rows, %",
            list(trained), {"": [100 * share for share in trained.values()]})))
    return planned


def _table_rows(report: CheckpointReport) -> list[list[str]]:
    rows = [["table", "rows", "dim", "optimizer", "hosts", "partition", "size", "mean norm",
             "largest norm", "never trained"]]
    names = plots.short_names([table.name for table in report.tables])
    for name, table in zip(names, report.tables, strict=True):
        statistics = table.statistics
        assert statistics is not None
        never = statistics.never_trained
        rows.append([
            name, f"{table.rows:,}", str(table.dimension), table.optimizer or "-",
            str(table.num_hosts), table.partition_strategy, format_bytes(table.size),
            f"{statistics.mean_norm:.4g}", f"{statistics.max_norm:.4g}",
            "unknown" if never is None else f"{never:,} ({never / table.rows:.1%})"])
    return rows


def _neighbour_parts(contents: CheckpointContents) -> list[str]:
    rows = [["table", "hot id", "nearest ids (cosine)"]]
    tables = [table for table in contents.tables.values()
              if table.vocabulary_size > 1 and table.dimension > 1]
    names = plots.short_names([table.name for table in tables])
    for name, table in list(zip(names, tables, strict=True))[:_MOST_TABLES_WITH_NEIGHBOURS]:
        rows += [[name, str(row.id), ", ".join(
            f"{other} ({cosine:.2f})" for other, cosine in row.neighbours)]
            for row in hot_rows(table)]
    if len(rows) == 1:
        return []
    return [html_page.paragraph(
        "Hot rows have accumulated the largest gradients or, with optimizers that do not "
        "accumulate them, have the largest norms."), html_page.table(rows)]


def _versions() -> list[list[str]]:
    rows = [["what", "version"],
            ["tpu_estimator_embedding", tpu_estimator_embedding.__version__],
            ["Python", platform.python_version()]]
    for name in _DISTRIBUTIONS:
        try:
            rows.append([name, importlib.metadata.version(name)])
        except importlib.metadata.PackageNotFoundError:
            continue
    return rows


@dataclasses.dataclass(frozen=True)
class HotRow:
    """A frequently trained row and its nearest neighbours.

    Attributes:
        id: id of the row.
        neighbours: (id, cosine similarity) pairs, the nearest first.
    """

    id: int
    neighbours: list[tuple[int, float]]


def hot_rows(table: Table, count: int = 3, neighbours: int = 5) -> list[HotRow]:
    """Returns the rows with the largest accumulated gradients, or the largest norms.

    The table is read twice, a block of rows at a time.

    Args:
        table: a table of a checkpoint.
        count: number of rows.
        neighbours: number of neighbours of each row.
    """
    activity = next((tensor for slot, tensor in table.slots.items() if slot in GROWING_SLOTS),
                    table.rows)
    norms = np.concatenate([np.linalg.norm(activity.read_rows(start, stop), axis=1)
                            for start, stop in activity.row_blocks()])
    ids = [int(row) for row in np.argsort(-np.nan_to_num(norms), kind="stable")[:count]]
    wanted = np.stack([_directions(table.rows.read_rows(row, row + 1))[0] for row in ids])
    cosines = np.concatenate([_directions(table.rows.read_rows(start, stop)) @ wanted.T
                              for start, stop in table.rows.row_blocks()])
    found = []
    for place, row in enumerate(ids):
        of_row = cosines[:, place]
        of_row[row] = -np.inf
        nearest = np.argsort(-of_row, kind="stable")[:min(neighbours, len(of_row) - 1)]
        found.append(HotRow(row, [(int(other), float(of_row[other])) for other in nearest]))
    return found


def _directions(rows: np.ndarray) -> np.ndarray:
    rows = np.nan_to_num(rows.astype(np.float32))
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
