# SPDX-License-Identifier: Apache-2.0
"""Every batch that an input gives is used exactly once, whatever ends the run."""

import concurrent.futures
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import (
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    new_estimator,
    new_spec,
    run_config,
)
from tests.fronts.estimator.hang import finish
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column

TPUConfig = upstream.tpu_config.TPUConfig
V1 = upstream.tpu_config.InputPipelineConfig.PER_HOST_V1
V2 = upstream.tpu_config.InputPipelineConfig.PER_HOST_V2


def config_of(input_mode):
    return run_config(TPUConfig(per_host_input_for_training=input_mode))


@pytest.mark.smoke
@pytest.mark.parametrize("input_mode", [V1, V2])
@pytest.mark.parametrize("num_ids, stop, steps", [
    (7, {"max_steps": 100}, 4),  # the last batch is smaller
    (8, {"max_steps": 100}, 4),
    (8, {"max_steps": 4}, 4),  # input and steps end together
    (8, {"max_steps": 3}, 3),
    (8, {"steps": 1}, 1),
    (2, {"max_steps": 100}, 1),  # one batch
    (1, {"steps": 1}, 1),
])
def test_every_batch_is_trained_on_once(tmp_path, input_mode, num_ids, stop, steps):
    estimator = new_estimator(tmp_path, config=config_of(input_mode))
    finish(estimator.train, input_of(range(num_ids)), **stop)
    assert counts(estimator) == counts_of(*range(num_ids)[:2 * steps])
    assert estimator.get_variable_value("global_step") == steps


def test_empty_input_makes_no_step_and_logs_it(tmp_path, logged):
    estimator = new_estimator(tmp_path)
    finish(estimator.train, input_of([]), max_steps=5)
    assert logged("the input ended before the first step")
    assert counts(estimator) == counts_of()
    assert estimator.get_variable_value("global_step") == 0
    assert finish(list, estimator.predict(input_of([]))) == []


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("num_ids", [0, 4])
def test_end_of_input_runs_no_op_that_does_not_depend_on_it(tmp_path, num_ids, pipelined):
    """Where the input ends, neither is the step counted nor a regularized variable changed."""
    def model_fn(features, labels, mode, params):
        kernel = tf.compat.v1.get_variable("kernel", [],
                                           initializer=tf.compat.v1.zeros_initializer())
        loss = -tf.reduce_sum(features["id"])
        step = tf.compat.v1.train.get_global_step()
        return TPUEstimatorSpec(mode, loss=loss, train_op=tf.group(
            count(loss), step.assign_add(10), kernel.assign_add(1.0)))

    estimator = new_estimator(
        tmp_path, model_fn, spec=new_spec(pipeline_execution_with_tensor_core=pipelined))
    finish(estimator.train, input_of(range(num_ids)), max_steps=100)
    assert counts(estimator) == counts_of(*range(num_ids))
    assert estimator.get_variable_value("global_step") == 11 * num_ids // 2
    assert estimator.get_variable_value("kernel") == num_ids // 2


@pytest.mark.parametrize("steps, ids", [(None, range(7)), (2, range(4)), (100, range(7))])
def test_every_batch_is_evaluated_once(tmp_path, steps, ids):
    def model_fn(features, labels, mode, params):
        loss = -tf.reduce_sum(features["id"])
        if mode == "train":
            return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))
        return TPUEstimatorSpec(mode, loss=loss, eval_metrics=(
            lambda raw: {"mean": tf.compat.v1.metrics.mean(raw)}, [features["raw"]]))

    def with_raw(params):
        return input_of(range(7))(params).map(lambda features: {**features, "raw": features["id"]})

    estimator = new_estimator(tmp_path, model_fn)
    estimator.train(with_raw, max_steps=1)
    result = finish(estimator.evaluate, with_raw, steps=steps)
    assert result["mean"] == np.mean(ids)
    assert result["global_step"] == 1


def test_session_that_is_lost_is_made_again_from_the_checkpoint(tmp_path):
    """What a coordinator does when a worker was preempted: restore, and start the input again."""
    class Preempt(tf.compat.v1.train.SessionRunHook):
        runs = 0

        def after_run(self, run_context, run_values):
            self.runs += 1
            if self.runs == 3:
                raise tf.errors.AbortedError(None, None, "preempted")

    hook = Preempt()
    estimator = new_estimator(tmp_path, config=run_config(save_checkpoints_steps=2))
    finish(estimator.train, input_of(range(8)), max_steps=5, hooks=[hook])
    # Steps 1 and 2 were saved, step 3 was lost; three more steps are made of new input.
    assert hook.runs == 6
    assert estimator.get_variable_value("global_step") == 5
    assert counts(estimator) == counts_of(*range(4), *range(6))


def test_two_programs_may_train_at_the_same_time(tmp_path):
    """Each in its own thread, each with the names of its columns' scopes."""
    both_inside = threading.Barrier(2, timeout=60)

    def train(scope):
        column = embedding_column(tf.feature_column.categorical_column_with_identity("id", 9), 2)

        def model_fn(features, labels, mode, params):
            with tf.compat.v1.variable_scope(scope):
                both_inside.wait()
                net = tf.compat.v1.feature_column.input_layer(features, [column])
                both_inside.wait()
            loss = tf.reduce_sum(net)
            return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

        estimator = new_estimator(tmp_path / scope, model_fn, spec=EmbeddingConfigSpec(
            [column], AdagradParameters(0.1)))
        estimator.train(lambda params: {"id": tf.sparse.from_dense([[1], [2]])}, steps=2)
        return estimator.get_variable_names()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        for scope, names in zip("ab", pool.map(train, "ab"), strict=True):
            table = f"{scope}/input_layer/id_embedding/embedding_weights"
            assert names == [table, f"{table}/Adagrad", "global_step"]
