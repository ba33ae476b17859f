# SPDX-License-Identifier: Apache-2.0
"""Models that were trained under a strategy are saved and loaded whole, tables and slots."""

import pathlib
import sys

import tensorflow as tf

from tests.subprocesses import start

BOTH = ["tf_keras"] if tf.__version__.startswith("2.15") else ["keras", "tf_keras"]


def test_models_of_two_replicas_are_saved_whole(tmp_path):
    program = pathlib.Path(__file__).with_name("saving_program.py")
    done = start([sys.executable, program, tmp_path, *BOTH])
    assert done.returncode == 0, done.stderr
    ways = {"keras": "model.keras a.weights.h5 checkpoint",
            "tf_keras": "model.keras model.h5 a.weights.h5 a.h5 checkpoint"}
    lines = done.stdout.splitlines()  # Keras writes some, too
    assert [line for line in lines if line.startswith(("keras ", "tf_keras "))] == [
        line for keras in BOTH for line in (
            f"{keras} 1 {ways[keras]}", f"{keras} 2 {ways[keras]}", f"{keras} export")]
