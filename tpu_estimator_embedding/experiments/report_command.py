# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding report`: a report on a model, or a comparison of several."""

import argparse
import pathlib
import sys

DESCRIPTION = """\
Writes report.html, and its figures as PNG, SVG and PDF, from the checkpoints
and event files of a model, which may be training: loss and metrics over time,
speed, norms and never-trained rows of every table, neighbours of hot rows.
Of several models it compares the loss, metrics and all other curves.
"""

_PREFIX = "tpu-estimator-embedding report: "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.epilog = """\
examples:
  tpu-estimator-embedding report model_dir --out report
  tpu-estimator-embedding report before after larger --out comparison"""
    parser.add_argument("model_dir", metavar="MODEL_DIR", type=pathlib.Path, nargs="+",
                        help="directory of an Estimator's model; several are compared")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR",
                        help="directory for the report (MODEL_DIR/report; of several models: "
                        "report, in the working directory)")


def run(args: argparse.Namespace) -> int:
    """Writes the report and prints its path; returns the exit status."""
    from tpu_estimator_embedding.experiments import comparison_report, model_report
    try:
        if len(args.model_dir) == 1:
            [model_dir] = args.model_dir
            out = args.out or model_dir / "report"
            page, *figures = model_report.write_report(model_dir.resolve(), out.resolve())
        else:
            out = args.out or pathlib.Path("report")
            page, *figures = comparison_report.write_report(args.model_dir, out.resolve())
    except (OSError, ValueError) as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)
        return 2
    count = sum(path.suffix == ".png" for path in figures)
    print(f"report   {page}\nfigures  {count} beside it, each as PNG, SVG and PDF")
    return 0
