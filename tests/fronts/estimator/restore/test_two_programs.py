# SPDX-License-Identifier: Apache-2.0
"""Two trainings in one model_dir."""

import os
import sys
import textwrap

import pytest
import tensorflow as tf

from tests.fronts.estimator import counting
from tests.subprocesses import start

TRAIN = """
    import sys
    from tests.fronts.estimator.restore.test_two_programs import train
    train(sys.argv[1])
"""
WARNING = "another program has written"


def train(model_dir, steps=1, hooks=()):
    counting.new_estimator(model_dir, config=counting.run_config(save_checkpoints_steps=1)).train(
        counting.input_of([[1], [2]] * steps), hooks, steps=steps)


def train_elsewhere(model_dir):
    done = start([sys.executable, "-c", textwrap.dedent(TRAIN), model_dir])
    assert done.returncode == 0, done.stderr


class OnceMeanwhile(tf.compat.v1.train.SessionRunHook):
    """Calls a function after the first step."""

    def __init__(self, do):
        self.do = do

    def after_run(self, run_context, run_values):
        if self.do is not None:
            self.do()
        self.do = None


@pytest.mark.long
def test_a_training_warns_of_another_program_that_saves_there(tmp_path, logged):
    train(tmp_path, 3, [OnceMeanwhile(lambda: train_elsewhere(tmp_path))])
    [warning] = logged(WARNING)
    assert f"{WARNING} {tmp_path}/checkpoint since" in warning


@pytest.mark.long
def test_a_training_that_goes_on_where_another_ended_does_not_warn(tmp_path, logged):
    train(tmp_path)
    train_elsewhere(tmp_path)
    train(tmp_path)
    os.remove(tmp_path / "checkpoint")
    train(tmp_path)
    assert tf.train.latest_checkpoint(tmp_path).endswith("-1")
    assert not logged(WARNING)
