# SPDX-License-Identifier: Apache-2.0
"""Columns with `embedding_lookup_device="tpu_tensor_core"`: the model's optimizer trains them."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_estimator import estimator as tf_estimator

from tests.fronts.estimator.counting import TPUEstimatorSpec
from tests.fronts.estimator.examples import example_of
from tests.fronts.estimator.replica_model import (
    V1,
    V2,
    cross_shard_sgd,
    minimize,
    new_replicated,
    v1,
)
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column

ROWS, DIM, WIDTH, RATE = 6, 2, 2, 0.5
DIRECTION = np.array([1.0, -2.0], np.float32)
MASK = "tiny__TENSOR_CORE_MASK"
SAMPLES = [[1, 2], [3], [], [5, 5, 1], [2, 0], [0], [4, 1, 3], [2]]  # a third id is cut off


def tensor_core_column(combiner="mean", device="tpu_tensor_core", width=WIDTH):
    return embedding_column(
        tf.feature_column.categorical_column_with_identity("tiny", ROWS), DIM, combiner,
        v1.constant_initializer(0.5), embedding_lookup_device=device,
        tensor_core_shape=[None, width])


def engine_column():
    return embedding_column(tf.feature_column.categorical_column_with_identity("big", ROWS), DIM,
                            "sum", v1.constant_initializer(0.5))


def sparse_samples(samples):
    return tf.sparse.from_dense(tf.ragged.constant(
        [[id + 1 for id in ids] for ids in samples], tf.int64).to_tensor(shape=[None, 3]))


def features_of(samples=SAMPLES):
    ids = sparse_samples(samples)
    ids = tf.SparseTensor(ids.indices, ids.values - 1, ids.dense_shape)
    return {"tiny": ids, "big": ids, "y": tf.linspace(-1.0, 1.0, len(samples))}


def input_fn(params):
    return tf.data.Dataset.from_tensors(features_of()).repeat(2)


def input_for_each_replica(params):
    size = params["batch_size"]
    shares = [features_of(SAMPLES[start:start + size]) for start in range(0, 8, size)]
    for share, y in zip(shares, tf.split(tf.linspace(-1.0, 1.0, 8), len(shares)), strict=True):
        share["y"] = y
    dataset = tf.data.Dataset.from_tensors(shares[0])
    for share in shares[1:]:
        dataset = dataset.concatenate(tf.data.Dataset.from_tensors(share))
    return dataset.repeat(2)


def new_model_fn(columns):
    def model_fn(features, labels, mode, params):
        embedded = [tf.keras.layers.DenseFeatures([column], name=f"take{index}")(features)
                    for index, column in enumerate(columns)]
        predictions = tf.linalg.matvec(tf.add_n(embedded), DIRECTION)
        if mode == "infer":
            return TPUEstimatorSpec(
                mode, predictions={"p": predictions}, export_outputs={
                    "serving_default": tf_estimator.export.PredictOutput({"p": predictions})})
        loss = tf.reduce_mean(tf.square(predictions - features["y"])) / 2
        return TPUEstimatorSpec(mode, loss=loss, train_op=minimize(loss, cross_shard_sgd(RATE))
                                if mode == "train" else None)
    return model_fn


def new(model_dir, columns, num_replicas=1, **options):
    return new_replicated(model_dir, new_model_fn(columns), num_replicas,
                          spec=EmbeddingConfigSpec(columns, AdagradParameters(0.1)), **options)


def looked_up(table, samples, combiner, width=WIDTH):
    """`[batch, DIM]`, and for each sample the coefficients `[ROWS]` of the rows."""
    shares = np.zeros([len(samples), ROWS])
    for sample, ids in enumerate(samples):
        for id in ids[:width]:
            shares[sample, id] += 1.0 / (len(ids[:width]) if combiner == "mean" else 1.0)
    return shares @ table, shares


def expected_table(combiner, steps=2):
    table, y = np.full([ROWS, DIM], 0.5), np.linspace(-1.0, 1.0, 8)
    for _ in range(steps):
        activations, shares = looked_up(table, SAMPLES, combiner)
        residual = (activations @ DIRECTION - y) / 8
        table = table - RATE * shares.T @ np.multiply.outer(residual, DIRECTION)
    return table


@pytest.mark.slow
@pytest.mark.parametrize("combiner, num_replicas, input_mode, input_fn", [
    ("mean", 1, V1, input_fn), ("sum", 1, V1, input_fn), ("mean", 2, V1, input_fn),
    ("sum", 4, V2, input_for_each_replica)])
def test_the_optimizer_of_the_model_trains_the_table(tmp_path, combiner, num_replicas, input_mode,
                                                     input_fn):
    estimator = new(tmp_path, [tensor_core_column(combiner)], num_replicas, input_mode=input_mode)
    estimator.train(input_fn, max_steps=100)
    name = "take0/tiny_embedding/embedding_weights"
    assert estimator.get_variable_names() == ["global_step", name]
    assert estimator.get_variable_value("global_step") == 2
    table = expected_table(combiner)
    np.testing.assert_allclose(estimator.get_variable_value(name), table, 1e-5, 1e-6)
    activations, _ = looked_up(table, SAMPLES, combiner)
    predictions = activations @ DIRECTION
    loss = np.mean((predictions - np.linspace(-1.0, 1.0, 8)) ** 2) / 2
    assert estimator.evaluate(input_fn)["loss"] == pytest.approx(loss, rel=1e-4)
    actual = [prediction["p"] for prediction in estimator.predict(
        lambda params: tf.data.Dataset.from_tensors(features_of()))]
    np.testing.assert_allclose(actual, predictions, 1e-4, 1e-5)


@pytest.mark.slow
def test_export_serves_both_kinds(tmp_path):
    estimator = new(tmp_path / "model", [tensor_core_column(), engine_column()])
    estimator.train(input_fn, max_steps=100)

    receive = tf_estimator.export.build_parsing_serving_input_receiver_fn(
        {name: tf.io.VarLenFeature(tf.int64) for name in ("tiny", "big")})
    path = estimator.export_saved_model(str(tmp_path / "export"), receive).decode()
    serve = tf.saved_model.load(path, ["serve"]).signatures["serving_default"]
    predictions = [prediction["p"] for prediction in estimator.predict(
        lambda params: tf.data.Dataset.from_tensors(features_of()))]
    examples = [example_of(tiny=ids, big=ids).SerializeToString() for ids in SAMPLES]
    np.testing.assert_allclose(serve(examples=tf.constant(examples))["p"], predictions, 1e-5, 1e-6)


def test_combiner_sqrtn_is_refused(tmp_path):
    with pytest.raises(ValueError, match="^Dense TPU Embedding does not support combiner other "
                       "than sum and mean. `feature_columns` must have combiner 'mean' or 'sum' "
                       "where embedding_lookup_device is 'tpu_tensor_core', got {'tiny': 'sqrtn'}"):
        new(tmp_path, [tensor_core_column("sqrtn")])


def of_tensorflow(width, categorical=None, rate=None):
    return v1.tpu.experimental.embedding_column(
        categorical or tf.feature_column.categorical_column_with_identity("tiny", ROWS), DIM, "sum",
        learning_rate_fn=rate, embedding_lookup_device="tpu_tensor_core",
        tensor_core_shape=[None, width])


def weighted():
    return tf.feature_column.weighted_categorical_column(
        tf.feature_column.categorical_column_with_identity("tiny", ROWS), "w")


@pytest.mark.parametrize("columns, sentence", [
    (lambda: [of_tensorflow(2, weighted())],
     "`feature_columns` must have no weights where embedding_lookup_device is 'tpu_tensor_core', "
     "which ignores them, got {'tiny': 'w'}. Use embedding_lookup_device='tpu_embedding_core'"),
    (lambda: [of_tensorflow(2, rate=lambda step: 0.1)],
     "`feature_columns` must have no learning_rate_fn where embedding_lookup_device is "
     r"'tpu_tensor_core', because the model's optimizer trains them, got \['tiny'\]"),
    (lambda: [of_tensorflow(1), of_tensorflow(3)],
     "`feature_columns` must have one number of ids in tensor_core_shape for all columns of a "
     r"feature, got {'tiny': \[1, 3\]}. Give the second column a copy of the feature"),
    (lambda: [tensor_core_column(), tensor_core_column(device=None)],
     "`feature_columns` must have no other column of a feature where embedding_lookup_device is "
     r"'tpu_tensor_core', got \['tiny'\]. Give the second column a copy"),
    *((functools.partial(lambda width: [of_tensorflow(width)], width),
       rf"`tensor_core_shape\[1\]` must be an int of at least 1, got {width!r}")
      for width in (0, None, "3"))])
def test_columns_that_would_look_up_something_else_are_refused(tmp_path, columns, sentence):
    with pytest.raises(ValueError, match=sentence):
        new(tmp_path, columns())


@pytest.mark.parametrize("change, sentence", [
    (lambda features: {**features, MASK: features["y"]},
     f"`features` must have no key '{MASK}', which is reserved for a mask"),
    (lambda features: {"y": features["y"]},
     r"`features` must have the embedding feature 'tiny', got \['y'\]. Return it from input_fn"),
    (lambda features: {**features, "tiny": tf.zeros([8, 2], tf.int64)},
     "Ids of feature 'tiny' must be a SparseTensor of integers"),
    (lambda features: {**features, "tiny": tf.cast(features["tiny"], tf.float32)},
     "Ids of feature 'tiny' must be a SparseTensor of integers")])
def test_features_that_cannot_be_padded_are_refused(tmp_path, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        new(tmp_path, [tensor_core_column()]).train(
            lambda params: input_fn(params).map(change), max_steps=1)


def test_sample_outside_of_the_dense_shape_is_named(tmp_path):
    def outside(features):
        indices = tf.concat([features["tiny"].indices[:-1], [[9, 0]]], 0)
        return {**features, "tiny": tf.SparseTensor(
            indices, features["tiny"].values, features["tiny"].dense_shape)}

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"^Sample indices of feature 'tiny' "
                       r"must be in \[0, 8\), the batch size in its dense_shape, got \[0 9\]"):
        new(tmp_path, [tensor_core_column()]).train(
            lambda params: input_fn(params).map(outside), max_steps=1)
