# SPDX-License-Identifier: Apache-2.0
"""The arguments of an input_fn, and what it may return."""

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
    run_config,
)
from tests.fronts.estimator.hang import finish
from tpu_estimator_embedding.compat import upstream

TPUConfig = upstream.tpu_config.TPUConfig
V1 = upstream.tpu_config.InputPipelineConfig.PER_HOST_V1
V2 = upstream.tpu_config.InputPipelineConfig.PER_HOST_V2


def from_tensors(ids):
    """Features that every step computes again, here the same each time."""
    return {"id": tf.constant(ids, tf.int64)}


def one_shot(ids):
    return tf.compat.v1.data.make_one_shot_iterator(input_of(ids)({})).get_next()


def initializable(ids):
    iterator = tf.compat.v1.data.make_initializable_iterator(input_of(ids)({}))
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS,
                                   iterator.initializer)
    return iterator.get_next()


@pytest.mark.parametrize("make", [one_shot, initializable])
def test_tensors_of_an_iterator_end_with_it(tmp_path, make):
    estimator = new_estimator(tmp_path)
    finish(estimator.train, lambda params: make(range(5)), max_steps=100)
    assert counts(estimator) == counts_of(*range(5))


def test_labels_and_other_features_arrive_as_they_are(tmp_path):
    """Nested, sparse, ragged and string features, and labels of any structure."""
    seen = {}

    def model_fn(features, labels, mode, params):
        seen.update(features=sorted(features), labels=sorted(labels),
                    text=features["text"].dtype, inner=features["inner"]["x"].shape.as_list())
        target = tf.reduce_sum(tf.cast(labels["y"], tf.float32)) + tf.sparse.reduce_sum(
            features["sparse"]) + tf.reduce_sum(features["ragged"]) + tf.reduce_sum(
            features["inner"]["x"])
        loss = tf.stop_gradient(target) - tf.reduce_sum(features["id"])
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss) if mode == "train" else
                                None)

    def input_fn(params):
        def to_features(ids):
            floats = tf.cast(ids, tf.float32)
            return {"id": ids, "text": tf.strings.as_string(ids), "inner": {"x": floats},
                    "sparse": tf.sparse.from_dense(floats[:, tf.newaxis]),
                    "ragged": tf.RaggedTensor.from_tensor(floats[:, tf.newaxis])}, {"y": ids}
        return input_of(range(4))(params).map(lambda features: to_features(features["id"]))

    estimator = new_estimator(tmp_path, model_fn)
    estimator.train(input_fn, max_steps=100)
    assert counts(estimator) == counts_of(*range(4))
    assert seen == {"features": ["id", "inner", "ragged", "sparse", "text"], "labels": ["y"],
                    "text": tf.string, "inner": [None]}
    # One batch of 0, 1 and one of 2, 3; every target counts it four times, every activation
    # is 1 now.
    assert estimator.evaluate(input_fn)["loss"] == np.mean([4 * 1 - 2, 4 * 5 - 2])


def test_features_of_input_fn_are_left_as_they_are(tmp_path):
    given = {}

    def input_fn(params):
        given.update(from_tensors([0, 1]))
        return given

    new_estimator(tmp_path).train(input_fn, steps=1)
    assert list(given) == ["id"]


def test_program_without_embeddings_runs(tmp_path):
    """An EmbeddingConfigSpec is optional, as it is in TensorFlow."""
    def model_fn(features, labels, mode, params):
        weight = tf.compat.v1.get_variable("weight", [],
                                           initializer=tf.compat.v1.zeros_initializer())
        loss = -tf.reduce_sum(tf.cast(features["id"], tf.float32)) * weight
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    estimator = new_estimator(tmp_path, model_fn, embedding_config_spec=None)
    estimator.train(input_of(range(4)), max_steps=100)
    assert estimator.get_variable_value("weight") == 6
    assert sorted(estimator.get_variable_names()) == ["global_step", "weight"]


@pytest.mark.parametrize("input_mode", [V1, V2])
def test_params_tell_batch_size_and_context(tmp_path, input_mode):
    seen = {}

    def input_fn(params):
        context = params["context"]
        device, *deployment = context.current_input_fn_deployment()
        seen["input_fn"] = [params["batch_size"], context.num_replicas, context.num_hosts,
                            context.current_host, deployment, params["mine"]]
        return input_of(range(12), params["batch_size"])(params)

    def model_fn(features, labels, mode, params):
        seen["model_fn", mode] = [params["batch_size"], params["context"].num_replicas,
                                  params["use_tpu"], params["mine"]]
        params["mine"] = "changed by model_fn"
        loss = -tf.reduce_sum(features["id"])
        return TPUEstimatorSpec(mode, loss=loss, predictions={"count": features["id"]},
                                train_op=count(loss) if mode == "train" else None)

    estimator = new_estimator(
        tmp_path, model_fn, config=run_config(TPUConfig(
            per_host_input_for_training=input_mode)), params={"mine": "x"},
        train_batch_size=6, eval_batch_size=4, predict_batch_size=3)
    for mode, run, size in (("train", lambda: estimator.train(input_fn, max_steps=100), 6),
                            ("eval", lambda: estimator.evaluate(input_fn), 4),
                            ("infer", lambda: list(estimator.predict(input_fn)), 3)):
        run()
        assert seen["input_fn"] == [size, 1, 1, 0, [0, 1, 1], "x"]
        assert seen["model_fn", mode] == [size, 1, True, "x"]
    assert estimator.params == {"mine": "x"}
