# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM end training after the step they come in, with a checkpoint of it."""

import os
import signal

import pytest
import tensorflow as tf

from tests.estimator.counting import counts, counts_of, input_of, new_estimator
from tests.subprocesses import run_python


class Send(tf.compat.v1.train.SessionRunHook):
    """Sends this process a signal in one step."""

    def __init__(self, number, step):
        self._number, self._step, self._runs = number, step, 0

    def before_run(self, run_context):
        self._runs += 1
        if self._runs == self._step:
            os.kill(os.getpid(), self._number)


def test_interrupt_saves_the_step_and_is_raised_afterwards(tmp_path):
    estimator = new_estimator(tmp_path)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        estimator.train(input_of(range(10)), max_steps=100, hooks=[Send(signal.SIGINT, 2)])
    assert signal.getsignal(signal.SIGINT) == handler
    assert estimator.latest_checkpoint() == str(tmp_path / "model.ckpt-2")
    assert counts(estimator) == counts_of(*range(4))


def test_second_interrupt_stops_at_once(tmp_path):
    class Wait(tf.compat.v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("nothing comes after the second signal")

    with pytest.raises(KeyboardInterrupt):
        new_estimator(tmp_path).train(input_of(range(10)), max_steps=100, hooks=[Wait()])
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_handler_of_the_program_stays_in_place(tmp_path):
    received = []
    previous = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        estimator = new_estimator(tmp_path)
        estimator.train(input_of(range(4)), max_steps=100, hooks=[Send(signal.SIGTERM, 1)])
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert received == [signal.SIGTERM]
    assert counts(estimator) == counts_of(*range(4))


def test_termination_saves_the_step_and_ends_the_process(tmp_path):
    with pytest.raises(AssertionError):  # the process does not exit with 0
        run_python(f"""
            import signal
            from tests.estimator.counting import input_of, new_estimator
            from tests.estimator.test_interrupts import Send
            new_estimator("{tmp_path}").train(input_of(range(10)), max_steps=100,
                                              hooks=[Send(signal.SIGTERM, 3)])
            print("still here")
        """)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-3")
