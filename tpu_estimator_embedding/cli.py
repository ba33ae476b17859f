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
_STATUS_OF_WRONG_USE = 2  # argparse's
_STATUS_OF_SIGPIPE = 128 + 13  # which ends other tools there

# What a group is for -> verb -> module, what it does.
_GROUPS = {
    "Run programs": {
        "run": ("runtime.run_command", "run a program as it is"),
        "cluster": ("cluster.cluster_command", "run it on parameter servers of this machine"),
        "demo": ("demo.main", "write data, train, evaluate, predict and export"),
    },
    "Move to TF2": {
        "migrate": ("migration.migrate_command", "rewrite a program without tf.estimator"),
        "verify": (
            "migration.verify.verify_command", "compare it with the original, step by step"),
        "checkpoint": (
            "checkpoint.checkpoint_command", "inspect, compare, reshard and convert checkpoints"),
    },
    "Experiment": {
        "plan": ("experiments.plan_command", "print the memory that tables will need"),
        "sweep": ("experiments.sweep_command", "compare gradient multipliers and seeds"),
        "report": ("experiments.report_command", "show a model's curves and tables on one page"),
    },
    "Install": {
        "doctor": ("runtime.doctor", "check the installation and say how to fix it"),
        "build-kernels": ("runtime.build_command", "compile the native kernels"),
    },
}
_STOP_PROGRAMS = ("migrate", "plan")  # before their end
VERBS = {verb: entry for verbs in _GROUPS.values() for verb, entry in verbs.items()}

_EPILOG = f"""\
examples:
  {PROGRAM} run train.py --steps 100
  {PROGRAM} migrate train.py --to tf2
  {PROGRAM} sweep train.py --multiplier 0 0.1 1 -- --steps 100

`{PROGRAM} <command> --help` lists the options of a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb and returns the exit status."""
    parser = _parser(PROGRAM, _description())
    parser.usage = f"{PROGRAM} [--help] [--version] <command> ..."
    parser.epilog = _EPILOG
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    parser.add_argument("verb", nargs="?", choices=VERBS, metavar="command",
                        help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = list(sys.argv[1:] if argv is None else argv)
    # Apart, because argparse drops a `--` in front of the arguments of the verb.
    end = next((place + 1 for place, word in enumerate(given) if not word.startswith("-")),
               len(given))
    args = parser.parse_args(given[:end])
    if args.version:
        return _version()
    if args.verb is None:
        parser.print_help(sys.stderr)
        return _STATUS_OF_WRONG_USE
    if not _has_working_directory():
        print(f"{PROGRAM}: the working directory no longer exists. Change to another one: cd ~",
              file=sys.stderr)
        return _STATUS_OF_WRONG_USE
    try:
        status = _run_verb(args.verb, given[end:])
        sys.stdout.flush()  # what is left, which Python would write after this function
        if argv is None and args.verb in _STOP_PROGRAMS:
            _end_threads(status)
        return status
    except BrokenPipeError:
        if args.verb == "run" or not _discarded(sys.stdout):
            raise  # the program's own
        return _STATUS_OF_SIGPIPE


def _has_working_directory() -> bool:
    import os
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _end_threads(status: int) -> None:
    """Ends the process, if a program that was stopped has left threads, which may never end."""
    import os
    import threading
    if any(not thread.daemon for thread in threading.enumerate()
           if thread is not threading.main_thread()):
        sys.stderr.flush()
        os._exit(status)


def _description() -> str:
    groups = (f"{title}:\n" + "".join(f"  {verb:<15}{does}\n" for verb, (_, does) in verbs.items())
              for title, verbs in _GROUPS.items())
    return "\n".join(("Run TPUEstimator programs with embedding tables on today's TensorFlow, "
                      "without a TPU.\n", *groups)).rstrip()


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
