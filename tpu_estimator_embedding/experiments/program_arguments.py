# SPDX-License-Identifier: Apache-2.0
"""Command-line arguments that name an unmodified program and its arguments."""

import argparse
import os
from collections.abc import Sequence

from tpu_estimator_embedding.experiments.program_sweep import Program


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns what stands before the first `--`, which is the verb's own, and what after.

    >>> split(["train.py", "--seeds", "3", "--", "--steps", "10"])
    (['train.py', '--seeds', '3'], ['--steps', '10'])
    """
    own = list(arguments)
    if "--" not in own:
        return own, []
    place = own.index("--")
    return own[:place], own[place + 1:]


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parses a verb's own arguments; what follows `--` becomes `program_arguments`."""
    own, of_program = split(arguments)
    return parser.parse_args(own, argparse.Namespace(program_arguments=of_program))


def add_program(parser: argparse.ArgumentParser) -> None:
    """Adds the program, as a file or a module, and how it is run."""
    parser.usage = f"{parser.prog} (PROGRAM.py | -m MODULE) [options] [-- ARGS...]"
    parser.add_argument("program", nargs="?", metavar="PROGRAM.py", help="the program's file")
    parser.add_argument("-m", dest="module", metavar="MODULE", help="or its module")
    parser.add_argument("--tf1", action="store_true",
                        help="`import tensorflow` means TensorFlow 1.x in it")


def program_of(args: argparse.Namespace) -> Program:
    """Returns the program that was named, with its arguments.

    Raises:
        ValueError: if none was, or two, or there is no such file.
    """
    if (args.program is None) == (args.module is None):
        raise ValueError("Give one program, PROGRAM.py or -m MODULE, before the options that take "
                         "several values; its own arguments come after `--`.")
    if args.program is not None and not os.path.isfile(args.program):
        raise ValueError(f"There is no file {args.program!r}. The program comes first; its own "
                         "arguments come after `--`.")
    return Program(args.module or os.path.abspath(args.program), tuple(args.program_arguments),
                   is_module=args.module is not None, is_tf1=args.tf1)
