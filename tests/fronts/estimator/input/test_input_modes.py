# SPDX-License-Identifier: Apache-2.0
"""The batches of each replica, by input mode, and other results of an input_fn."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import (
    VOCABULARY,
    TPUEstimatorSpec,
    counts,
    counts_of,
    new_estimator,
    new_spec,
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


@pytest.mark.parametrize("num_shards", [None, 2])
def test_labels_and_nested_features_stand_beside_embeddings(tmp_path, num_shards):
    """Labels of any depth, given within the features as programs for TPUs did."""
    def input_fn(params):
        def to_features(ids):
            x = tf.cast(ids, tf.float32)
            return {"id": ids, "labels": x, "more": {"deep": {"x": x, "two": tf.stack(
                [x, x], 1)}}}
        return tf.data.Dataset.range(8).batch(4, drop_remainder=True).map(to_features)

    def model_fn(features, labels, mode, params):
        assert labels is None
        deep = features["more"]["deep"]
        size = params["batch_size"]
        assert [deep["x"].shape.as_list(), deep["two"].shape.as_list()] == [[size], [size, 2]]
        difference = features["labels"] - deep["x"] + deep["two"][:, 0] - deep["x"]
        loss = tf.reduce_sum(tf.abs(difference)) - tf.reduce_sum(features["id"])
        if mode == "infer":
            return TPUEstimatorSpec(mode, predictions={
                "count": features["id"], "labels": features["labels"]})
        return TPUEstimatorSpec(
            mode, loss=loss, train_op=train_op(loss) if mode == "train" else None)

    estimator = new_estimator(
        tmp_path, model_fn, batch_size=4, spec=new_spec(),
        config=run_config(upstream.tpu_config.TPUConfig(num_shards=num_shards)))
    estimator.train(input_fn, max_steps=100)
    assert counts(estimator) == counts_of(*range(8))
    loss = estimator.evaluate(input_fn)["loss"]
    assert loss == -4.0 / (num_shards or 1)  # the mean over replicas of sums over samples
    labels = [prediction["labels"] for prediction in estimator.predict(input_fn)]
    np.testing.assert_array_equal(labels, range(8))
