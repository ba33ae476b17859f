# SPDX-License-Identifier: Apache-2.0
"""A checkpoint with the tables of step 0 and the rest of the trained model."""

import tensorflow as tf

from tpu_estimator_embedding.demo.model import is_table
from tpu_estimator_embedding.demo.untrained_tables import (
    KeepFirstCheckpoint,
    first_checkpoint,
    with_untrained_tables,
)

NAMES = ["dense_features/user_embedding/embedding_weights", "items", "items/Adagrad",
         "hidden_0/kernel", "global_step"]


def save(model_dir, step: int, value: float) -> str:
    prefix = str(model_dir / f"model.ckpt-{step}")
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=NAMES, shape_and_slices=[""] * len(NAMES),
                      tensors=[tf.constant(value + n) for n in range(len(NAMES))])
    return prefix


def test_tables_come_from_step_0_and_the_rest_from_training(tmp_path):
    save(tmp_path, 0, 0.0)
    KeepFirstCheckpoint(tmp_path).after_save(None, 0)
    trained = save(tmp_path, 9, 100.0)
    mixed = tf.train.load_checkpoint(with_untrained_tables(tmp_path, trained, is_table))
    assert {name: float(mixed.get_tensor(name)) for name in NAMES} == {
        NAMES[0]: 0.0, "items": 1.0, "items/Adagrad": 102.0, "hidden_0/kernel": 103.0,
        "global_step": 104.0}


def test_only_the_first_checkpoint_is_kept(tmp_path):
    save(tmp_path, 0, 0.0)
    listener = KeepFirstCheckpoint(tmp_path)
    listener.after_save(None, 5)
    assert not first_checkpoint(tmp_path).parent.exists()
    listener.after_save(None, 0)
    assert tf.compat.v1.train.checkpoint_exists(str(first_checkpoint(tmp_path)))
