# SPDX-License-Identifier: Apache-2.0
"""A run that is stopped and resumed is the run that was not stopped, bit for bit."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import columns, counting, linear
from tpu_estimator_embedding.config.optimization_parameters import AdamParameters

NAMES = ("b", "c", "s", "o")
DATA = linear.random_data(NAMES, [4] * 6)


def model_fn(features, labels, mode, params):
    kernel = tf.compat.v1.get_variable("kernel", [linear.X_SIZE],
                                       initializer=tf.compat.v1.ones_initializer())
    z = linear.z_of({name: features[name] for name in NAMES}, features["x"], kernel)
    loss = tf.reduce_mean(tf.square(z - labels))
    optimizer = tf.compat.v1.train.AdamOptimizer(0.01)
    return counting.TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(
        loss, global_step=tf.compat.v1.train.get_global_step()))


def train(model_dir, max_steps, first):
    """Trains from a checkpoint, the one of `first` or its own, on the batches that follow."""
    estimator = counting.new_estimator(
        model_dir, model_fn, spec=columns.new_dict_spec(AdamParameters(0.01), NAMES),
        batch_size=4)

    def input_fn(params):
        latest = tf.train.latest_checkpoint(str(model_dir))
        step = tf.train.load_variable(latest, "global_step") if latest else 0
        return linear.to_dataset(DATA.tail(int(step)), 4)

    estimator.train(input_fn, max_steps=max_steps, hooks=[StartFrom(first)] if first else None)
    return estimator


class StartFrom(tf.compat.v1.train.SessionRunHook):
    """Gives every variable the value that another run started from."""

    def __init__(self, checkpoint):
        self._checkpoint = checkpoint

    def begin(self):
        saver = tf.compat.v1.train.Saver()
        self._restore = lambda session: saver.restore(session, self._checkpoint)

    def after_create_session(self, session, coord):
        self._restore(session)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole"), 6, None)


@pytest.mark.smoke
@pytest.mark.parametrize("stop_at", [1, 4])
def test_resumed_run_equals_uninterrupted_run_bit_for_bit(tmp_path, whole, stop_at):
    first = f"{whole.model_dir}/model.ckpt-0"
    train(tmp_path, stop_at, first)
    resumed = train(tmp_path, 6, None)
    names = whole.get_variable_names()
    assert sorted(resumed.get_variable_names()) == sorted(names)
    assert {"kernel", "kernel/Adam", "S", "S/Adam/m", "S/Adam/v", "global_step"} <= set(names)
    for name in names:
        np.testing.assert_array_equal(resumed.get_variable_value(name),
                                      whole.get_variable_value(name), err_msg=name)
        if name != "global_step":  # all of them learn, so that equality says something
            start = tf.train.load_variable(first, name)
            assert np.any(whole.get_variable_value(name) != start), name
