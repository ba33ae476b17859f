# SPDX-License-Identifier: Apache-2.0
"""Programs tuned for loops of steps save, log and stop at the steps that they name."""

import datetime

import numpy as np
import pytest
import tensorflow as tf

from tests.estimator.counting import counts, counts_of, input_of, new_estimator, run_config
from tests.estimator.test_host_functions import events, model_fn_of
from tpu_estimator_embedding.estimator import upstream

v1 = tf.compat.v1
TPUConfig = upstream.tpu_config.TPUConfig


class Steps(v1.train.SessionRunHook):
    """Notes the global step after every run."""

    def begin(self):
        self.seen = []
        self._step = v1.train.get_global_step()

    def after_run(self, run_context, run_values):
        self.seen.append(int(run_context.session.run(self._step)))


class Saved(v1.train.CheckpointSaverListener):
    def begin(self):
        self.seen = []

    def after_save(self, session, global_step_value):
        self.seen.append(int(global_step_value))


def make_spec(features):
    v1.summary.scalar("total", tf.reduce_sum(features["id"]))
    return {}


@pytest.mark.parametrize("iterations", [1, 1000, np.int64(3), "30s"])
def test_every_step_is_seen_and_the_last_one_is_named(tmp_path, iterations):
    """A loop of 1000 steps on a TPU would neither save at 2 nor stop at 5 of 7."""
    logged, steps, saved = [], Steps(), Saved()
    config = run_config(TPUConfig(iterations_per_loop=iterations), save_checkpoints_steps=2,
                        save_summary_steps=3, log_step_count_steps=2)
    estimator = new_estimator(tmp_path, model_fn_of(make_spec), config=config)
    log = v1.train.LoggingTensorHook({"step": "global_step"}, every_n_iter=2,
                                     formatter=lambda values: logged.append(values["step"]))
    estimator.train(input_of(range(12)), max_steps=5, hooks=[steps, log],
                    saving_listeners=[saved])
    assert steps.seen == [1, 2, 3, 4, 5]
    assert saved.seen == [0, 2, 4, 5]
    assert len(logged) == 3  # runs 1, 3 and 5
    assert counts(estimator) == counts_of(*range(10))
    written = events(tmp_path)
    assert {step for tag, step in written if tag == "total"} == {1, 4}
    assert {step for tag, step in written if tag == "examples/sec"} == {3, 5}
    estimator.train(input_of(range(12)), steps=2, hooks=[
        steps, v1.train.StopAtStepHook(last_step=6)])
    assert steps.seen == [6]
    estimator.train(input_of(range(12)), steps=2, hooks=[steps])
    assert steps.seen == [7, 8]


@pytest.mark.parametrize("iterations", [
    0, -1, 1.5, "0s", "5d", "s", "", None, True, datetime.timedelta(seconds=30)])
def test_other_lengths_of_a_loop_are_refused(iterations):
    with pytest.raises(ValueError, match="Invalid TPUConfig `iterations_per_loop` value"):
        TPUConfig(iterations_per_loop=iterations)


@pytest.mark.parametrize("iterations", ["2", "5m", "1h", 10 ** 6])
def test_counts_and_durations_are_taken(iterations):
    assert TPUConfig(iterations_per_loop=iterations).iterations_per_loop == iterations
