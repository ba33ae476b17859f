# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding run`."""

import argparse
import os
import sys
from collections.abc import Sequence

from tpu_estimator_embedding import checks, settings
from tpu_estimator_embedding.runtime import program_runner

DESCRIPTION = """\
Runs an unmodified Python program as python would, after
tpu_estimator_embedding.install(), so that tf.estimator, TPUEstimator and its
embeddings work. Options before the program name go to `run`, everything after
it goes to the program."""

EXAMPLES = """\
examples:
  tpu-estimator-embedding run train.py --steps 100
  tpu-estimator-embedding run --tf1 --quiet train.py
  tpu-estimator-embedding run --cores 8 train.py
  tpu-estimator-embedding run --cores 16 --hosts 4 train.py
  tpu-estimator-embedding run --statistics every=100 train.py
  tpu-estimator-embedding run --steps-per-run 1 train.py
  tpu-estimator-embedding run --synchronous train.py
  tpu-estimator-embedding run --async-checkpoints train.py
  tpu-estimator-embedding run -m trainer.task --model_dir /tmp/model
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.usage = f"{parser.prog} [OPTION...] (PROGRAM.py | -m MODULE) [ARGUMENT...]"
    parser.epilog = EXAMPLES
    parser.add_argument("--tf1", action="store_true",
                        help="`import tensorflow` provides the TensorFlow 1.x API, for programs "
                        "that use tf.Session or tf.train.AdamOptimizer without compat.v1")
    parser.add_argument("--cores", type=checks.read_positive_int, metavar="N",
                        help="this machine stands in for a TPU with N cores: programs that leave "
                        "num_shards unset get N replicas. Default: a core for each GPU, or "
                        "without GPUs for each CPU, and one replica")
    parser.add_argument("--hosts", type=checks.read_positive_int, metavar="N",
                        help="the cores are on N hosts, all of them this machine, for programs "
                        "that place ops on the tasks of a TPU")
    parser.add_argument("--steps-per-run", type=checks.read_positive_int, metavar="N",
                        help="run hooks at least every N steps: a session run has at most N "
                        "steps, regardless of iterations_per_loop")
    level = parser.add_mutually_exclusive_group()
    level.add_argument("--quiet", dest="level", action="store_const", const="quiet",
                       default="normal", help="log only warnings and errors of TensorFlow, no "
                       "deprecations and, unless PYTHONWARNINGS is set, of Python's warnings only "
                       "RuntimeWarning")
    level.add_argument("--verbose", dest="level", action="store_const", const="verbose",
                       help="log all messages of TensorFlow from INFO on, also those that it "
                       "writes while it is loaded, and all deprecations")
    parser.add_argument("--checkpoint-num-hosts", type=checks.read_positive_int, metavar="N",
                        help="number of hosts that wrote the checkpoint to restore; needed with "
                        "partition_strategy='mod' if a TPU or version 0.1 wrote it")
    parser.add_argument("--statistics", type=_statistics, metavar="every=N",
                        help="write statistics of the tables for TensorBoard at every N-th "
                        "training step; with --verbose, also log them as a line")
    parser.add_argument("--synchronous", action="store_true",
                        help="the workers of a cluster make one update per step, from the sum of "
                        "their gradients, unless the program gives a ClusterConfig")
    parser.add_argument("--async-checkpoints", action="store_true",
                        help="continue training while a checkpoint is written, unless the program "
                        "gives TPUEstimator `async_checkpoints`")
    parser.add_argument("--no-checkpoint-at-start", action="store_true",
                        help="do not save a checkpoint at the start of training, of initial or "
                        "restored values, unless the program gives TPUEstimator "
                        "`checkpoint_at_start`")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE",
                        help="MODULE and its own arguments: run it as `python -m MODULE` does")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM.py",
                        help="the program and its own arguments")


def run(args: argparse.Namespace) -> int:
    """Runs the program; returns the exit status if it cannot be started."""
    try:
        _start(args)
    except program_runner.NotStartedError as error:
        print(f"{program_runner.PREFIX}{error}", file=sys.stderr)
        return error.status
    return 0


def check_can_start(arguments: Sequence[str]) -> None:
    """Checks arguments of `run`, for a command that starts it several times.

    Raises:
        NotStartedError: if they name no program, or a file that cannot be read.
        SystemExit: if an option is unknown or has a wrong value.
    """
    parser = argparse.ArgumentParser("tpu-estimator-embedding run", allow_abbrev=False)
    add_arguments(parser)
    args = parser.parse_args(arguments)
    name, *_ = _program(args)
    if not args.module:
        program_runner.read_program(name)


def _program(args: argparse.Namespace) -> list[str]:
    """Returns the program and its arguments."""
    program: list[str] = args.module or args.program or [""]
    if not program[0] or program[0].startswith("-"):
        raise program_runner.NotStartedError(
            "`run` needs a program: `run PROGRAM.py` or `run -m MODULE`. `run --help` lists the "
            "options.", 2)
    return program


def _start(args: argparse.Namespace) -> None:
    name, *arguments = _program(args)
    given = {
        settings.CORES.variable: args.cores, settings.HOSTS.variable: args.hosts,
        settings.CHECKPOINT_NUM_HOSTS.variable: args.checkpoint_num_hosts,
        settings.STATISTICS.variable: args.statistics,
        settings.STEPS_PER_RUN.variable: args.steps_per_run,
        settings.SYNCHRONOUS.variable: "1" if args.synchronous else None,
        settings.ASYNC_CHECKPOINTS.variable: "1" if args.async_checkpoints else None,
        settings.CHECKPOINT_AT_START.variable: "0" if args.no_checkpoint_at_start else None}
    # In the environment, so that started processes inherit them.
    os.environ.update({name: str(value) for name, value in given.items() if value})
    try:
        settings.num_cores()
    except ValueError as error:
        raise program_runner.NotStartedError(str(error), 2) from error
    start = program_runner.run_module if args.module else program_runner.run_file
    start(name, arguments, program_runner.ProgramSetup(args.tf1, args.level))


def _statistics(text: str) -> str:
    try:
        settings.STATISTICS.parse(text, "--statistics")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text
