# SPDX-License-Identifier: Apache-2.0
"""assign_from_checkpoint_fn and get_variables_to_restore, on real checkpoints."""

import logging

import pytest
import tensorflow as tf

from tpu_estimator_embedding.compat.contrib import restoring

v1 = tf.compat.v1


@pytest.fixture(name="checkpoint")
def a_checkpoint(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("encoder/weights", initializer=tf.constant([[1.0, 2.0]]))
        v1.get_variable("encoder/bias", initializer=tf.constant([3.0]))
        session.run(v1.global_variables_initializer())
        return v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))


def variables():
    return [v1.get_variable("encoder/weights", [1, 2]), v1.get_variable("encoder/bias", [1]),
            v1.get_variable("head/weights", [2])]


def restored(restore, *fetches):
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        restore(session)
        return [value.tolist() for value in session.run(list(fetches))]


def test_variables_and_names_are_restored(checkpoint, tmp_path):
    with tf.Graph().as_default():
        weights, bias, head = variables()
        restore = restoring.assign_from_checkpoint_fn(checkpoint, [weights, bias])
        assert restored(restore, weights, bias) == [[[1.0, 2.0]], [3.0]]
        restore = restoring.assign_from_checkpoint_fn(
            str(tmp_path), {"encoder/weights": head}, reshape_variables=True)
        assert restored(restore, head) == [[1.0, 2.0]]


def test_missing_variables_are_named_and_left(checkpoint, caplog):
    caplog.set_level(logging.WARNING, logger="tensorflow")  # other tests may have raised it
    with tf.Graph().as_default():
        weights, _, head = variables()
        restore = restoring.assign_from_checkpoint_fn(checkpoint, [weights, head],
                                                      ignore_missing_vars=True)
        assert restored(restore, weights) == [[[1.0, 2.0]]]
        assert "Variable head/weights missing in checkpoint" in caplog.text
        assert restoring.assign_from_checkpoint_fn(checkpoint, [head], True) is None
        with pytest.raises(tf.errors.NotFoundError):
            restored(restoring.assign_from_checkpoint_fn(checkpoint, [head]))
    with pytest.raises(ValueError, match="^var_list cannot be empty"):
        restoring.assign_from_checkpoint_fn(checkpoint, [])


def test_scopes_choose_variables():
    with tf.Graph().as_default():
        weights, bias, head = variables()
        assert restoring.get_variables_to_restore() == [weights, bias, head]
        assert restoring.get_variables_to_restore(["encoder"]) == [weights, bias]
        assert restoring.get_variables_to_restore(exclude=["head", "encoder/bias"]) == [weights]
