# SPDX-License-Identifier: Apache-2.0
"""The hooks that save the checkpoints of a training while it goes on."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.checkpoint.asynchronous_saving import AsynchronousSaverHook


def save_asynchronously(estimator_spec: Any, hooks: Sequence[Any], config: Any,
                        model_dir: str) -> Any:
    """Returns the spec of a training whose checkpoints are saved while it goes on.

    A CheckpointSaverHook that a program has made is changed in place, as the program may use it
    elsewhere. Without one there is the one that the configuration wants.

    Args:
        estimator_spec: that of the training.
        hooks: all hooks of the training that the spec does not have.
        config: its RunConfig.
        model_dir: the directory of its checkpoints.
    """
    savers = [hook for hook in (*hooks, *estimator_spec.training_chief_hooks)
              if isinstance(hook, tf.compat.v1.train.CheckpointSaverHook)]
    for saver in savers:
        if type(saver) is tf.compat.v1.train.CheckpointSaverHook:
            saver.__class__ = AsynchronousSaverHook
        elif not isinstance(saver, AsynchronousSaverHook):
            tf.compat.v1.logging.warning(
                "tpu_estimator_embedding: %s saves checkpoints between steps, not while training "
                "goes on, as it is a class of its own.", type(saver).__name__)
    if savers or not (config.save_checkpoints_secs or config.save_checkpoints_steps):
        return estimator_spec
    own = AsynchronousSaverHook(
        model_dir, save_secs=config.save_checkpoints_secs,
        save_steps=config.save_checkpoints_steps, scaffold=estimator_spec.scaffold,
        save_graph_def=config.checkpoint_save_graph_def)
    return estimator_spec._replace(
        training_chief_hooks=[own, *estimator_spec.training_chief_hooks])
