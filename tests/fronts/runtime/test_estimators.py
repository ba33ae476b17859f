# SPDX-License-Identifier: Apache-2.0
"""tensorflow_estimator itself works after install(): train, evaluate, predict, export."""

import tempfile

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests.subprocesses import run_python

tpu_estimator_embedding.install()

feature_column = tf.feature_column
NUMBERS = feature_column.numeric_column("numbers", (3,))
GROUP = feature_column.categorical_column_with_identity("group", 2)
DENSE = [NUMBERS, feature_column.embedding_column(GROUP, 2)]


def input_fn():
    numbers = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    features = {"numbers": numbers, "group": (numbers[:, 0] > 0).astype(np.int64)}
    labels = (numbers.sum(axis=1) > 0).astype(np.int64)
    return tf.data.Dataset.from_tensor_slices((features, labels)).batch(8)


def serving_input_receiver_fn():
    return tf.estimator.export.build_parsing_serving_input_receiver_fn(
        feature_column.make_parse_example_spec(DENSE))()


def model_fn(features, labels, mode):
    hidden = tf.compat.v1.feature_column.input_layer(features, DENSE)
    hidden = tf.keras.layers.Dense(4)(hidden)
    output = tf.compat.v1.layers.dense(hidden, 1)[:, 0]
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"output": output}, export_outputs={
            "serving_default": tf.estimator.export.PredictOutput({"output": output})})
    loss = tf.reduce_mean((output - tf.cast(labels, tf.float32)) ** 2)
    step = tf.compat.v1.train.AdamOptimizer().minimize(
        loss, tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step, eval_metric_ops={
        "mean": tf.compat.v1.metrics.mean(output)})


MAKERS = {
    "a model_fn": lambda: tf.estimator.Estimator(model_fn),
    "a model_fn of v1": lambda: tf.compat.v1.estimator.Estimator(model_fn),
    "DNNClassifier": lambda: tf.estimator.DNNClassifier([4], DENSE),
    "DNNLinearCombinedClassifier of v1": lambda:
        tf.compat.v1.estimator.DNNLinearCombinedClassifier(
            linear_feature_columns=[GROUP], dnn_feature_columns=DENSE, dnn_hidden_units=[3]),
}


@pytest.fixture(autouse=True)
def model_directories_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_estimator_trains_evaluates_predicts_and_exports(make, tmp_path):
    estimator = make()
    exporter = tf.estimator.LatestExporter("latest", serving_input_receiver_fn)
    metrics, _ = tf.estimator.train_and_evaluate(
        estimator, tf.estimator.TrainSpec(lambda: input_fn().repeat(), max_steps=6),
        tf.estimator.EvalSpec(input_fn, exporters=exporter))
    assert metrics["global_step"] == 6 and np.isfinite(metrics["loss"])
    assert len(list(estimator.predict(input_fn))) == 32
    model = tf.saved_model.load(
        estimator.export_saved_model(str(tmp_path), serving_input_receiver_fn).decode())
    assert "serving_default" in model.signatures


@pytest.mark.long
def test_keras_model_becomes_an_estimator():
    """In a separate process: TensorFlow 2.15 takes the optimizers of the Keras loaded last."""
    run_python("""
        import numpy as np
        import tensorflow as tf
        import tpu_estimator_embedding

        tpu_estimator_embedding.install()
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,), name="numbers")])
        model.compile("sgd", "mse")
        estimator = tf.keras.estimator.model_to_estimator(model)

        def input_fn():
            numbers = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
            return tf.data.Dataset.from_tensor_slices((numbers, numbers.sum(axis=1))).batch(8)

        estimator.train(input_fn, steps=2)
        assert np.isfinite(estimator.evaluate(input_fn)["loss"])
        """)
