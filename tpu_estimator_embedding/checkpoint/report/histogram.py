# SPDX-License-Identifier: Apache-2.0
"""Draws histograms of the row norms of tables."""

import pathlib

import numpy as np

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.inspection import CheckpointReport
from tpu_estimator_embedding.checkpoint.output_files import check_absent, new_files
from tpu_estimator_embedding.checkpoint.report.row_statistics import NORM_EDGES

_SUFFIXES = (".png", ".svg", ".pdf")


def check_histogram(path: pathlib.Path) -> None:
    """Checks, before anything is read, that a histogram can be written to a path.

    Raises:
        ValueError: if the name does not end in `.png`, `.svg` or `.pdf`.
        FileExistsError: if the file exists.
        ImportError: if matplotlib is missing.
    """
    checks.check(path.suffix in _SUFFIXES, "histogram",
                 f"a name that ends in one of {', '.join(_SUFFIXES)}", str(path))
    check_absent([path])
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("`histogram` needs matplotlib, which is not installed. Run "
                          "`pip install 'tpu_estimator_embedding[plots]'`.") from error


def save_histogram(report: CheckpointReport, path: pathlib.Path) -> None:
    """Writes a figure with a histogram of norms for each table of the report.

    Raises:
        ValueError: if the report has no tables, or was created without values.
        OSError: if the file cannot be written.
    """
    check_histogram(path)
    from matplotlib.figure import Figure
    tables = [table for table in report.tables if table.statistics is not None]
    checks.check(bool(tables), "report", "of tables whose values were read", str(report.path))
    figure = Figure(figsize=(8, 2.4 * len(tables)), layout="constrained")
    for axes, table in zip(np.atleast_1d(figure.subplots(len(tables))), tables, strict=True):
        assert table.statistics is not None
        counts = table.statistics.histogram
        axes.stairs(counts[1:-1], NORM_EDGES, fill=True)
        shown = np.flatnonzero(counts[1:-1])
        if len(shown):
            axes.set_xlim(NORM_EDGES[max(0, shown[0] - 5)],
                          NORM_EDGES[min(len(NORM_EDGES) - 1, shown[-1] + 6)])
        axes.set_xscale("log")
        axes.set_title(f"{table.name}: {table.rows:,} rows, {counts[0]:,} below 1e-6",
                       fontsize="medium")
        axes.set_xlabel("Euclidean norm of a row")
        axes.set_ylabel("rows")
    with new_files([path], 1 << 20) as [unfinished]:
        figure.savefig(unfinished, format=path.suffix[1:], dpi=120)
