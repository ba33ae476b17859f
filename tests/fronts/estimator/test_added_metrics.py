# SPDX-License-Identifier: Apache-2.0
"""tf.estimator.add_metrics over a TPUEstimator."""

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tpu_estimator_embedding import tf_estimator

tpu_estimator_embedding.install()

v1 = tf.compat.v1
IDS = np.arange(8, dtype=np.int64).reshape(8, 1)
DENSE = np.linspace(0, 1, 8, dtype=np.float32)
LABELS = np.linspace(-1, 2, 8, dtype=np.float32)
COLUMN = v1.tpu.experimental.embedding_column(
    tf.feature_column.categorical_column_with_identity("a", 9), 2,
    initializer=tf.compat.v1.constant_initializer(0.25))


def input_fn(params):
    data = tf.data.Dataset.from_tensor_slices(({"a": IDS, "dense": DENSE}, LABELS)).repeat()
    data = data.batch(params["batch_size"], drop_remainder=True)
    return data.map(lambda features, labels: (
        {**features, "a": tf.sparse.from_dense(features["a"] + 1)}, labels))


def model_fn(features, labels, mode, params):
    with tf.name_scope("model"):
        z = tf.reduce_sum(v1.feature_column.input_layer(features, [COLUMN]), axis=1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return v1.estimator.tpu.TPUEstimatorSpec(mode, predictions={"z": z})
    loss = tf.reduce_mean((z + features["dense"] - labels) ** 2)
    train_op = None
    if mode == "train":
        train_op = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1)).minimize(
            loss, v1.train.get_or_create_global_step())
    return v1.estimator.tpu.TPUEstimatorSpec(
        mode, loss=loss, train_op=train_op, predictions={"z": z},
        eval_metrics=(lambda z: {"own": v1.metrics.mean(z), "both": v1.metrics.mean(z)}, [z]))


def new_estimator(directory, model_fn=model_fn, num_shards=1, **options):
    return v1.estimator.tpu.TPUEstimator(
        model_fn, str(directory), v1.estimator.tpu.RunConfig(
            tpu_config=v1.estimator.tpu.TPUConfig(2, num_shards)),
        train_batch_size=4, eval_batch_size=4, predict_batch_size=4,
        embedding_config_spec=v1.estimator.tpu.experimental.EmbeddingConfigSpec(
            [COLUMN], v1.tpu.experimental.StochasticGradientDescentParameters(0.1)), **options)


def error_of(features, labels, predictions):
    return {"error": v1.metrics.mean(
        (predictions["z"] + features["dense"] - labels) ** 2),
        "both": v1.metrics.mean(labels)}


@pytest.mark.slow
@pytest.mark.parametrize("num_shards", [1, 2])
@pytest.mark.parametrize("add", [
    lambda *args: tf.estimator.add_metrics(*args),
    lambda *args: v1.estimator.add_metrics(*args), tf_estimator.add_metrics])
def test_metrics_of_both_are_those_of_the_whole_batch(tmp_path, add, num_shards):
    own = new_estimator(tmp_path, num_shards=num_shards)
    estimator = add(own, error_of)
    assert isinstance(estimator, v1.estimator.tpu.TPUEstimator)
    assert estimator.model_dir == own.model_dir
    estimator.train(input_fn, max_steps=4)
    found = estimator.evaluate(input_fn, steps=2)
    before = own.evaluate(input_fn, steps=2)
    assert "error" not in before and found["own"] == before["own"] and before["own"] != 0.5
    assert found["global_step"] == 4
    np.testing.assert_allclose(found["both"], LABELS.mean(), rtol=1e-6)
    np.testing.assert_allclose(found["error"], before["loss"], rtol=1e-6)
    predicted = [prediction["z"] for prediction, _ in zip(
        estimator.predict(input_fn), range(8), strict=False)]
    np.testing.assert_allclose(found["error"], np.mean((predicted + DENSE - LABELS) ** 2),
                               rtol=1e-5)


def test_two_functions_add_up(tmp_path):
    estimator = tf.estimator.add_metrics(
        tf.estimator.add_metrics(new_estimator(tmp_path), error_of),
        lambda labels, config: {"most": v1.metrics.mean(tf.reduce_max(labels)),
                                "seed": v1.metrics.mean(float(config.save_summary_steps))})
    estimator.train(input_fn, max_steps=2)
    assert {"own", "both", "error", "most", "seed"} <= set(estimator.evaluate(input_fn, steps=2))


@pytest.mark.slow
def test_metrics_of_an_estimator_spec(tmp_path):
    def with_ops(features, labels, mode, params):
        return model_fn(features, labels, mode, params).as_estimator_spec()

    estimator = tf.estimator.add_metrics(
        new_estimator(tmp_path, with_ops, eval_on_tpu=False), error_of)
    estimator.train(input_fn, max_steps=2)
    found = estimator.evaluate(input_fn, steps=2)
    np.testing.assert_allclose(found["error"], found["loss"], rtol=1e-6)


def test_other_estimators_are_extended_as_before(tmp_path):
    without_engine = new_estimator(tmp_path, use_tpu=False)
    extended = tf.estimator.add_metrics(without_engine, error_of)
    assert not isinstance(extended, v1.estimator.tpu.TPUEstimator)
    plain = tf.estimator.add_metrics(v1.estimator.DNNClassifier(
        [2], [tf.feature_column.numeric_column("dense")]), lambda labels: {})
    assert isinstance(plain, v1.estimator.Estimator)


def test_wrong_argument_of_the_function_is_named(tmp_path):
    with pytest.raises(ValueError, match="has following not expected args"):
        tf.estimator.add_metrics(new_estimator(tmp_path), lambda logits: {})


def test_model_fn_of_the_estimator_says_what_it_takes(tmp_path):
    estimator = new_estimator(tmp_path)
    with tf.Graph().as_default(), pytest.raises(
            TypeError, match="`features` must be the input that train.* build, got .* wrap the "):
        estimator.model_fn({"a": tf.zeros([4, 2])}, tf.zeros([4]), "eval", estimator.config)
