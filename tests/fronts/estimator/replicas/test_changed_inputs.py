# SPDX-License-Identifier: Apache-2.0
"""A model_fn may change its features and labels in place: every replica sees the same model.

    loss = mean(w · x), where the model doubles x before,

so that from w = 1 a step of SGD with the rate 0.1 on x = 1 gives w = 0.8, and the mean of what the
model saw as x is 2, whatever the number of replicas.
"""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu.ops import tpu_ops

from tests.fronts.estimator.counting import TPUEstimatorSpec, new_estimator, new_spec, run_config
from tests.fronts.estimator.replica_model import V1, Values, v1
from tpu_estimator_embedding.compat import upstream

BATCH_SIZE = 8
Point = collections.namedtuple("Point", ["x", "y"])
ModeKeys = upstream.model_fn.ModeKeys


@dataclasses.dataclass
class Sample:
    """Features that are a dataclass; `tf.nest` knows it by its two methods."""

    x: tf.Tensor
    y: tf.Tensor

    def __tf_flatten__(self):
        return (), (self.x, self.y)

    @classmethod
    def __tf_unflatten__(cls, metadata, components):
        return cls(*components)


def in_dictionary(features, labels):
    features["x"] *= 2
    return features["x"]


def popped(features, labels):
    y = features.pop("y")
    assert "y" not in features
    return y * 2


def key_added(features, labels):
    features["a"] = features["x"] + 1  # sorts before all others
    return features["a"]


def cleared(features, labels):
    x = features["x"]
    features.clear()
    labels.clear()
    return 2 * x


def exchanged(features, labels):
    """Each takes the place of the other."""
    features["x"], features["zero"] = features["zero"], 2 * features["x"]
    return features["zero"]


def replaced_by_unrelated(features, labels):
    features["x"] = tf.ones([1])
    features["zero"] = tf.zeros([])
    return features["x"] + features["y"]


def label_forgotten(features, labels):
    labels["y"] = None
    return 2 * features["x"]


# Those of labels and of inner dictionaries are in programs/found.
CHANGES = [in_dictionary, popped, key_added, label_forgotten, cleared, exchanged,
           replaced_by_unrelated]


def batch():
    ones = np.ones([2 * BATCH_SIZE], np.float32)
    return {"x": ones, "y": ones, "zero": 0 * ones, "inner": {"x": ones},
            "id": np.zeros(2 * BATCH_SIZE, np.int64)}, {"y": ones}


def dataset(params):
    return tf.data.Dataset.from_tensor_slices(batch()).batch(
        params["batch_size"], drop_remainder=True)


def new_model_fn(change, **calls):
    """Returns a model_fn of a change; `calls` are made of what the model sees as x."""
    def model_fn(features, labels, mode, params):
        embedding = features.get("id") if isinstance(features, dict) else None
        x = change(features, labels)
        weight = v1.get_variable("weight", [], initializer=v1.ones_initializer())
        if mode == ModeKeys.PREDICT:
            return TPUEstimatorSpec(mode, predictions={"x": x * weight})
        loss = tf.reduce_mean(weight * x)
        if embedding is not None and embedding.dtype.is_floating:
            loss += 0 * tf.reduce_sum(embedding)
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1))
        return TPUEstimatorSpec(
            mode, loss=loss, train_op=optimizer.minimize(loss, v1.train.get_global_step())
            if mode == ModeKeys.TRAIN else None, eval_metrics=(metrics, [x]),
            **{name: make(x) for name, make in calls.items()})
    return model_fn


def metrics(x):
    return {"x": v1.metrics.mean(x)}


def replicated(tmp_path, model_fn, num_replicas, spec=None, input_mode=V1, **options):
    config = run_config(upstream.tpu_config.TPUConfig(
        num_shards=num_replicas, per_host_input_for_training=input_mode, iterations_per_loop=1),
        save_checkpoints_steps=None, save_checkpoints_secs=None)
    return new_estimator(tmp_path, model_fn, config=config, batch_size=BATCH_SIZE,
                         embedding_config_spec=spec, **options)


