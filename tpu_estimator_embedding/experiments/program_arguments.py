# SPDX-License-Identifier: Apache-2.0
"""Command-line arguments that name an unmodified program and its arguments."""

import argparse
import os
from collections.abc import Sequence

from tpu_estimator_embedding.experiments.program_sweep import Program
from tpu_estimator_embedding.runtime.program_runner import split_arguments


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments of a command; arguments after `--` become `program_arguments`."""
    own, of_program = split_arguments(arguments)
    return parser.parse_args(own, argparse.Namespace(program_arguments=of_program))


def add_program(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that name the program, as a file or a module."""
    parser.usage = f"{parser.prog} (PROGRAM.py | -m MODULE) [options] [-- ARGS...]"
    parser.add_argument("program", nargs="?", metavar="PROGRAM.py", help="the program's file")
    parser.add_argument("-m", dest="module", metavar="MODULE", help="or its module")
    parser.add_argument("--tf1", action="store_true",
                        help="`import tensorflow` provides the TensorFlow 1.x API")


def program_of(args: argparse.Namespace) -> Program:
    """Returns the named program with its arguments.

    Raises:
        ValueError: if no program or two were named, or the file does not exist.
    """
    if (args.program is None) == (args.module is None):
        raise ValueError("Pass one program, PROGRAM.py or -m MODULE, before the options that take "
                         "several values, and its own arguments after `--`.")
    if args.program is not None and not os.path.isfile(args.program):
        raise ValueError(f"There is no file {args.program!r}. Pass the program first, and its own "
                         "arguments after `--`.")
    return Program(args.module or os.path.abspath(args.program), tuple(args.program_arguments),
                   is_module=args.module is not None, is_tf1=args.tf1)
