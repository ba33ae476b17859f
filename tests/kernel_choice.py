# SPDX-License-Identifier: Apache-2.0
"""Choosing the kernels of a test, whatever the environment says."""

import pytest

from tpu_estimator_embedding.kernels import load


def choose_kernels(choice, monkeypatch):
    """Sets the choice until the test ends; skips it where nothing can be compiled."""
    monkeypatch.setenv(load.VARIABLE, choice)
    try:
        load.native_ops()
    except RuntimeError as error:
        pytest.skip(str(error))
