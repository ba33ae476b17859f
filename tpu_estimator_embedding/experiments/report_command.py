# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding report`: a report on the training of a model."""

import argparse
import pathlib
import sys

DESCRIPTION = """\
Writes report.html, and its figures as PNG, SVG and PDF, from the checkpoints
and event files of a model, which may be training: loss and metrics over time,
speed, norms and never-trained rows of every table, neighbours of hot rows.
"""

_PREFIX = "tpu-estimator-embedding report: "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.epilog = "examples:\n  tpu-estimator-embedding report model_dir --out report"
    parser.add_argument("model_dir", metavar="MODEL_DIR", type=pathlib.Path,
                        help="directory of an Estimator's model")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR",
                        help="directory for the report (MODEL_DIR/report)")


def run(args: argparse.Namespace) -> int:
    """Writes the report and prints its path; returns the exit status."""
    from tpu_estimator_embedding.experiments.model_report import write_report
    out = args.out or args.model_dir / "report"
    try:
        page, *figures = write_report(args.model_dir.resolve(), out.resolve())
    except (OSError, ValueError) as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)
        return 2
    count = sum(path.suffix == ".png" for path in figures)
    print(f"report   {page}\nfigures  {count} beside it, each as PNG, SVG and PDF")
    return 0
