# SPDX-License-Identifier: Apache-2.0
"""The progress line shows step, loss, examples and the starting point."""

import tensorflow as tf

from tpu_estimator_embedding.demo.phases import Progress


def run_steps(progress: Progress, start: int, steps: int) -> None:
    with tf.Graph().as_default():
        step = tf.compat.v1.train.get_or_create_global_step()
        loss = tf.constant(0.25)
        train_op = tf.compat.v1.assign_add(step, 1)
        scaffold = tf.compat.v1.train.Scaffold(
            init_fn=lambda _, session: step.load(start, session))
        hook = progress.hook(loss)
        with tf.compat.v1.train.SingularMonitoredSession([hook], scaffold) as session:
            for _ in range(steps):
                session.run(train_op)


def test_one_line_shows_all_sessions(capsys):
    progress = Progress(examples=1000, batch_size=300)
    run_steps(progress, start=0, steps=3)
    run_steps(progress, start=3, steps=1)
    progress.close()
    last = capsys.readouterr().err.strip().rpartition("\r")[2]
    assert "Training: 100%" in last
    assert "1.00k/1.00k" in last
    assert "step=4" in last
    assert "loss=0.2500" in last


def test_progress_line_of_a_resumed_run_starts_where_it_stopped(capsys):
    progress = Progress(examples=1200, batch_size=300)
    run_steps(progress, start=2, steps=1)
    progress.close()
    lines = capsys.readouterr().err
    assert "600/1.20k" in lines
    assert "900/1.20k" in lines.strip().rpartition("\r")[2]
    assert "step=3" in lines
