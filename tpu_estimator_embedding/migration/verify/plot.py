# SPDX-License-Identifier: Apache-2.0
"""Draws how the differences of two programs grow over their steps."""

import pathlib
from collections.abc import Sequence

from tpu_estimator_embedding import figures
from tpu_estimator_embedding.checkpoint.files import check_absent, new_files
from tpu_estimator_embedding.migration.verify.steps import KINDS, Step


def check_plot(path: pathlib.Path) -> None:
    """Raises an error before any run if the plot cannot be written.

    Raises:
        ValueError: if the name does not end in `.png`, `.svg` or `.pdf`.
        FileExistsError: if the file exists.
        ImportError: if matplotlib is missing.
    """
    figures.check_format("plot", path)
    check_absent([path])
    figures.check_can_draw("plot")


def save_plot(steps: Sequence[Step], path: pathlib.Path) -> None:
    """Writes a figure with the largest difference of each kind after every step.

    Raises:
        OSError: if the file cannot be written.
    """
    check_plot(path)
    from matplotlib.ticker import MaxNLocator
    with figures.figure(8, 4.5) as figure:
        axes = figure.subplots()
        for kind in KINDS:
            points = [(step.step, step.largest()[kind]) for step in steps
                      if step.step and kind in step.largest()]
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=kind)
        axes.set_yscale("symlog", linthresh=1e-9)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("step")
        axes.set_ylabel("largest |legacy - migrated|")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend()
        content = figures.content(figure, path.suffix[1:])
    with new_files([path], 1 << 20) as [unfinished]:
        unfinished.write_bytes(content)
