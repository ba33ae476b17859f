# SPDX-License-Identifier: Apache-2.0
"""tf.contrib.estimator.forward_features and clip_gradients_by_norm."""

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding

tpu_estimator_embedding.install()

v1 = tf.compat.v1
KEYS = np.array([f"example {i}" for i in range(6)])
VALUES = np.arange(6, dtype=np.float32)
COLUMN = v1.tpu.experimental.embedding_column(
    tf.feature_column.categorical_column_with_identity("a", 9), 2)


@pytest.fixture(scope="module", name="contrib")
def what_programs_call_contrib():
    from tpu_estimator_embedding.compat.contrib import modules
    return modules.estimator


def input_fn(params=None):
    data = tf.data.Dataset.from_tensor_slices({
        "key": KEYS, "value": VALUES, "a": np.arange(6).reshape(6, 1)}).batch(
            3, drop_remainder=True)
    return data.map(lambda features: {
        **features, "a": tf.sparse.from_dense(features["a"] + 1),
        "tags": tf.sparse.from_dense(tf.strings.regex_replace(
            features["key"][:, None], ".*[024]", ""))})


def model_fn(features, labels, mode, params):
    doubled = 2 * features.pop("value")  # what programs do to the features they are given
    if isinstance(features["a"], tf.Tensor):
        doubled += 0 * tf.reduce_sum(v1.feature_column.input_layer(features, [COLUMN]))
    predictions = {"doubled": doubled}
    return v1.estimator.tpu.TPUEstimatorSpec(
        mode, predictions=predictions, export_outputs={
            "serving_default": v1.estimator.export.PredictOutput(predictions)})


def with_tables(directory):
    return v1.estimator.tpu.TPUEstimator(
        model_fn, str(directory), v1.estimator.tpu.RunConfig(),
        train_batch_size=3, predict_batch_size=3,
        embedding_config_spec=v1.estimator.tpu.experimental.EmbeddingConfigSpec(
            [COLUMN], v1.tpu.experimental.StochasticGradientDescentParameters(0.1)))


def plain(directory):
    def without_tpu(features, mode, params):
        return model_fn(features, None, mode, params).as_estimator_spec()

    return v1.estimator.Estimator(without_tpu, str(directory), params={})


@pytest.mark.parametrize("new", [plain, with_tables])
@pytest.mark.parametrize("keys, names", [
    ("key", {"key"}), (["key", "value"], {"key", "value"}), (["tags"], {"tags"})])
def test_features_are_among_the_predictions(contrib, tmp_path, new, keys, names):
    estimator = contrib.forward_features(new(tmp_path), keys, {"tags": "none"})
    assert isinstance(estimator, type(new(tmp_path)))
    found = list(estimator.predict(input_fn))
    assert len(found) == 6 and set(found[0]) == names | {"doubled"}
    for i, one in enumerate(found):
        assert one["doubled"] == 2 * i
        if "key" in names:
            assert one["key"].decode() == KEYS[i]
        if "value" in names:
            assert one["value"] == i
        if "tags" in names:
            assert one["tags"].tolist() == [b"none" if i % 2 == 0 else KEYS[i].encode()]


def test_all_features_but_those_of_tables(contrib, tmp_path):
    [one, *_] = contrib.forward_features(with_tables(tmp_path)).predict(input_fn)
    assert set(one) == {"doubled", "key", "value", "tags"}


@pytest.mark.parametrize("keys, error, message", [
    (["nothing"], ValueError, "`keys` must be features, which are .*got .'nothing'"),
    (["a"], ValueError, "their activations, not their ids"),
    ([3], TypeError, "`keys` must be a name or a list of names, got 3")])
def test_wrong_keys_are_errors(contrib, tmp_path, keys, error, message):
    with pytest.raises(error, match=message):
        list(contrib.forward_features(with_tables(tmp_path), keys).predict(input_fn))


@pytest.mark.parametrize("features, predictions, message", [
    ([[1.0]], lambda features: {"x": features}, "`features` must be a dictionary"),
    ({"key": [1.0]}, lambda features: features["key"], "`predictions` must be a dictionary")])
def test_without_dictionaries_there_is_nothing_to_forward(contrib, tmp_path, features, predictions,
                                                          message):
    def without(features, labels, mode, params):
        return v1.estimator.EstimatorSpec(mode, predictions=predictions(features))

    estimator = contrib.forward_features(
        v1.estimator.Estimator(without, str(tmp_path), params={}), "key")
    with pytest.raises(ValueError, match=message):
        list(estimator.predict(lambda: tf.data.Dataset.from_tensors(features)))


def test_name_of_a_prediction_is_an_error(contrib, tmp_path):
    def same_name(features, labels, mode, params):
        return v1.estimator.EstimatorSpec(mode, predictions={"key": features["value"]})

    estimator = contrib.forward_features(
        v1.estimator.Estimator(same_name, str(tmp_path), params={}), "key")
    with pytest.raises(ValueError, match="different from the names of predictions"):
        list(estimator.predict(input_fn))


def test_exported_model_returns_the_features(contrib, tmp_path):
    estimator = contrib.forward_features(v1.estimator.Estimator(
        lambda features, mode: v1.estimator.EstimatorSpec(
            mode, loss=tf.constant(0.0), predictions={"doubled": 2 * features["value"]},
            train_op=v1.train.get_global_step().assign_add(1), export_outputs={
                "serving_default": v1.estimator.export.PredictOutput(
                    {"doubled": 2 * features["value"]})}), str(tmp_path / "model")), "key")
    estimator.train(input_fn, steps=1)

    def receiver():
        features = {"key": v1.placeholder(tf.string, [None]),
                    "value": v1.placeholder(tf.float32, [None])}
        return v1.estimator.export.ServingInputReceiver(features, dict(features))

    path = estimator.export_saved_model(str(tmp_path / "export"), receiver)
    serve = tf.saved_model.load(path.decode()).signatures["serving_default"]
    found = serve(key=tf.constant(["x", "y"]), value=tf.constant([1.0, 2.0]))
    assert found["key"].numpy().tolist() == [b"x", b"y"]
    assert found["doubled"].numpy().tolist() == [2, 4]


@pytest.mark.parametrize("across", [False, True])
def test_gradients_have_at_most_the_norm(contrib, across):
    with tf.Graph().as_default(), v1.Session() as session:
        a, b = (v1.get_variable(name, initializer=[0.0], use_resource=True) for name in "ab")
        optimizer = contrib.clip_gradients_by_norm(v1.train.MomentumOptimizer(1.0, 0.0), 1.0)
        if across:
            optimizer = v1.tpu.CrossShardOptimizer(optimizer)
        step = optimizer.minimize(3 * a[0] + 4 * b[0], v1.train.get_or_create_global_step())
        small = optimizer.minimize(0.03 * a[0])
        session.run(v1.global_variables_initializer())
        session.run(step)
        np.testing.assert_allclose(session.run([a[0], b[0]]), [-0.6, -0.8], rtol=1e-6)
        assert session.run(v1.train.get_global_step()) == 1
        session.run(small)
        np.testing.assert_allclose(session.run(a[0]), -0.63, rtol=1e-6)
        with pytest.raises(ValueError, match="No variables provided"):
            contrib.clip_gradients_by_norm(optimizer, 1.0).apply_gradients([])
        assert optimizer.get_slot_names() == ["momentum"]
