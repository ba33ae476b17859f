# SPDX-License-Identifier: Apache-2.0
"""Model_fns that wrap themselves for inference on a TPU: their exports serve without one."""

import collections

import pytest
import tensorflow as tf

import tpu_estimator_embedding

tpu_estimator_embedding.install()

from tensorflow.python.tpu import tpu_estimator  # noqa: E402  (exists once it is installed)

v1 = tf.compat.v1
BatchConfig = collections.namedtuple("BatchConfig", [
    "num_batch_threads", "max_batch_size", "batch_timeout_micros", "allowed_batch_sizes",
    "max_enqueued_batches"])
BATCHES = BatchConfig(2, 8, 1000, [4, 8], 10)


@pytest.mark.parametrize("max_batch_size", [0, 8])
def test_inference_on_tpu_computes(max_batch_size):
    with tf.Graph().as_default(), v1.Session() as session:
        factor = v1.get_variable("factor", initializer=3.0, use_resource=True)
        outputs = tpu_estimator.inference_on_tpu(
            lambda x, y: (x * factor, x + y), [tf.constant([1.0, 2.0]), tf.constant([5.0, 5.0])],
            num_batch_threads=1, max_batch_size=max_batch_size, batch_timeout_micros=100)
        session.run(v1.global_variables_initializer())
        scaled, total = session.run(outputs)
    assert scaled.tolist() == [3, 6] and total.tolist() == [6, 7]


@pytest.mark.parametrize("batches", [None, BATCHES])
def test_call_computation_takes_nests(batches):
    with tf.Graph().as_default(), v1.Session() as session:
        outputs = tpu_estimator.call_computation(
            {"x": tf.constant([1.0]), "y": tf.constant([2.0])},
            lambda inputs: [inputs["x"] - inputs["y"]], batch_config=batches)
        assert [value.tolist() for value in session.run(outputs)] == [[-1]]


def model_fn(features, labels, mode, config, params):
    if mode == tf.estimator.ModeKeys.PREDICT and params["use_tpu"]:
        return tpu_estimator.model_fn_inference_on_tpu(
            model_fn, features, labels, config, {**params, "use_tpu": False},
            batch_config=params["batches"])
    net = features["x"]
    if params["column"]:
        net = v1.feature_column.input_layer(features, [params["column"]])
    factor = v1.get_variable("factor", [1], initializer=tf.ones_initializer())
    predictions = {"y": tf.reduce_sum(net, axis=1) * factor}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return v1.estimator.tpu.TPUEstimatorSpec(mode, predictions=predictions, export_outputs={
            "serving_default": tf.estimator.export.PredictOutput(predictions)})
    loss = tf.reduce_mean((predictions["y"] - labels) ** 2)
    optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1))
    return v1.estimator.tpu.TPUEstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, v1.train.get_global_step()))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("batches", [None, BATCHES], ids=["plain", "batched"])
@pytest.mark.parametrize("has_table", [False, True], ids=["dense", "table"])
def test_self_wrapped_model_serves(tmp_path, version, batches, has_table):
    column = v1.tpu.experimental.embedding_column(
        tf.feature_column.categorical_column_with_identity("x", 10), 1,
        initializer=tf.ones_initializer()) if has_table else None
    spec = v1.estimator.tpu.experimental.EmbeddingConfigSpec(
        [column], v1.tpu.experimental.StochasticGradientDescentParameters(0.1)) if column else None
    estimator = v1.estimator.tpu.TPUEstimator(
        model_fn, str(tmp_path / "model"), v1.estimator.tpu.RunConfig(),
        {"column": column, "batches": batches}, train_batch_size=2, predict_batch_size=2,
        embedding_config_spec=spec, export_saved_model_api_version=version)
    kind = tf.int64 if column else tf.float32
    estimator.train(lambda params: tf.data.Dataset.from_tensors(
        ({"x": tf.ones([2, 1], kind)}, tf.constant([1.0, 1.0]))).repeat(), steps=1)

    def receive():
        x = v1.placeholder(kind, [None, 1])
        return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})

    exported = estimator.export_saved_model(str(tmp_path / "export"), receive)
    for tags in (["serve"], ["serve", "tpu"]):
        serve = tf.saved_model.load(exported.decode(), tags).signatures["serving_default"]
        [served] = serve(x=tf.constant([[3], [4]], kind)).values()
        assert served.numpy().tolist() == ([1, 1] if column else [3, 4])
