# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding plan`: the cost of a program's tables, before they are created."""

import argparse
import functools
import pathlib
import sys

from tpu_estimator_embedding import checks, figures
from tpu_estimator_embedding.experiments.program_arguments import add_program, parse, program_of

DESCRIPTION = """\
Runs a program until its TPUEstimator is constructed, and prints the memory,
disk space and time that its tables will need. The exit status is 1 if the memory
of this machine is not sufficient, and 2 if the program fails, or constructs no
TPUEstimator.
"""

_EPILOG = """\
With --sample the program continues until it calls train(). Batches of its input
show how often ids repeat, and how evenly hosts would share them.

examples:
  tpu-estimator-embedding plan train.py -- --data logs/
  tpu-estimator-embedding plan train.py --sample 100 --hosts 4 -- --data logs/
"""

_PREFIX = "tpu-estimator-embedding plan: "

__all__ = ["DESCRIPTION", "add_arguments", "parse", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.epilog = _EPILOG
    add_program(parser)
    parser.add_argument("--sample", type=int, metavar="N", help="read N batches of the input")
    parser.add_argument("--hosts", type=int, metavar="N",
                        help="plan for N hosts instead of the program's number of hosts")
    parser.add_argument("--figure", "--png", default="plan.png", metavar="FILE",
                        help="file for the figure of --sample with the load of the hosts: .png, "
                        ".svg or .pdf (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    try:
        program = program_of(args)
        if args.sample is not None:
            checks.check_positive_int("--sample", args.sample)
        if args.hosts is not None:
            checks.check_positive_int("--hosts", args.hosts)
        figures.check_format("--figure", pathlib.Path(args.figure))
    except ValueError as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)
        return 2
    from tpu_estimator_embedding.runtime import capture, program_runner
    from tpu_estimator_embedding.runtime.program_setup import ProgramSetup

    figure = pathlib.Path(args.figure).absolute()  # before the program changes its directory
    start = program_runner.run_module if program.is_module else program_runner.run_file
    try:
        captured = capture.capture(
            functools.partial(start, program.name, program.arguments),
            ProgramSetup(program.is_tf1, "quiet"),
            "__init__" if args.sample is None else "train", program.name)
    except (capture.NoEstimatorError, program_runner.NotStartedError) as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)
        return 2
    from tpu_estimator_embedding.experiments import plan_report
    try:
        return plan_report.show(captured, args.sample, args.hosts, figure)
    except plan_report.FigureError as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)
        return 2
