# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding plan`: what a program's tables will cost, before they are made."""

import argparse
import functools
import pathlib
import sys

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.experiments.program_arguments import add_program, parse, program_of

DESCRIPTION = """\
Runs a program until its TPUEstimator has been constructed, and says what its
tables will need: memory, disk and time. The exit status is 1 where the memory
of this machine does not suffice.
"""

_EPILOG = """\
With --sample the program runs on until it calls train(), and batches of its
input are read: how often ids repeat, and how evenly hosts would share them.

examples:
  tpu-estimator-embedding plan train.py -- --data logs/
  tpu-estimator-embedding plan train.py --sample 100 --hosts 4 -- --data logs/
"""

_PREFIX = "tpu-estimator-embedding plan: "

__all__ = ["DESCRIPTION", "add_arguments", "parse", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.epilog = _EPILOG
    add_program(parser)
    parser.add_argument("--sample", type=int, metavar="N", help="read N batches of the input")
    parser.add_argument("--hosts", type=int, metavar="N",
                        help="plan for N hosts, not for those of the program")
    parser.add_argument("--png", default="plan.png", metavar="FILE",
                        help="where --sample draws the load of the hosts (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Runs the verb; returns the exit status."""
    try:
        program = program_of(args)
        if args.sample is not None:
            checks.check_positive_int("--sample", args.sample)
        if args.hosts is not None:
            checks.check_positive_int("--hosts", args.hosts)
    except ValueError as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)
        return 2
    from tpu_estimator_embedding.runtime import capture, program_runner
    from tpu_estimator_embedding.runtime.quiet_start import quiet_start

    def set_up() -> None:
        with quiet_start(verbose=False):
            program_runner.ProgramSetup(program.is_tf1, "quiet")()

    start = program_runner.run_module if program.is_module else program_runner.run_file
    try:
        captured = capture.capture(
            functools.partial(start, program.name, program.arguments), set_up,
            "__init__" if args.sample is None else "train")
    except (capture.NoEstimatorError, program_runner.NotStartedError) as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)
        return 2
    from tpu_estimator_embedding.experiments import plan_report
    return plan_report.show(captured, args.sample, args.hosts, pathlib.Path(args.png))
