# SPDX-License-Identifier: Apache-2.0
"""`tensorflow.python.tpu.async_checkpoint`: the saver hook of TPU training programs."""

from concurrent.futures import ThreadPoolExecutor

from tpu_estimator_embedding.checkpoint.async_saver_hook import SaverHook


class AsyncCheckpointSaverHook(SaverHook):
    """Saves every N steps or seconds while training continues: see `SaverHook`."""

    def begin(self) -> None:
        """Prepares the graph."""
        self.thread = self.thread or ThreadPoolExecutor(1)
        super().begin()
