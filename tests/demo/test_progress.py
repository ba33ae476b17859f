# SPDX-License-Identifier: Apache-2.0
"""The progress line shows step, loss, examples and the starting point."""

import time

import tensorflow as tf

from tpu_estimator_embedding.demo.clock import Clock
from tpu_estimator_embedding.demo.phases import ProgressHook


def run_steps(start: int, steps: int, examples: int, batch_size: int) -> None:
    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step()
        loss = tf.constant(0.25)
        train_op = tf.compat.v1.assign_add(step, 1)
        scaffold = tf.compat.v1.train.Scaffold(
            init_fn=lambda _, session: step.load(start, session))
        hook = ProgressHook(loss, examples, batch_size)
        with tf.compat.v1.train.SingularMonitoredSession([hook], scaffold) as session:
            for _ in range(steps):
                session.run(train_op)


def test_progress_line_ends_at_all_examples(capsys):
    run_steps(start=0, steps=4, examples=1000, batch_size=300)
    last = capsys.readouterr().err.strip().rpartition("\r")[2]
    assert "Training: 100%" in last
    assert "1.00k/1.00k" in last
    assert "step=4" in last
    assert "loss=0.2500" in last


def test_progress_line_of_a_resumed_run_starts_where_it_stopped(capsys):
    run_steps(start=2, steps=1, examples=1200, batch_size=300)
    lines = capsys.readouterr().err
    assert "600/1.20k" in lines
    assert "900/1.20k" in lines.strip().rpartition("\r")[2]
    assert "step=3" in lines


def test_clock_measures_phases_in_order():
    clock = Clock()
    with clock.phase("first"):
        time.sleep(0.02)
    with clock.phase("second"):
        pass
    assert list(clock.seconds) == ["first", "second"]
    assert 0.02 <= clock.seconds["first"] < 2


def test_clock_gives_the_rest_of_a_phase_another_name():
    clock = Clock()
    with clock.phase("start"):
        clock.go_on_as("rest")
        time.sleep(0.02)
    assert list(clock.seconds) == ["start", "rest"]
    assert clock.seconds["start"] < 0.02 <= clock.seconds["rest"]
