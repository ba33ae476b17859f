# SPDX-License-Identifier: Apache-2.0
"""Measures the speed of a run and reports its progress to the parent process."""

import json
import pathlib
import time
from typing import Any

from tpu_estimator_embedding.experiments.files import write_text

_SECONDS_BETWEEN_NOTES = 1.0


class StepTimer:
    """Counts steps and seconds of all `train` calls, without the first session run of each.

    The first run includes starting the input pipeline and other one-time work.
    """

    def __init__(self, path: pathlib.Path) -> None:
        """Stores the path of the progress file."""
        self._path = path
        self.steps = self.timed_examples = 0
        self.timed_seconds = 0.0
        self._last_note = 0.0

    @property
    def examples_per_second(self) -> float | None:
        """Examples per second in the timed steps; None without timed steps."""
        return self.timed_examples / self.timed_seconds if self.timed_seconds else None

    def hook(self, batch_size: int) -> Any:
        """Returns the hook that times one call of `train`; it fetches nothing."""
        import tensorflow as tf

        timer = self

        class TimingHook(tf.compat.v1.train.SessionRunHook):
            """Records the end times of session runs and their numbers of steps."""

            _last: float | None = None

            def begin(self):
                self._global_step = tf.compat.v1.train.get_global_step()

            def after_create_session(self, session, coord):
                self._step = int(session.run(self._global_step))
                timer.note()

            def after_run(self, run_context, run_values):
                step, now = int(run_context.session.run(self._global_step)), time.perf_counter()
                timer.count(step - self._step, None if self._last is None else now - self._last,
                            batch_size)
                self._step, self._last = step, now

            def end(self, session):
                timer.note()

        return TimingHook()

    def count(self, steps: int, seconds: float | None, batch_size: int) -> None:
        """Adds the steps and seconds of a session run; None seconds mean that it was not timed."""
        self.steps += steps
        if seconds is not None:
            self.timed_seconds += seconds
            self.timed_examples += steps * batch_size
        if time.monotonic() - self._last_note > _SECONDS_BETWEEN_NOTES:
            self.note()

    def note(self) -> None:
        """Writes the number of steps to the progress file."""
        self._last_note = time.monotonic()
        write_text(self._path, json.dumps({"steps": self.steps}))