def trained_weight(estimator, input_fn=dataset):
    values = Values()
    estimator.train(input_fn, max_steps=1, hooks=[values])
    return values.of_step[-1]["weight"]


def check_right(tmp_path, model_fn, num_replicas, input_fn=dataset, **options):
    """Trains a step, and evaluates from the start."""
    weight = trained_weight(replicated(tmp_path / "train", model_fn, num_replicas, **options),
                            input_fn)
    np.testing.assert_allclose(weight, 0.8, 1e-6)
    estimator = replicated(tmp_path / "evaluate", model_fn, num_replicas, **options)
    assert estimator.evaluate(input_fn, steps=2)["x"] == 2.0


@pytest.mark.parametrize("change", CHANGES)
def test_every_replica_sees_the_input_as_it_was(tmp_path, change):
    spec = new_spec() if CHANGES.index(change) % 2 else None
    check_right(tmp_path, new_model_fn(change), 4, spec=spec)


@pytest.mark.parametrize("change", CHANGES)
def test_one_replica_does_too(tmp_path, change):
    check_right(tmp_path, new_model_fn(change), 1, spec=new_spec())
    predictions = replicated(tmp_path / "predict", new_model_fn(
        lambda features, labels: change(features, {"y": tf.ones([])})), 2).predict(dataset)
    assert {float(prediction["x"]) for prediction in predictions} == {2.0}


def as_point(features, labels):
    return Point(features["x"], {"y": features["y"]}), labels


@pytest.mark.parametrize("num_replicas", [2])
def test_namedtuple_with_a_dictionary(tmp_path, num_replicas):
    def change(features, labels):
        features.y["y"] *= 2
        return features.x * features.y["y"]

    check_right(tmp_path, new_model_fn(change), num_replicas,
                lambda params: dataset(params).map(as_point))


@pytest.mark.parametrize("num_replicas", [2])
def test_dataclass(tmp_path, num_replicas):
    def change(features, labels):
        assert isinstance(features, Sample)
        features.x, features.y = features.x + features.y, None
        return features.x

    def input_fn(params):
        features, _ = v1.data.make_one_shot_iterator(dataset(params)).get_next()
        return Sample(features["x"], features["y"]), None

    check_right(tmp_path, new_model_fn(change), num_replicas, input_fn)


@pytest.mark.slow
@pytest.mark.parametrize("num_replicas", [1, 2])
def test_sparse_and_ragged_features(tmp_path, num_replicas):
    def change(features, labels):
        assert isinstance(features["sparse"], tf.SparseTensor)
        features["sparse"] *= 2.0
        features["ragged"] *= 2
        return tf.reduce_mean(features.pop("ragged"), 1) * (
            tf.sparse.to_dense(features.pop("sparse"))[:, 0] / 2)

    def input_fn(params):
        return dataset(params).map(lambda features, labels: {
            "sparse": tf.sparse.from_dense(features["x"][:, tf.newaxis]),
            "ragged": tf.RaggedTensor.from_tensor(features["y"][:, tf.newaxis])})

    check_right(tmp_path, new_model_fn(change), num_replicas, input_fn)


@pytest.mark.parametrize("num_replicas", [2])
def test_host_call_gets_what_the_model_made_of_all_shares(tmp_path, num_replicas):
    seen = []

    def host_fn(x):
        return tf.numpy_function(lambda x: seen.append(x.tolist()) or np.int64(0), [x], tf.int64)

    model_fn = new_model_fn(in_dictionary, host_call=lambda x: (host_fn, [x]))
    check_right(tmp_path, model_fn, num_replicas)
    assert seen == [[2.0] * BATCH_SIZE] * 3


def test_features_are_returned_as_predictions(tmp_path):
    def model_fn(features, labels, mode, params):
        features["x"] *= 2
        del features["inner"]
        return TPUEstimatorSpec(mode, predictions=features)

    [*predictions] = replicated(tmp_path, model_fn, 2, spec=new_spec()).predict(dataset)
    assert len(predictions) == 2 * BATCH_SIZE
    assert {(sample["x"], sample["y"], sample["id"].shape) for sample in predictions} == {
        (2.0, 1.0, (1,))}


