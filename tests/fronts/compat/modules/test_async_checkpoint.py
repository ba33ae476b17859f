# SPDX-License-Identifier: Apache-2.0
"""The restored `async_checkpoint` module."""

import pytest
import tensorflow as tf

from tpu_estimator_embedding.compat.modules.async_checkpoint import AsyncCheckpointSaverHook


def train(directory, steps, hook):
    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step()
        half = tf.compat.v1.get_variable("half", initializer=0.0)
        update = tf.group(step.assign_add(1), half.assign_add(0.5))
        scaffold = tf.compat.v1.train.Scaffold()
        hook._scaffold = scaffold
        creator = tf.compat.v1.train.ChiefSessionCreator(scaffold, checkpoint_dir=directory)
        with tf.compat.v1.train.MonitoredSession(creator, hooks=[hook]) as session:
            for _ in range(steps):
                session.run(update)


def test_every_checkpoint_holds_whole_steps(tmp_path):
    listener = tf.compat.v1.train.CheckpointSaverListener()
    saved = []
    listener.after_save = lambda session, step: saved.append(int(step))
    train(str(tmp_path), 5, AsyncCheckpointSaverHook(str(tmp_path), save_steps=2,
                                                     listeners=[listener]))
    assert saved == [0, 2, 4, 5]
    for path in tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths:
        reader = tf.train.load_checkpoint(path)
        assert reader.get_tensor("half") == 0.5 * reader.get_tensor("global_step")


def test_bad_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Can not provide both"):
        AsyncCheckpointSaverHook(str(tmp_path), save_secs=1, save_steps=1)
