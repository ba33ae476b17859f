# SPDX-License-Identifier: Apache-2.0
"""The verb `verify`."""

import argparse
import importlib
import pathlib
import sys
from collections.abc import Sequence

from tpu_estimator_embedding.migration import stages
from tpu_estimator_embedding.runtime.program_runner import split_arguments

_PROGRAM = "tpu-estimator-embedding verify"
_USAGE = "%(prog)s [options] LEGACY.py MIGRATED.py [-- ARGS ... [-- ARGS OF MIGRATED.py ...]]"
DIFFERENT, FAILED = 1, 2
DESCRIPTION = """\
Proves that a migrated program does what the legacy program does. Runs both from
the same initial values and on the same batches, through the phases of their
lives: training, the first evaluation, the first prediction, and a second
training. Compares loss, activations, tables, slots and dense variables after
every step, metrics and predictions, and all variables after each phase. The
migrated program may be of any stage: explicit imports, a TF2 training loop,
Keras layers in Model.fit, or Keras 3 on the backend that KERAS_BACKEND names."""
_EPILOG = """\
Programs train in temporary model directories. At most 10 batches are evaluated
and predicted, and 5 steps trained again; if a program trains once, it is trained
again after its end. The report says which phases were compared. Only the first
training of a TF2 program without a Trainer is compared. Files that programs
write themselves, such as a host_call's summaries, go where ARGS say. The disk
must hold the checkpoints of every step. A TF2 program without a Trainer runs its
first step twice, so it needs one step more, with pipelined tables two. A
program of the stage keras3 starts from what `checkpoint convert` makes of the
legacy program's values; activations are not compared. A second `--` gives the
migrated program its own arguments.

examples:
  %(prog)s train.py new/train.py -- --data logs/
  %(prog)s --steps 5 --rtol 1e-5 --keep runs/ train.py new/train.py
  %(prog)s --rtol 1e-5 --names names.json --plot differences.png train.py tf2.py
  KERAS_BACKEND=jax %(prog)s --rtol 1e-4 train.py new/train.py -- logs/

exit status: 0 they agree, 1 they differ, 2 they could not be compared"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.usage, parser.epilog = _USAGE, _EPILOG
    parser.add_argument("legacy", metavar="LEGACY.py", help="the program as it was")
    parser.add_argument("migrated", metavar="MIGRATED.py", help="the migrated program")
    parser.add_argument("--steps", type=int, default=20, metavar="N",
                        help="steps to train (default: %(default)s)")
    stages.add_stage(parser, help="stage that MIGRATED.py must be of: fail if `migrate` has "
                           "left it at another one")
    parser.add_argument("--rtol", type=float, default=0.0, metavar="X",
                        help="relative tolerance (default: equal bit for bit)")
    parser.add_argument("--atol", type=float, metavar="X",
                        help="absolute tolerance (default: --rtol times the root mean square "
                        "of a tensor's values, but at least a thousandth of --rtol)")
    parser.add_argument("--tf1", action="store_true", dest="is_tf1",
                        help="`import tensorflow` means TensorFlow 1.x in LEGACY.py")
    parser.add_argument("--names", metavar="FILE", help='JSON object: dense variable in the legacy '
                        "checkpoint -> name of the variable in a program of a later stage, where "
                        "they differ")
    parser.add_argument("--step-timeout", type=float, default=600.0, metavar="SECONDS",
                        help="fail where a step of a TF2 program takes longer; 0 means no limit "
                        "(default: %(default)s)")
    parser.add_argument("--plot", metavar="FILE",
                        help="draw the differences over the steps: .png, .svg or .pdf")
    parser.add_argument("--keep", metavar="DIR", help="keep checkpoints, batches and logs of "
                        "both runs in DIR/legacy and DIR/migrated")


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the options; what stands behind `--` goes to the programs."""
    own, of_programs = split_arguments(arguments)
    of_both, of_migrated = split_arguments(of_programs)
    return parser.parse_args(own, argparse.Namespace(
        program_arguments=of_both,
        migrated_arguments=of_migrated if "--" in of_programs else None))


def run(args: argparse.Namespace) -> int:
    """Runs both programs, prints what differs and returns the exit status."""
    from tpu_estimator_embedding.checkpoint.files import check_new_figure
    from tpu_estimator_embedding.checkpoint.names import read_names
    from tpu_estimator_embedding.migration.verify import steps
    from tpu_estimator_embedding.migration.verify.comparison import (
        FailedRunError,
        check_arguments,
        compare,
    )
    from tpu_estimator_embedding.runtime.quiet_start import quiet_start
    checked = {"steps": args.steps, "rtol": args.rtol, "atol": args.atol,
               "step_timeout": args.step_timeout, "to": args.to}
    try:
        picture = pathlib.Path(args.plot) if args.plot else None
        if picture:
            check_new_figure("plot", picture)
        names = read_names(pathlib.Path(args.names)) if args.names else None
        check_arguments(args.legacy, args.migrated, **checked)
        print(f"{_PROGRAM}: both programs run now, each in its own process", file=sys.stderr)
        with quiet_start(verbose=False):
            importlib.import_module("tensorflow")  # which `compare` needs at its end
        found = compare(args.legacy, args.migrated, args.program_arguments, is_tf1=args.is_tf1,
                        directory=args.keep and pathlib.Path(args.keep), names=names,
                        migrated_arguments=args.migrated_arguments, **checked)
        if picture:
            steps.save_plot(found.steps, picture)
    except (OSError, ValueError, ImportError, FailedRunError) as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return FAILED
    print(found.to_text())
    return 0 if found.agree else DIFFERENT
