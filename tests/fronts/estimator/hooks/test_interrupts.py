# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM end training after the step they come in, with a checkpoint of it."""

import os
import signal
import sys
import textwrap
import threading
import time

import pytest
import tensorflow as tf
from tensorflow_estimator import estimator as tf_estimator

from tests.fronts.estimator.counting import (
    counts,
    counts_of,
    input_of,
    new_estimator,
    new_spec,
    run_config,
)
from tests.fronts.estimator.hang import finish
from tests.subprocesses import run_python, start


class Send(tf.compat.v1.train.SessionRunHook):
    """Sends this process a signal in one step."""

    def __init__(self, number, step):
        self._number, self._step, self.runs = number, step, 0

    def before_run(self, run_context):
        self.runs += 1
        if self.runs == self._step:
            os.kill(os.getpid(), self._number)


def test_interrupt_saves_the_step_and_is_raised_afterwards(tmp_path):
    estimator = new_estimator(tmp_path)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        estimator.train(input_of(range(10)), max_steps=100, hooks=[Send(signal.SIGINT, 2)])
    assert signal.getsignal(signal.SIGINT) == handler
    assert estimator.latest_checkpoint() == str(tmp_path / "model.ckpt-2")
    assert counts(estimator) == counts_of(*range(4))


def test_training_continues_after_a_caught_interrupt(tmp_path):
    estimator = new_estimator(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        estimator.train(input_of(range(10)), max_steps=4, hooks=[Send(signal.SIGINT, 3)])
    assert estimator.evaluate(input_of(range(6)))["global_step"] == 3
    estimator.train(input_of([9, 9, 9, 9]), max_steps=4)
    assert counts(estimator) == counts_of(*range(6), 9, 9)


def test_interrupt_without_engine_is_raised_at_once_as_ever(tmp_path):
    def model_fn(features, labels, mode, params):
        steps = tf.compat.v1.get_variable("steps", [], initializer=tf.zeros_initializer())
        return tf_estimator.EstimatorSpec(mode, loss=steps.read_value(), train_op=tf.group(
            steps.assign_add(1), tf.compat.v1.train.get_global_step().assign_add(1)))

    estimator = new_estimator(tmp_path, model_fn, use_tpu=False,
                              config=run_config(save_checkpoints_steps=2))
    with pytest.raises(KeyboardInterrupt):
        estimator.train(input_of(range(10)), max_steps=4, hooks=[Send(signal.SIGINT, 4)])
    assert estimator.latest_checkpoint() == str(tmp_path / "model.ckpt-2")
    estimator.train(input_of(range(10)), max_steps=4)
    assert estimator.get_variable_value("steps") == 4


def train_and_evaluate(model_dir, hooks=(), evaluation_hooks=()):
    estimator = new_estimator(model_dir, config=run_config(save_checkpoints_steps=2))
    result, _ = tf_estimator.train_and_evaluate(
        estimator,
        tf_estimator.TrainSpec(input_of(range(12)), max_steps=4, hooks=hooks),
        tf_estimator.EvalSpec(input_of(range(4)), steps=None, throttle_secs=0,
                              start_delay_secs=0, hooks=evaluation_hooks))
    return result, counts(estimator)


@pytest.mark.slow
def test_interrupt_of_train_and_evaluate_needs_no_further_evaluation(tmp_path):
    evaluated = Send(signal.SIGINT, -1)
    with pytest.raises(KeyboardInterrupt):
        train_and_evaluate(tmp_path, [Send(signal.SIGINT, 1)], [evaluated])
    assert evaluated.runs == 0
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")
    result, counted = train_and_evaluate(tmp_path)
    assert result["global_step"] == 4
    assert counted == counts_of(0, 1, *range(6))


def test_interrupt_of_an_evaluation_within_training_is_raised_at_once(tmp_path):
    evaluated = Send(signal.SIGINT, 1)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train_and_evaluate(tmp_path, [], [evaluated])
    assert evaluated.runs == 1
    assert signal.getsignal(signal.SIGINT) == handler
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-2")


@pytest.mark.slow
def test_interrupt_while_training_waits_for_input_is_raised_by_the_evaluation(tmp_path):
    """The process would end by the signal, without `finally` and the end of hooks."""
    def slow(id):
        if id == 3:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            time.sleep(2)
        return id

    def transform(id):
        return tf.ensure_shape(tf.numpy_function(slow, [id], tf.int64), [])

    handler = signal.getsignal(signal.SIGINT)
    estimator = new_estimator(tmp_path, config=run_config(save_checkpoints_steps=100))
    with pytest.raises(KeyboardInterrupt):
        tf_estimator.train_and_evaluate(
            estimator,
            tf_estimator.TrainSpec(input_of(range(12), transform=transform), max_steps=4),
            tf_estimator.EvalSpec(input_of(range(4)), throttle_secs=0, start_delay_secs=0))
    assert signal.getsignal(signal.SIGINT) == handler
    assert estimator.latest_checkpoint() == str(tmp_path / "model.ckpt-1")


@pytest.mark.slow
@pytest.mark.parametrize("pipelined", [False, True])
def test_interrupt_ends_the_wait_for_the_first_batch(tmp_path, pipelined):
    def slow(id):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        time.sleep(2)
        return id

    def transform(id):
        return tf.ensure_shape(tf.numpy_function(slow, [id], tf.int64), [])

    handler = signal.getsignal(signal.SIGINT)
    estimator = new_estimator(tmp_path, spec=new_spec(
        pipeline_execution_with_tensor_core=pipelined))
    with pytest.raises(KeyboardInterrupt):
        estimator.train(input_of([0], transform=transform), max_steps=100)
    assert signal.getsignal(signal.SIGINT) == handler
    estimator.train(input_of(range(4)), max_steps=100)
    assert counts(estimator) == counts_of(*range(4))


BLOCKED = """
    import os, signal, threading, time
    import numpy as np
    import tensorflow as tf
    from tests.fronts.estimator.counting import new_estimator

    def batches():
        yield np.array([0, 1])
        for seconds in (1.0, 4.0):  # and the user insists
            threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
        time.sleep(1000)

    def input_fn(params):
        ids = tf.data.Dataset.from_generator(batches, tf.int64, [None])
        return ids.map(lambda ids: {"id": ids})

    new_estimator("MODEL_DIR").train(input_fn, max_steps=100)
"""


@pytest.mark.long
def test_interrupts_while_the_input_is_dead_save_and_end_the_process(tmp_path):
    code = textwrap.dedent(BLOCKED).replace("MODEL_DIR", str(tmp_path))
    done = start([sys.executable, "-c", code])
    assert done.returncode == -signal.SIGINT, done.stderr
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")


def test_training_in_another_thread_leaves_handlers_alone(tmp_path):
    seen = []

    class Look(tf.compat.v1.train.SessionRunHook):
        def before_run(self, run_context):
            seen.append([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)])

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    estimator = new_estimator(tmp_path)
    finish(estimator.train, input_of(range(4)), max_steps=100, hooks=[Look()])
    finish(estimator.evaluate, input_of(range(4)))
    assert seen == [handlers] * 2
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
        with pytest.raises(KeyboardInterrupt):
            estimator.train(input_of(range(4)), max_steps=100, hooks=[Send(signal.SIGINT, 1)])
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert received == [signal.SIGTERM] * 2
    assert counts(estimator) == counts_of(*range(4), 0, 1)


@pytest.mark.long
def test_termination_saves_the_step_and_ends_the_process(tmp_path):
    with pytest.raises(AssertionError):  # the process does not exit with 0
        run_python(f"""
            import signal
            from tests.fronts.estimator.counting import input_of, new_estimator
            from tests.fronts.estimator.hooks.test_interrupts import Send
            new_estimator("{tmp_path}").train(input_of(range(10)), max_steps=100,
                                              hooks=[Send(signal.SIGTERM, 3)])
            print("still here")
        """)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-3")
