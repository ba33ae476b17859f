# SPDX-License-Identifier: Apache-2.0
"""The progress line of the demo."""

from collections.abc import Callable

import tensorflow as tf
import tqdm


class ProgressHook(tf.compat.v1.train.SessionRunHook):
    """Shows step, loss, examples per second and the time left on one line."""

    def __init__(self, loss: tf.Tensor, examples: int, batch_size: int,
                 on_start: Callable[[], None] = lambda: None):
        """Creates the line; calls `on_start` when everything is ready for the first step."""
        self._loss = loss
        self._examples = examples
        self._batch_size = batch_size
        self._on_start = on_start
        self._step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session, coord):
        """Starts the line at the step of the checkpoint."""
        done = self._examples_done(session.run(self._step))
        self._line = tqdm.tqdm(total=self._examples, initial=done, desc="Training",
                               unit=" examples", unit_scale=True)
        self._on_start()

    def before_run(self, run_context):
        """Requests the loss of the step."""
        return tf.compat.v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context, run_values):
        """Advances the line by one step."""
        step = round(self._line.n / self._batch_size) + 1
        self._line.set_postfix(step=step, loss=f"{run_values.results:.4f}", refresh=False)
        self._line.update(self._examples_done(step) - self._line.n)

    def end(self, session):
        """Keeps the finished line."""
        self._line.close()

    def _examples_done(self, step: int) -> int:
        return min(int(step) * self._batch_size, self._examples)
