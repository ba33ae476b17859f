# SPDX-License-Identifier: Apache-2.0
"""Choosing the kernels of a test, whatever the environment says."""

import os

import pytest

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.kernels import compiler, load


def choose_kernels(choice, monkeypatch):
    """Sets the choice until the test ends; gives the test up where nothing can be compiled."""
    monkeypatch.setenv(settings.KERNELS.variable, choice)
    try:
        load.native_ops()
    except RuntimeError as error:
        give_up(str(error))


def cannot_compile():
    """Tells whether there is no compiler; not under CI, which has to have everything."""
    return compiler.find() is None and _may_give_up()


def found_compiler():
    """Returns the command of the compiler; gives the test up where there is none."""
    command = compiler.find()
    if command is None:
        give_up("there is no C++17 compiler here")
    return command


def give_up(reason):
    """Skips the test; under CI, which has to have everything, fails it."""
    if _may_give_up():
        pytest.skip(reason)
    pytest.fail(f"{reason}; under CI (CI={os.environ['CI']}) native tests may not be skipped")


def _may_give_up():
    return os.environ.get("CI", "").lower() in ("", "0", "false")
