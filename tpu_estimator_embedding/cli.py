# SPDX-License-Identifier: Apache-2.0
"""The command line: `tpu-estimator-embedding <verb>`.

A verb is a module with `DESCRIPTION`, `add_arguments(parser)` and `run(args) -> status`. It is
imported when its verb is given, so that `--help` and `doctor` work where TensorFlow does not.
It may have `parse(parser, arguments)`, where the arguments are not argparse's alone.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import TextIO

PROGRAM = "tpu-estimator-embedding"
_STATUS_OF_SIGPIPE = 128 + 13  # which ends other tools there

# verb -> module, what it does.
VERBS = {
    "build-kernels": ("kernels.build_command", "compile the native kernels for this TensorFlow"),
    "checkpoint": ("checkpoint.command", "look into checkpoints, convert and compare them"),
    "cluster": ("cluster.command", "run a program as a parameter-server cluster"),
    "demo": ("demo.main", "write data, train, evaluate, predict and export"),
    "doctor": ("runtime.doctor", "say what is installed, patched, missing or wrong"),
    "migrate": ("migration.command", "rewrite programs so that they leave tf.estimator"),
    "plan": ("experiments.plan_command", "say what a program's tables will need"),
    "report": ("experiments.report_command", "report on a model from its directory"),
    "run": ("runtime.run_command", "run a program as it is"),
    "sweep": ("experiments.sweep_command", "compare gradient multipliers of a program's tables"),
    "verify": ("migration.verify.command", "prove that a migrated program trains as before"),
}

_EXAMPLES = f"""\
examples:
  {PROGRAM} doctor                     is everything here that is needed?
  {PROGRAM} build-kernels              compile the native kernels
  {PROGRAM} demo --examples 50000      write data, train, evaluate, export
  {PROGRAM} checkpoint inspect DIR     its tables, slots and state
  {PROGRAM} migrate train.py           show it with explicit imports
  {PROGRAM} verify train.py new/train.py
                                       does the migrated program train as before?
  {PROGRAM} run train.py --steps 100   run a program as it is
  {PROGRAM} run -m trainer.task        run a module as it is
  {PROGRAM} cluster --workers 2 --ps 2 train.py
                                       the same on parameter servers, here
  {PROGRAM} plan train.py              what will its tables need?
  {PROGRAM} sweep train.py --multiplier 0 0.1 1 -- --steps 100
                                       how much should its tables learn?
  {PROGRAM} report model_dir           curves, tables and neighbours on one page
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb and returns the exit status."""
    parser = _parser(
        PROGRAM, "TPUEstimator programs with embedding tables, without a TPU and on today's "
        "TensorFlow.")
    parser.epilog = _EXAMPLES
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    parser.add_argument("verb", nargs="?", choices=sorted(VERBS), metavar="verb",
                        help="; ".join(f"{verb}: {summary}" for verb, (_, summary)
                                       in sorted(VERBS.items())))
    parser.add_argument("arguments", nargs=argparse.REMAINDER,
                        help=f"arguments of the verb; `{PROGRAM} <verb> --help` lists them")
    given = list(sys.argv[1:] if argv is None else argv)
    # Apart, because argparse drops a `--` in front of the arguments of the verb.
    end = next((place + 1 for place, word in enumerate(given) if not word.startswith("-")),
               len(given))
    args = parser.parse_args(given[:end])
    if args.version:
        return _version()
    if args.verb is None:
        parser.error("a verb is needed")
    try:
        status = _run_verb(args.verb, given[end:])
        sys.stdout.flush()  # what is left, which Python would write after this function
        return status
    except BrokenPipeError:
        if args.verb == "run" or not _discarded(sys.stdout):
            raise  # the program's own
        return _STATUS_OF_SIGPIPE


def _discarded(stream: TextIO) -> bool:
    """Discards what is left in a pipe whose other end is closed, as in `... | head -2`.

    Returns whether the stream is one.
    """
    import os
    import select
    poll = select.poll()
    poll.register(stream, select.POLLOUT)
    is_closed = any(events & select.POLLERR for _, events in poll.poll(0))
    if is_closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return is_closed


def _run_verb(verb: str, arguments: Sequence[str]) -> int:
    module = importlib.import_module(f"tpu_estimator_embedding.{VERBS[verb][0]}")
    parser = _parser(f"{PROGRAM} {verb}", module.DESCRIPTION)
    module.add_arguments(parser)
    parse = getattr(module, "parse", argparse.ArgumentParser.parse_args)
    return module.run(parse(parser, arguments))


def _parser(program: str, description: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=program, description=description, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)


def _version() -> int:
    import tpu_estimator_embedding
    print(tpu_estimator_embedding.__version__)
    return 0
