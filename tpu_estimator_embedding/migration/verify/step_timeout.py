# SPDX-License-Identifier: Apache-2.0
"""A limit for the time that a step of a TF2 program takes."""

import faulthandler
import os
import sys
import threading

STATUS = 3  # of a process that a step has taken too long in


class StepTimeout:
    """Ends the process where a step takes longer than `seconds`; 0 means no limit.

    The stacks of all threads and the reason go to stderr.
    """

    def __init__(self, program: str, seconds: float) -> None:
        self._program, self._seconds = program, seconds
        self._timer: threading.Timer | None = None

    def start_step(self, step: int) -> None:
        """Gives a step its time, counted from now."""
        self.stop()
        if self._seconds:
            self._timer = threading.Timer(self._seconds, self._end, [step])
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Ends the count: no step is running."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, step: int) -> None:
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
        print(f"{self._program} has not ended step {step} {self._seconds:g} s after it asked for "
              "a batch. verify follows one process that takes a batch from a tf.data.Dataset, "
              "trains one step on it and asks for the next one; a strategy must be a "
              "MirroredStrategy or OneDeviceStrategy. If a step needs longer, pass --step-timeout "
              "SECONDS. The log, which --keep DIR keeps, shows where each thread waits.",
              file=sys.stderr, flush=True)
        os._exit(STATUS)
