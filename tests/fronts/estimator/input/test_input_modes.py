# SPDX-License-Identifier: Apache-2.0
"""The batches of each replica, by input mode, and other results of an input_fn."""

import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import (
    VOCABULARY,
    TPUEstimatorSpec,
    counts,
    counts_of,
    new_estimator,
    run_config,
)
from tests.fronts.estimator.hang import finish
from tpu_estimator_embedding.compat import upstream

v1 = tf.compat.v1
Modes = upstream.tpu_config.InputPipelineConfig


def train_op(loss):
    optimizer = v1.tpu.CrossShardOptimizer(
        v1.train.GradientDescentOptimizer(1.0), reduction=v1.losses.Reduction.SUM)
    return optimizer.minimize(loss, v1.train.get_global_step())


def ids_of(features):
    return features["id"] if isinstance(features, dict) else features


def dense_model_fn(features, labels, mode, params):
    """Counts ids in an ordinary variable, which needs no embeddings."""
    table = v1.get_variable("counts", [VOCABULARY, 1], initializer=v1.zeros_initializer())
    loss = -tf.reduce_sum(tf.gather(table, ids_of(features)))
    if mode == "eval":
        ids = ids_of(features)
        return TPUEstimatorSpec(mode, loss=loss, eval_metrics=(
            lambda ids: {"sum": v1.metrics.mean(tf.reduce_sum(ids))}, [ids]))
    return TPUEstimatorSpec(mode, loss=loss, train_op=train_op(loss))


def new_dense(model_dir, input_mode, num_shards=2, batch_size=4, **tpu_options):
    return new_estimator(
        model_dir, dense_model_fn, batch_size=batch_size, embedding_config_spec=None,
        config=run_config(upstream.tpu_config.TPUConfig(
            num_shards=num_shards, per_host_input_for_training=input_mode, **tpu_options)))


def own_range(params):
    """Gives ids 0 to 3 to the first call, 4 to 7 to the second."""
    index = params["context"].current_input_fn_deployment()[1]
    return tf.data.Dataset.range(4 * index, 4 * index + 4).batch(params["batch_size"])


@pytest.mark.parametrize("input_mode, input_fn, steps, expected", [
    (Modes.PER_SHARD_V1, own_range, 2, counts_of(*range(8))),  # a call for each replica
    (Modes.BROADCAST, own_range, 1, [2 * count for count in counts_of(*range(4))]),
    (Modes.PER_HOST_V1, own_range, 1, counts_of(*range(4))),
    (Modes.PER_HOST_V2, own_range, 1, counts_of(*range(4))),
])
def test_replicas_get_the_batches_of_their_mode(tmp_path, input_mode, input_fn, steps, expected):
    estimator = new_dense(tmp_path, input_mode)
    finish(estimator.train, input_fn, max_steps=100)
    assert counts(estimator) == expected
    assert estimator.get_variable_value("global_step") == steps


def test_calls_for_each_replica_end_with_the_shortest(tmp_path):
    def input_fn(params):
        return own_range(params).take(2 - params["context"].current_input_fn_deployment()[1])

    estimator = new_dense(tmp_path, Modes.PER_SHARD_V1)
    finish(estimator.train, input_fn, max_steps=100)
    assert counts(estimator) == counts_of(0, 1, 4, 5)


@pytest.mark.slow
def test_evaluation_of_each_mode_sees_every_sample(tmp_path):
    """BROADCAST shows each replica the whole batch, and metrics see it from all of them."""
    new_dense(tmp_path, Modes.PER_HOST_V1).train(own_range, max_steps=1)
    for input_mode, expected in ((Modes.PER_SHARD_V1, 6), (Modes.PER_HOST_V1, 6),
                                 (Modes.PER_HOST_V2, 6), (Modes.BROADCAST, 12)):
        metrics = new_dense(tmp_path, input_mode).evaluate(own_range)
        assert (metrics["sum"], metrics["global_step"]) == (expected, 1)
    sliced = new_dense(tmp_path, Modes.PER_HOST_V2,
                       eval_training_input_configuration=Modes.SLICED)
    assert sliced.evaluate(own_range)["sum"] == 6


def test_sliced_evaluation_needs_the_engine(tmp_path):
    config = run_config(upstream.tpu_config.TPUConfig(
        eval_training_input_configuration=Modes.SLICED))
    estimator = new_estimator(tmp_path, dense_model_fn, use_tpu=False, config=config,
                              embedding_config_spec=None)
    with pytest.raises(ValueError, match="SLICED mode only works on use_tpu = True"):
        estimator.evaluate(lambda params: tf.constant([1]), steps=1)


def tensors(params):
    return tf.constant([1, 2, 3, 4], tf.int64)


def iterator_tensors(params):
    return v1.data.make_one_shot_iterator(
        tf.data.Dataset.range(1, 5).batch(params["batch_size"])).get_next()


def features_of_dataset(params):
    return tf.data.Dataset.range(1, 5).batch(params["batch_size"])


def pairs_of_dataset(params):
    return features_of_dataset(params).map(lambda ids: (ids, {"y": ids}))


def tensors_with_labels(params):
    return {"id": tensors(params)}, {"y": tensors(params)}


def labels_in_features(params):
    return features_of_dataset(params).map(lambda ids: {"id": ids, "labels": {"y": ids}})


@pytest.mark.parametrize("num_shards", [None, 2])
@pytest.mark.parametrize("input_fn", [
    tensors, iterator_tensors, features_of_dataset, pairs_of_dataset, tensors_with_labels,
    labels_in_features])
def test_input_of_every_form(tmp_path, input_fn, num_shards):
    estimator = new_dense(tmp_path, Modes.PER_HOST_V1, num_shards)
    finish(estimator.train, input_fn, max_steps=1)
    assert counts(estimator) == counts_of(1, 2, 3, 4)
