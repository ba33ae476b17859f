# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding report`: a report on a model, or a comparison of several."""

import argparse
import pathlib
import shlex
import sys
from collections.abc import Sequence

from tpu_estimator_embedding import checks, figures
from tpu_estimator_embedding.experiments.looks import add_figures, read_formats

DESCRIPTION = """\
Writes report.html, and its figures for papers, from the checkpoints and event
files of a model, which may be training: loss and metrics over time, speed,
norms and never-trained rows of every table, neighbours of hot rows.
For several models it compares the loss, metrics and all other curves.
"""

_PREFIX = "tpu-estimator-embedding report: "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.epilog = """\
examples:
  tpu-estimator-embedding report model_dir --out report
  tpu-estimator-embedding report before after larger --figures pdf --out comparison"""
    parser.add_argument("model_dir", metavar="MODEL_DIR", type=pathlib.Path, nargs="+",
                        help="directory of an Estimator's model; several are compared")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR",
                        help="directory for the report (MODEL_DIR/report; of several models: "
                        "report, in the working directory)")
    add_figures(parser)
    # Of earlier releases, for an error that says what takes their place.
    parser.add_argument("--watch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--port", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Writes the report and prints its path; returns the exit status."""
    try:
        if args.watch or args.port:
            raise ValueError("`--watch` and `--port` were removed. To watch a running training, "
                             f"use `tensorboard --logdir {shlex.quote(str(args.model_dir[0]))}`.")
        formats = read_formats(args.figures)
        _show(_write(args, formats), formats)
    except (OSError, ValueError) as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)
        return 2
    return 0


def _write(args: argparse.Namespace, formats: Sequence[str]) -> list[pathlib.Path]:
    """Writes the report; returns the paths of the page and of the figures."""
    from tpu_estimator_embedding.experiments import model_report
    checks.check_can_be_directory("--out", args.out)
    of_several = pathlib.Path("report")
    out = args.out or (args.model_dir[0] / "report" if len(args.model_dir) == 1 else of_several)
    return model_report.write_report(args.model_dir, out.resolve(), formats)


def _show(paths: Sequence[pathlib.Path], formats: Sequence[str]) -> None:
    page, *files = paths
    of_files = f"{len(files) // len(formats)} beside it, each as {', '.join(formats).upper()}"
    print(f"report   {page}\nfigures  {of_files if figures.can_draw() else figures.NONE}")
