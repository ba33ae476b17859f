# SPDX-License-Identifier: Apache-2.0
"""A saver hook of a training that may leave out the checkpoint of its start.

TensorFlow's hook saves when a session begins: first the values that the initializers have just
computed, and later those that were just restored from the same checkpoint. Large tables take as
long then as in any other save.
"""

from typing import Any

import tensorflow as tf


class SaverHook(tf.compat.v1.train.CheckpointSaverHook):
    """A `tf.train.CheckpointSaverHook` that need not save when a session begins.

    Without the checkpoint of the start, listeners are called as with it, but `after_save` finds no
    new checkpoint. A training that ends without a step saves at its end what it left out.

    Attributes:
        saves_at_start: whether it saves when a session begins, as TensorFlow's hook does. With
            False it does not if the step is 0, or if it has a checkpoint of this step already.
    """

    saves_at_start: bool = True
    _is_starting: bool = False
    _left_out: int | None = None  # the step whose checkpoint there is not

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        """Writes the graph, and saves unless that is left out."""
        self._is_starting = True
        try:
            super().after_create_session(session, coord)
        finally:
            self._is_starting = False

    def end(self, session: tf.compat.v1.Session) -> None:
        """Saves the last step."""
        if self._left_out is not None and session.run(self._global_step_tensor) == self._left_out:
            self._save(session, self._left_out)
        super().end(session)

    def _save(self, session: tf.compat.v1.Session, step: int) -> bool:
        """Saves, or leaves it out; returns whether a listener has requested a stop."""
        if self._is_starting and not self.saves_at_start:
            is_saved = tf.compat.v1.train.checkpoint_exists(f"{self._save_path}-{step}")
            if step == 0 or is_saved:
                self._left_out = None if is_saved else step
                return self._leave_out(session, step)
        self._left_out = None
        return self._write(session, step)

    def _write(self, session: tf.compat.v1.Session, step: int) -> bool:
        return bool(super()._save(session, step))

    def _leave_out(self, session: tf.compat.v1.Session, step: int) -> bool:
        tf.compat.v1.logging.info("No checkpoint of step %d is saved at the start of the training.",
                                  step)
        for listener in self._listeners:
            listener.before_save(session, step)
        answers = [listener.after_save(session, step) for listener in self._listeners]
        return any(answers)
