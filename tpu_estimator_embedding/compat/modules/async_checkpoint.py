# SPDX-License-Identifier: Apache-2.0
"""`tensorflow.python.tpu.async_checkpoint`: the saver hook of TPU training programs."""

import os

import tensorflow as tf


class AsyncCheckpointSaverHook(tf.compat.v1.train.CheckpointSaverHook):
    """Saves every N steps or seconds, between steps.

    TensorFlow's hook saved in a thread while training went on. Here the variables change
    in place, so that a save beside a step could hold one half of its update; this hook
    therefore makes the next step wait for the save.

    Args:
        checkpoint_dir: directory of the checkpoints.
        save_secs: save every N seconds; exactly one of this and `save_steps` is given.
        save_steps: save every N steps.
        saver: what saves; at most one of this and `scaffold` is given.
        checkpoint_basename: start of the file names.
        scaffold: has the saver.
        listeners: `CheckpointSaverListener`s, told before and after each save.

    Raises:
        ValueError: both or neither of `save_secs` and `save_steps` are given, or both of
            `saver` and `scaffold`.
    """

    def begin(self) -> None:
        tf.compat.v1.logging.info(
            "AsyncCheckpointSaverHook saves to %s between steps, not beside them.",
            os.path.dirname(self._save_path))
        super().begin()
