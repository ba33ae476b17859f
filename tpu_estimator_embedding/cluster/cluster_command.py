# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding cluster`."""

import argparse
import sys

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.cluster.supervisor import supervise
from tpu_estimator_embedding.cluster.task import new_tasks, run_command
from tpu_estimator_embedding.runtime.program_runner import PREFIX, NotStartedError
from tpu_estimator_embedding.runtime.run_command import check_can_start

DESCRIPTION = """\
Runs a program as the tasks of a parameter-server cluster on this machine: a
chief, workers, servers that hold the tables, and an evaluator, each a process
with its TF_CONFIG. The program must call tf.estimator.train_and_evaluate, which
gives every task its role: a server that calls `train` ends with an error.

Every line of output is prefixed with the name of its task. The cluster ends when
its chief does, with the chief's exit status."""

EXAMPLES = """\
examples:
  tpu-estimator-embedding cluster --ps 2 train.py --steps 1000
  tpu-estimator-embedding cluster --workers 2 --ps 2 --evaluator train.py
  tpu-estimator-embedding cluster --ps 2 -- --tf1 --quiet train.py
                                       options of `run` follow `--`
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.usage = f"{parser.prog} [OPTION...] [-- OPTION-OF-RUN...] PROGRAM.py [ARGUMENT...]"
    parser.epilog = EXAMPLES
    parser.add_argument("--workers", type=checks.read_count, default=1, metavar="N",
                        help="workers in addition to the chief, which trains too; default 1")
    parser.add_argument("--ps", type=checks.read_positive_int, default=1, metavar="N",
                        help="parameter servers, each with a part of every table; default 1")
    parser.add_argument("--evaluator", action="store_true",
                        help="a task evaluates every checkpoint, as train_and_evaluate does")
    parser.add_argument("--restart", type=checks.read_count, default=3, metavar="N",
                        help="how often a task that dies is restarted; default 3")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM.py",
                        help="the program and its own arguments")


def run(args: argparse.Namespace) -> int:
    """Runs the cluster; returns the exit status of its chief."""
    arguments = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not arguments:
        print("tpu-estimator-embedding: `cluster` needs a program: `cluster PROGRAM.py`. "
              "`cluster --help` lists the options.", file=sys.stderr)
        return 2
    try:
        check_can_start(arguments)
    except NotStartedError as error:
        print(f"{PREFIX}{error}", file=sys.stderr)
        return error.status
    tasks = new_tasks(run_command(arguments), workers=args.workers, servers=args.ps,
                      evaluator=args.evaluator)
    try:
        return supervise(tasks, args.restart)
    except KeyboardInterrupt:
        return 130
