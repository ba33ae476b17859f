# SPDX-License-Identifier: Apache-2.0
"""The command line as a user types it."""

import pathlib
import sys

from tests.subprocesses import start

PROGRAM = pathlib.Path(__file__).with_name("click_program.py")


def command(verb, *arguments):
    return [sys.executable, "-m", "tpu_estimator_embedding", verb, *map(str, arguments)]


def run(verb, *arguments, cwd):
    return start(command(verb, *arguments), cwd=cwd)
