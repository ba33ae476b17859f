# SPDX-License-Identifier: Apache-2.0
"""The hooks that save the checkpoints of a training in another way than TensorFlow's."""

from collections.abc import Sequence

import tensorflow as tf

from tpu_estimator_embedding.checkpoint.asynchronous_saving import AsynchronousSaverHook
from tpu_estimator_embedding.checkpoint.saver_hook import SaverHook
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.hooks.saving_choice import SavingChoice
from tpu_estimator_embedding.types import RunConfig


def with_saver_hooks(estimator_spec: upstream.model_fn.EstimatorSpec,
                     hooks: Sequence[tf.compat.v1.train.SessionRunHook], config: RunConfig,
                     model_dir: str, choice: SavingChoice) -> upstream.model_fn.EstimatorSpec:
    """Returns the spec of a training that saves as chosen.

    A CheckpointSaverHook that a program has made is changed in place, as the program may use it
    elsewhere. Without one there is the one that the configuration wants.

    Args:
        estimator_spec: that of the training.
        hooks: all hooks of the training that the spec does not have.
        config: its RunConfig.
        model_dir: the directory of its checkpoints.
        choice: how it saves.
    """
    own_class = AsynchronousSaverHook if choice.is_asynchronous else SaverHook
    savers = [hook for hook in (*hooks, *estimator_spec.training_chief_hooks)
              if isinstance(hook, tf.compat.v1.train.CheckpointSaverHook)]
    for saver in savers:
        if type(saver) is tf.compat.v1.train.CheckpointSaverHook and not choice.is_tensorflows:
            saver.__class__ = own_class
        if isinstance(saver, SaverHook):  # an earlier training may have chosen otherwise
            saver.saves_at_start = choice.at_start
    if choice.is_tensorflows:
        return estimator_spec
    for saver in savers:
        if not isinstance(saver, own_class):
            tf.compat.v1.logging.warning(
                "tpu_estimator_embedding: %s, a class of its own, saves %s.", type(saver).__name__,
                "between steps, not while training goes on" if choice.is_asynchronous
                else "at the start of a training, too")
    if savers or not (config.save_checkpoints_secs or config.save_checkpoints_steps):
        return estimator_spec
    own = own_class(
        model_dir, save_secs=config.save_checkpoints_secs,
        save_steps=config.save_checkpoints_steps, scaffold=estimator_spec.scaffold,
        save_graph_def=config.checkpoint_save_graph_def)
    own.saves_at_start = choice.at_start
    return estimator_spec._replace(
        training_chief_hooks=[own, *estimator_spec.training_chief_hooks])
