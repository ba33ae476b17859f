# SPDX-License-Identifier: Apache-2.0
"""Handles Ctrl-C and SIGTERM during training after the step was finished and saved."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeAlias

import tensorflow as tf

_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int

_DEFAULTS: dict[int, _Handler] = {signal.SIGINT: signal.default_int_handler,
                                  signal.SIGTERM: signal.SIG_DFL}


class StopOnSignal(tf.compat.v1.train.SessionRunHook):
    """Stops the session after the step during which a signal arrived, so that it is saved.

    An estimator has one for all of its trainings and the code that runs within them.

    Attributes:
        received: the signal; None until one arrives.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, _Handler | None] = {}  # handlers that a training replaced

    def note(self, number: int, frame: FrameType | None) -> None:
        """Records a signal. The next one has its usual effect."""
        self.received = number
        tf.compat.v1.logging.warning(
            "tpu_estimator_embedding: %s: training stops after this step and saves a checkpoint. A "
            "second signal stops it immediately.", signal.Signals(number).name)
        self._step_aside()

    def _step_aside(self) -> None:
        for replaced in self._previous:
            signal.signal(replaced, _DEFAULTS[replaced])

    @contextlib.contextmanager
    def defer_signals(self) -> Iterator[None]:
        """Records signals within the context, and handles a recorded one afterwards.

        Only the main thread may handle signals; other threads record nothing. A program's own
        handlers stay in place; only Python's default handler of SIGINT is replaced.
        """
        if not _in_main_thread():
            yield
            return
        of_outer = self._previous
        self._previous = {number: signal.getsignal(number) for number in _DEFAULTS
                          if signal.getsignal(number) in (signal.SIG_DFL,
                                                          signal.default_int_handler)}
        for number in self._previous:
            signal.signal(number, self.note)
        try:
            yield
        except BaseException as error:
            if self.received is None or not isinstance(error, tf.errors.OutOfRangeError):
                self.received = None
                raise  # otherwise the signal ended the input before the first step
        finally:
            for number, handler in self._previous.items():
                signal.signal(number, handler)
            self._previous = of_outer
        self.obey()

    @contextlib.contextmanager
    def obey_signals_at_once(self) -> Iterator[None]:
        """Gives signals their usual effect within the context, including one already received.

        For code that runs during training just after a checkpoint was saved, such as an
        evaluation: there is no step to finish.
        """
        if not _in_main_thread():
            yield
            return
        self._step_aside()  # also where `stops_waiting` let the next signal end the process
        try:
            self.obey()
            yield
        finally:
            for number in self._previous:
                signal.signal(number, self.note)

    def obey(self) -> None:
        """Gives the received signal its usual effect."""
        number, self.received = self.received, None
        if number is not None:
            os.kill(os.getpid(), number)

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Requests the session to stop after a signal has arrived."""
        if self.received is not None:
            run_context.request_stop()

    def stops_waiting(self) -> bool:
        """Whether a signal has arrived, so that nothing should wait any longer.

        From then on the next one ends the process: closing a session waits for an input whose
        Python code blocks, and Python handles no signals meanwhile.
        """
        if self.received is None:
            return False
        if _in_main_thread() and signal.getsignal(signal.SIGINT) == signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        return True


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