def test_features_of_an_earlier_call_are_not_those_of_a_later_one(tmp_path):
    kept = []

    def change(features, labels):
        for earlier in kept:
            earlier.clear()
        kept.append(features)
        return in_dictionary(features, labels)

    estimator = replicated(tmp_path, new_model_fn(change), 2)
    for _ in range(2):
        estimator.train(dataset, steps=1)
    assert estimator.evaluate(dataset, steps=1)["x"] == 2.0
    assert sorted(map(len, kept)) == [0, 0, 5]


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_model_may_change_its_params_and_config(tmp_path, num_replicas):
    seen = []

    def model_fn(features, labels, mode, params, config):
        seen.append((params.pop("inner"), params.pop("batch_size")))
        config.session_config.log_device_placement = True
        return new_model_fn(in_dictionary)(features, labels, mode, params)

    def input_fn(params):
        features = dataset(dict(params))
        assert params.pop("inner") == {"rate": [1]}
        params.clear()
        return features

    given = {"inner": {"rate": [1]}}
    estimator = replicated(tmp_path, model_fn, num_replicas, params=given)
    given["inner"]["rate"].append(2)
    check = [trained_weight(estimator, input_fn), estimator.evaluate(input_fn, steps=2)["x"]]
    np.testing.assert_allclose(check, [0.8, 2.0], 1e-6)
    assert seen == [({"rate": [1]}, BATCH_SIZE // num_replicas)] * 2
    assert not estimator.config.session_config.log_device_placement


def test_every_core_calls_input_fn_with_its_own_params(tmp_path):
    def input_fn(params):
        del params["start"]
        return dataset(params)

    mode = upstream.tpu_config.InputPipelineConfig.PER_SHARD_V1
    estimator = replicated(tmp_path, new_model_fn(in_dictionary), 2, input_mode=mode,
                           params={"start": 0})
    assert trained_weight(estimator, input_fn) == np.float32(0.8)


@pytest.mark.parametrize("change, error, fact", [
    (lambda features: {"x": features["x"], "z": features["y"]}, ValueError, "'z'"),
    (lambda features: (features["x"], features["y"]), TypeError, "type tuple"),
    (lambda features: {"x": features["x"], "y": tf.cast(features["y"], tf.int32)}, ValueError,
     "int32"),
    (lambda features: {"x": features["x"], "y": tf.stack([features["y"]] * 2, 1)}, ValueError,
     r"\(4, 2\)")])
def test_cores_whose_inputs_differ_are_refused(tmp_path, change, error, fact):
    def input_fn(params):
        def of_call(features, labels):
            features = {"x": features["x"], "y": features["y"]}
            return features if params["context"].current_input_fn_deployment()[1] == 0 else (
                change(features), None)[0]

        return Features(dataset(params).map(of_call))

    class Features:
        def __new__(cls, features):
            return v1.data.make_one_shot_iterator(features).get_next(), None

    mode = upstream.tpu_config.InputPipelineConfig.PER_SHARD_V1
    estimator = replicated(tmp_path, new_model_fn(in_dictionary), 2, input_mode=mode)
    with pytest.raises(error, match=f"(?s){fact}.*Replica 1 must get features and labels of the "
                                    "same structure"):
        estimator.train(input_fn, steps=1)


def test_object_that_may_hide_tensors_is_refused(tmp_path):
    """It would be read apart from the rest of its batch."""
    class Batch:
        x = y = None

    with pytest.raises(TypeError, match="The result of input_fn at '0/b' must be a tensor, got"):
        replicated(tmp_path, new_model_fn(popped), 1).train(
            lambda params: ({"y": tf.ones([8]), "b": Batch()}, None), steps=1)


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_arrays_of_an_input_are_not_changed(tmp_path, num_replicas):
    """In place, a model could otherwise change the program's own array."""
    x = np.ones([BATCH_SIZE], np.float32)
    check_right(tmp_path, new_model_fn(in_dictionary), num_replicas, lambda params: {"x": x})
    assert x.tolist() == [1.0] * BATCH_SIZE


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("capture", [lambda batch: batch["x"], lambda batch: batch["noise"]])
def test_model_that_captures_a_batch_is_refused(tmp_path, num_replicas, capture):
    captured = {}

    def input_fn(params):
        features, labels = v1.data.make_one_shot_iterator(dataset(params)).get_next()
        captured.update(x=features["x"], noise=2 * tf.random.uniform([4]))
        return features, labels

    model_fn = new_model_fn(lambda features, labels: capture(captured) * 2)
    with pytest.raises(ValueError, match="model_fn must take its input through `features` and "
                                         "`labels`, got an op .* that uses .* of input_fn"):
        replicated(tmp_path, model_fn, num_replicas).train(input_fn, steps=1)


def test_model_may_use_what_does_not_change(tmp_path):
    """Constants, and variables with random initial values."""
    captured = {}

    def input_fn(params):
        captured["two"] = tf.constant(2.0)
        captured["variable"] = v1.get_variable(
            "one", [], initializer=v1.random_uniform_initializer(1.0, 1.0))
        return v1.data.make_one_shot_iterator(dataset(params)).get_next()

    def change(features, labels):
        return captured["variable"] * captured["two"] * features["x"]

    check_right(tmp_path, new_model_fn(change), 2, input_fn)


def test_summaries_of_the_input_take_no_batch(tmp_path, logged):
    """Three batches are trained on, although summaries are written after every step."""
    def input_fn(params):
        x = v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(
            np.ones([3, BATCH_SIZE], np.float32))).get_next()
        v1.summary.scalar("total", tf.reduce_sum(x))
        v1.summary.scalar("constant", tf.constant(1.0))
        return {"x": x}

    model_fn = new_model_fn(in_dictionary)
    config = run_config(save_summary_steps=1)
    estimator = new_estimator(tmp_path, model_fn, config=config, embedding_config_spec=None)
    estimator.train(input_fn, max_steps=100)
    assert estimator.get_variable_value("global_step") == 3
    assert len(logged("summary 'total' of input_fn is not written")) == 1


@pytest.mark.parametrize("name", ["eval_metrics", "host_call"])
@pytest.mark.parametrize("capture", [lambda features: features["x"],
                                     lambda features: 2 * tf.nn.relu(features["inner"]["x"]),
                                     lambda features: features["id"],
                                     lambda features: tpu_ops.collective_permute(
                                         features["x"], [[0, 0]])])
def test_host_function_that_captures_a_tensor_is_refused(tmp_path, name, capture):
    """It would be that of the first replica. One replica has all."""
    def model_fn(features, labels, mode, params):
        captured = capture(features)
        loss = tf.reduce_mean(features["x"]) + tf.reduce_sum(features["id"])
        return TPUEstimatorSpec(mode, loss=loss, **{name: (
            lambda y: {"x": v1.metrics.mean(captured)}, [features["y"]])})

    evaluate = [replicated(tmp_path, model_fn, number, new_spec()).evaluate for number in (1, 2)]
    evaluate[0](dataset, steps=1)
    with pytest.raises(ValueError, match="eval_metrics and host_call must be given the tensors "
                                         "that they use, got an op .* of model_fn, which belongs"):
        evaluate[1](dataset, steps=1)


def test_host_function_may_capture_what_replicas_share(tmp_path):
    def model_fn(features, labels, mode, params):
        weight = v1.get_variable("weight", [], initializer=v1.ones_initializer())
        total = v1.tpu.cross_replica_sum(tf.reduce_sum(features["x"]))
        v1.summary.scalar("x", tf.reduce_sum(features["x"]))
        return TPUEstimatorSpec(
            mode, loss=tf.reduce_mean(features["x"]),
            scaffold_fn=lambda: v1.train.Scaffold(summary_op=v1.summary.merge_all()),
            eval_metrics=(lambda x: {"x": v1.metrics.mean(weight + total + x)}, [features["x"]]))

    assert replicated(tmp_path, model_fn, 4).evaluate(dataset, steps=1)["x"] == 10.0
