# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM during training: finish the step, save, then obey."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import tensorflow as tf

_DEFAULTS: dict[int, Any] = {signal.SIGINT: signal.default_int_handler,
                             signal.SIGTERM: signal.SIG_DFL}


class StopOnSignal(tf.compat.v1.train.SessionRunHook):
    """Stops the session after the step during which a signal came, so that it is saved.

    One serves all of an estimator's trainings, and what runs within them.

    Attributes:
        received: the signal; None while none came.
    """

    def __init__(self) -> None:
        self.received: int | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Remembers a signal. The next one does what it would without this hook."""
        self.received = number
        tf.compat.v1.logging.warning(
            "tpu_estimator_embedding: %s: training stops after this step and saves a "
            "checkpoint. Once more stops at once.", signal.Signals(number).name)
        self._step_aside()

    @contextlib.contextmanager
    def noting_signals(self) -> Iterator[None]:
        """Notes signals instead of obeying them, and obeys the one that came afterwards.

        Only the main thread may handle signals; in others nothing is noted. A program's own
        handlers stay in place, but for Python's default one of SIGINT.
        """
        previous: dict[int, Any] = {}
        if _in_main_thread():
            previous = {number: signal.getsignal(number) for number in _DEFAULTS
                        if signal.getsignal(number) in (signal.SIG_DFL,
                                                        signal.default_int_handler)}
        for number in previous:
            signal.signal(number, self.note)
        try:
            yield
        except BaseException as error:
            if self.received is None or not isinstance(error, tf.errors.OutOfRangeError):
                self.received = None
                raise  # else the signal ended the input before the first step
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        self.obey()

    @contextlib.contextmanager
    def obeying_at_once(self) -> Iterator[None]:
        """Lets signals have their own effect, one that came before too.

        For what runs within training when a checkpoint was just saved, an evaluation for
        instance: there is no step to finish.
        """
        if not _in_main_thread():
            yield
            return
        noting = self._step_aside()
        try:
            self.obey()
            yield
        finally:
            for number in noting:
                signal.signal(number, self.note)

    def _step_aside(self) -> list[int]:
        noting = [number for number in _DEFAULTS if signal.getsignal(number) == self.note]
        for number in noting:
            signal.signal(number, _DEFAULTS[number])
        return noting

    def obey(self) -> None:
        """Lets the signal that came have the effect that it has without this hook."""
        number, self.received = self.received, None
        if number is not None:
            os.kill(os.getpid(), number)

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Asks the session to stop once a signal came."""
        if self.received is not None:
            run_context.request_stop()

    def stops_waiting(self) -> bool:
        """Whether a signal came, so that nothing is to be waited for any more.

        From then on the next one ends the process: closing a session waits, deaf to signals
        that Python handles, for an input whose Python code blocks.
        """
        if self.received is None:
            return False
        if _in_main_thread() and signal.getsignal(signal.SIGINT) == signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        return True


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
