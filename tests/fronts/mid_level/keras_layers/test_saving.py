# SPDX-License-Identifier: Apache-2.0
"""Models that were trained under a strategy are saved and loaded whole, tables and slots."""

import pathlib
import sys

import pytest
import tensorflow as tf

from tests.subprocesses import start

NEW, OLD = "model.keras a.weights.h5 checkpoint", (
    "model.keras model.h5 a.weights.h5 a.h5 checkpoint")
WAYS = {"keras": OLD} if tf.__version__.startswith("2.15") else {"keras": NEW, "tf_keras": OLD}


@pytest.mark.long
def test_models_of_two_replicas_are_saved_whole(tmp_path):
    program = pathlib.Path(__file__).with_name("saving_program.py")
    done = start([sys.executable, program, tmp_path, *WAYS])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()  # Keras writes some, too
    assert [line for line in lines if line.startswith(("keras ", "tf_keras "))] == [
        line for keras, ways in WAYS.items() for line in (
            f"{keras} 1 {ways}", f"{keras} 2 {ways}", f"{keras} export")]
