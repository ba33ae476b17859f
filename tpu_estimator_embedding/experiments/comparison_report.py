# SPDX-License-Identifier: Apache-2.0
"""The report that compares several models, from their event files, also while they are trained."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from tpu_estimator_embedding import checks, figures
from tpu_estimator_embedding.experiments import explorer, html_page, pictures, plots
from tpu_estimator_embedding.experiments.event_files import TRAINING_LOSS, Curves, read_scalars
from tpu_estimator_embedding.experiments.files import write_text
from tpu_estimator_embedding.experiments.model_report import file_name
from tpu_estimator_embedding.experiments.results import is_of_training


def write_report(model_dirs: Sequence[pathlib.Path], out: pathlib.Path,
                 formats: Sequence[str] = figures.FORMATS) -> list[pathlib.Path]:
    """Writes `report.html` and its figures.

    Args:
        model_dirs: directories of Estimators, which may be training.
        out: directory of the files.
        formats: formats of the figures beside the page, some of `figures.FORMATS`.

    Returns:
        The paths of the files, starting with the page.

    Raises:
        ValueError: if a directory is given twice.
        FileNotFoundError: if a directory has no event file with a scalar.
    """
    names = [str(path) for path in model_dirs]
    checks.check(len({path.resolve() for path in model_dirs}) == len(names), "MODEL_DIR",
                 "different directories", names)
    curves_of = {name: read_scalars(path) for name, path in zip(names, model_dirs, strict=True)}
    for name, curves in curves_of.items():
        if not curves:
            raise FileNotFoundError(
                f"No event file in {name} has a scalar. Give directories of models that have "
                "recorded their loss, or leave it out.")
    out.mkdir(parents=True, exist_ok=True)
    metrics = _metrics(curves_of)
    parts = [html_page.paragraph("Last values. Each model is one run, so n = 1 of every number."),
             html_page.table(_rows(curves_of, metrics)),
             *explorer.section([explorer.ExploredRun(
                 name, name, {}, {metric: curves[metric][-1][1] for metric in metrics
                                  if metric in curves}, curves)
                 for name, curves in curves_of.items()], metrics[0], has_seeds=False),
             html_page.heading("Figures")]
    drawn, files = pictures.draw(_planned(curves_of, metrics), out, formats)
    parts += drawn
    page = out / "report.html"
    write_text(page, html_page.page(f"Comparison of {len(names)} models", parts))
    return [page, *files]


def _planned(curves_of: Mapping[str, Curves], metrics: Sequence[str]) -> Iterator[plots.Figure]:
    """The figures of the metrics that have a curve: one value is a number in the table."""
    for metric in metrics:
        lines = {name: [plots.smoothed(curves[metric])] for name, curves in curves_of.items()
                 if len(curves.get(metric, ())) > 1}
        if lines:
            title = f"{metric} over steps"
            yield file_name(metric), f"{title}.", partial(
                plots.curves, title, "global step", metric, lines)


def _metrics(curves_of: Mapping[str, Curves]) -> list[str]:
    """The metrics of evaluations and the training loss; if there are none, all scalars."""
    names = list(dict.fromkeys(name for curves in curves_of.values() for name in curves))
    return [name for name in names if name == TRAINING_LOSS or not is_of_training(name) and (
        not name.endswith("global_step"))] or names


def _rows(curves_of: Mapping[str, Curves], metrics: Sequence[str]) -> list[list[str]]:
    rows = [["model", "last step", *metrics]]
    for name, curves in curves_of.items():
        last = max(points[-1][0] for points in curves.values())
        rows.append([name, f"{last:,}", *(
            f"{curves[metric][-1][1]:.4g}" if metric in curves else "-" for metric in metrics)])
    return rows
