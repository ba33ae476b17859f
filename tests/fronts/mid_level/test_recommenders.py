# SPDX-License-Identifier: Apache-2.0
"""The embedding layer of TensorFlow Recommenders on this package's tables."""

import importlib.util
import json
import pathlib
import sys

import numpy as np
import pytest

from tests.subprocesses import start

PROGRAM = pathlib.Path(__file__).with_name("recommenders_program.py")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_recommenders") is None,
    reason="needs tensorflow-recommenders: pip install --no-deps tensorflow-recommenders==0.7.3")


def results(*command):
    done = start([sys.executable, *command], TF_USE_LEGACY_KERAS="1")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def stock():
    """Returns what TensorFlow's own lookups and Keras' optimizer learn."""
    [[found], _] = results(PROGRAM, "stock")
    return found


@pytest.mark.long
@pytest.mark.parametrize("replicas", [1, 2])
def test_layer_of_tensorflow_recommenders_learns_as_stock_tensorflow(stock, replicas):
    runs, log = results("-m", "tpu_estimator_embedding", "run", "--cores", str(replicas), PROGRAM)
    assert f"{replicas} replicas" in log
    assert stock["evaluated"][1][1] > 0.85 > 0.6 > stock["evaluated"][0][1]
    for learned in runs:  # with an optimizer of Keras, and with one of the tables
        assert len(learned) in (6, 4)
        for name, values in learned.items():
            np.testing.assert_allclose(values, stock[name], rtol=1e-4, atol=1e-5, err_msg=name)
