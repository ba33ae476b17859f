# SPDX-License-Identifier: Apache-2.0
"""Tensors that replicas pass to the host: metrics and host calls get the whole batch."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import replica_model
from tests.fronts.estimator.counting import TPUEstimatorSpec
from tests.fronts.estimator.replica_model import (
    BATCH_SIZE,
    V1,
    V2,
    assert_same_values,
    input_of,
    linear,
    metrics_of,
    minimize,
    new_model_fn,
    new_replicated,
    train,
    v1,
)
from tpu_estimator_embedding.compat import upstream

EstimatorSpec = upstream.model_fn.EstimatorSpec


@pytest.mark.parametrize("as_dictionary", [False, True])
@pytest.mark.parametrize("num_replicas, input_mode", [(1, V1), (4, V1), (2, V2)])
def test_host_call_gets_the_whole_batch_in_every_step(tmp_path, num_replicas, input_mode,
                                                      as_dictionary):
    calls = []

    def host_fn(step, x):
        return tf.numpy_function(lambda *values: calls.append(values) or np.int64(0), [step, x],
                                 tf.int64)

    def model_fn(features, labels, mode, params):
        loss = tf.reduce_mean(tf.square(linear(features, params) - labels))
        step = tf.reshape(v1.train.get_global_step(), [1])
        tensors = {"step": step, "x": features["x"]}
        return TPUEstimatorSpec(
            mode, loss=loss, train_op=minimize(loss),
            host_call=(host_fn, tensors if as_dictionary else [step, features["x"]]))

    train(tmp_path, model_fn, num_replicas, input_mode=input_mode)
    assert [len(steps) for steps, _ in calls] == [num_replicas] * 3
    np.testing.assert_array_equal(np.concatenate([x for _, x in calls]),
                                  replica_model.arrays(3 * BATCH_SIZE)["x"])


@pytest.mark.parametrize("name", ["eval_metrics", "host_call"])
def test_scalars_cannot_be_put_together(tmp_path, name):
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_mean(linear(features, params))
        call = (lambda loss: {"loss": v1.metrics.mean(loss)}, [loss])
        return TPUEstimatorSpec(mode, loss=loss, **{name: call})

    new_replicated(tmp_path, model_fn, 1)  # where there is one replica, it is as ever
    with pytest.raises(RuntimeError, match="^All tensors outfed from TPU should preserve batch "
                       rf"size dimension, but got scalar .* Reshape a scalar of {name} to \[1\]"):
        new_replicated(tmp_path, model_fn, 2).evaluate(input_of(), steps=1)


@pytest.mark.long
def test_plain_spec_of_evaluation_sees_the_whole_batch(tmp_path):
    """With eval_on_tpu=False it is allowed, and there is one replica for it."""
    def model_fn(features, labels, mode, params):
        seen.append((params["batch_size"], params["context"].num_replicas))
        predictions = linear(features, params)
        loss = tf.reduce_mean(tf.square(predictions - labels))
        if mode == "train":
            return TPUEstimatorSpec(mode, loss=loss, train_op=minimize(loss))
        return EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics_of(labels, predictions))

    seen = []
    estimator = new_replicated(tmp_path, model_fn, 4, eval_on_tpu=False)
    estimator.train(input_of(), max_steps=1)
    metrics = estimator.evaluate(input_of())
    assert seen == [(BATCH_SIZE // 4, 4), (BATCH_SIZE, 1)]
    expected = new_replicated(tmp_path, new_model_fn(linear), 4).evaluate(input_of())
    assert_same_values(metrics, expected)
