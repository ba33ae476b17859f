# SPDX-License-Identifier: Apache-2.0
"""Hooks that save how far the input was read."""

import warnings
from collections.abc import Iterable

import tensorflow as tf

_NAME = "CheckpointInputPipelineHook"


def warn_of_saved_input(hooks: Iterable[tf.compat.v1.train.SessionRunHook]) -> None:
    """Warns of hooks that restore the position of the input, which is read ahead by then.

    The first steps are prepared before such a hook restores the iterator, and at a checkpoint
    the iterator is ahead of the steps.
    """
    saving = getattr(tf.data.experimental, _NAME, ())  # TensorFlow 2.16 removed it
    if any(isinstance(hook, saving) for hook in hooks):
        warnings.warn(
            f"{_NAME} does not resume the input at the checkpoint: with use_tpu=True the input is "
            "read ahead, so training repeats some batches and skips others. Remove the hook, and "
            "skip the batches that were trained on with dataset.skip in input_fn.", stacklevel=3)
