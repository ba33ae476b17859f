# SPDX-License-Identifier: Apache-2.0
"""`tensorflow.python.tpu.async_checkpoint`: the saver hook of TPU training programs."""

from tpu_estimator_embedding.checkpoint.asynchronous_saving import AsynchronousSaverHook


class AsyncCheckpointSaverHook(AsynchronousSaverHook):
    """Saves every N steps or seconds while training goes on: see `AsynchronousSaverHook`."""
