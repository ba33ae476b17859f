# SPDX-License-Identifier: Apache-2.0
"""Combines a trained model with untrained tables, to show the contribution of the tables."""

import pathlib
from collections.abc import Callable

import tensorflow as tf


class KeepFirstCheckpoint(tf.compat.v1.train.CheckpointSaverListener):
    """Copies the checkpoint of step 0, because training deletes old checkpoints."""

    def __init__(self, model_dir: pathlib.Path):
        """Stores the directory of the checkpoints."""
        self._model_dir = model_dir

    def after_save(self, session, global_step_value):
        """Copies the files of the first checkpoint."""
        if global_step_value != 0:
            return
        target = first_checkpoint(self._model_dir).parent
        target.mkdir(exist_ok=True)
        for file in self._model_dir.glob("model.ckpt-0.*"):
            (target / file.name).write_bytes(file.read_bytes())


def first_checkpoint(model_dir: pathlib.Path) -> pathlib.Path:
    """Returns the prefix of the copied checkpoint of step 0."""
    return model_dir / "before_training" / "model.ckpt-0"


def with_untrained_tables(model_dir: pathlib.Path, trained: str,
                          is_table: Callable[[str], bool]) -> str:
    """Writes a checkpoint with the tables of step 0 and all other variables from `trained`.

    Args:
        model_dir: directory with the copy that `KeepFirstCheckpoint` made.
        trained: prefix of a checkpoint.
        is_table: whether a variable name is that of a table.

    Returns:
        The prefix of the new checkpoint.
    """
    before = tf.train.load_checkpoint(str(first_checkpoint(model_dir)))
    after = tf.train.load_checkpoint(trained)
    names = sorted(after.get_variable_to_shape_map())
    prefix = str(first_checkpoint(model_dir).with_name("untrained_tables"))
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names),
        tensors=[tf.constant((before if is_table(name) else after).get_tensor(name))
                 for name in names])
    return prefix
