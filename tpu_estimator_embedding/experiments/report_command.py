# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding report`: a report on a model, or a comparison of several."""

import argparse
import contextlib
import pathlib
import sys
from collections.abc import Sequence

from tpu_estimator_embedding import checks, figures
from tpu_estimator_embedding.experiments.looks import add_figures, read_formats

DESCRIPTION = """\
Writes report.html, and its figures for papers, from the checkpoints and event
files of a model, which may be training: loss and metrics over time, speed,
norms and never-trained rows of every table, neighbours of hot rows.
Of several models it compares the loss, metrics and all other curves.
With --watch the report follows the training in a browser.
"""

_PREFIX = "tpu-estimator-embedding report: "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.epilog = """\
examples:
  tpu-estimator-embedding report model_dir --out report
  tpu-estimator-embedding report model_dir --watch
  tpu-estimator-embedding report before after larger --figures pdf --out comparison"""
    parser.add_argument("model_dir", metavar="MODEL_DIR", type=pathlib.Path, nargs="+",
                        help="directory of an Estimator's model; several are compared")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR",
                        help="directory for the report (MODEL_DIR/report; of several models: "
                        "report, in the working directory)")
    add_figures(parser, otherwise="; with --watch none")
    parser.add_argument("--watch", action="store_true",
                        help="serve the page on this machine, and make it anew when a training "
                        "writes; the browser loads it again. Ctrl-C ends it")
    parser.add_argument("--port", type=int, metavar="N",
                        help="port of the server of --watch (a free one)")


def run(args: argparse.Namespace) -> int:
    """Writes the report and prints its path; returns the exit status."""
    try:
        checks.check(args.watch or args.port is None, "--port", "used with --watch only", args.port)
        formats = read_formats(args.figures, () if args.watch else figures.FORMATS)
        if args.watch:
            _watch(args, formats)
        else:
            _show(_write(args, formats), formats)
    except (OSError, ValueError) as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)
        return 2
    return 0


def _write(args: argparse.Namespace, formats: Sequence[str]) -> list[pathlib.Path]:
    """Writes the report; returns the paths of the page and of the figures."""
    from tpu_estimator_embedding.experiments import comparison_report, model_report
    checks.check_can_be_directory("--out", args.out)
    if len(args.model_dir) == 1:
        [model_dir] = args.model_dir
        out = args.out or model_dir / "report"
        return model_report.write_report(model_dir.resolve(), out.resolve(), formats)
    out = args.out or pathlib.Path("report")
    return comparison_report.write_report(args.model_dir, out.resolve(), formats)


def _show(paths: Sequence[pathlib.Path], formats: Sequence[str]) -> None:
    page, *files = paths
    print(f"report   {page}\nfigures  {len(files) // len(formats)} beside it, each as "
          f"{', '.join(formats).upper()}")


def _watch(args: argparse.Namespace, formats: Sequence[str]) -> None:
    from tpu_estimator_embedding.experiments import watching
    port = 0 if args.port is None else args.port
    checks.check(0 <= port < 2 ** 16, "--port", "at least 0 and below 65536", port)
    watch = watching.Watch(args.model_dir, lambda: _write(args, formats)[0], port)
    print(f"report   {watch.address}\nCtrl-C ends it.", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        watch.run()
