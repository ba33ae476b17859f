# SPDX-License-Identifier: Apache-2.0
"""`tensorflow.python.tpu.async_checkpoint`: the saver hook of TPU training programs."""

import os

import tensorflow as tf


class AsyncCheckpointSaverHook(tf.compat.v1.train.CheckpointSaverHook):
    """Saves every N steps or seconds, between steps.

    TensorFlow's hook saved in a thread while training continued. Here a step updates variables
    in place, so a concurrent save could contain half of an update. Therefore the next step waits
    until this hook has saved.

    Args:
        checkpoint_dir: directory of the checkpoints.
        save_secs: saves every N seconds; exactly one of `save_secs` and `save_steps` is given.
        save_steps: saves every N steps.
        saver: the saver; at most one of `saver` and `scaffold` is given.
        checkpoint_basename: prefix of the file names.
        scaffold: a Scaffold with the saver.
        listeners: `CheckpointSaverListener`s, called before and after each save.

    Raises:
        ValueError: if both or neither of `save_secs` and `save_steps` are given, or both `saver`
            and `scaffold`.
    """

    def begin(self) -> None:
        tf.compat.v1.logging.info(
            "AsyncCheckpointSaverHook saves to %s between steps, not in a separate thread.",
            os.path.dirname(self._save_path))
        super().begin()
