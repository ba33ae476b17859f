# SPDX-License-Identifier: Apache-2.0
"""A batch size that is static in one tensor is static in all, as on a TPU."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import TPUEstimatorSpec, new_estimator, run_config
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    StochasticGradientDescentParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

v1 = tf.compat.v1
SPEC = EmbeddingConfigSpec(
    table_to_config_dict={"words": TableConfig(9, 2, v1.ones_initializer(), "sum")},
    feature_to_config_dict={"bag": FeatureConfig("words"),
                            "text": FeatureConfig("words", max_sequence_length=3)},
    optimization_parameters=StochasticGradientDescentParameters(1.0))


def model_fn(features, labels, mode, params):
    batch = features["bag"].shape[0]
    assert features["text"].shape == [batch, 3, 2]
    assert features["text_seq_length_"].shape == [batch]
    flat = tf.reshape(features["text"], [features["text"].shape[0], -1])
    loss = tf.reduce_sum(tf.concat([features["bag"], flat], 1)) + tf.reduce_sum(
        v1.get_variable("w", [1])) + (tf.cast(tf.reduce_sum(labels), tf.float32))
    optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1))
    return TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(
        loss, v1.train.get_global_step()))


def input_fn_of(set_shape_of):
    """Sparse features of 8 samples without static shape; what `set_shape_of` names has it."""
    def input_fn(params):
        def to_features(numbers):
            numbers = v1.placeholder_with_default(numbers, [None])
            ids = tf.SparseTensor(tf.stack([numbers, tf.zeros_like(numbers)], 1), numbers,
                                  tf.stack([tf.size(numbers, tf.int64), 5]))
            features = {"bag": ids, "text": ids, "x": tf.cast(numbers, tf.float32)}
            labels = tf.cast(numbers, tf.int32)
            for name, tensor in (("labels", labels), ("x", features["x"])):
                tensor.set_shape([8] if name in set_shape_of else [None])
            return features, labels
        return tf.data.Dataset.from_tensors(np.arange(8, dtype=np.int64)).map(
            to_features).repeat(2)
    return input_fn


@pytest.mark.parametrize("set_shape_of", [["labels"], ["x", "labels"]])
@pytest.mark.parametrize("replicas", [1, 2])
def test_batch_size_is_static(tmp_path, set_shape_of, replicas):
    config = run_config(upstream.tpu_config.TPUConfig(
        num_shards=replicas,
        per_host_input_for_training=upstream.tpu_config.InputPipelineConfig.PER_HOST_V1))
    seen = []

    def seeing(features, labels, mode, params):
        seen.append(features["bag"].shape[0])
        return model_fn(features, labels, mode, params)

    estimator = new_estimator(tmp_path, seeing, spec=SPEC, config=config, batch_size=8)
    estimator.train(input_fn_of(set_shape_of), max_steps=2)
    assert seen == [8 // replicas]


def test_ids_of_another_number_than_the_static_one_are_refused(tmp_path):
    def input_fn(params):
        def wrong(features, labels):
            return features, tf.ones([4], tf.int32)
        return input_fn_of([])(params).map(wrong)

    with pytest.raises(tf.errors.InvalidArgumentError, match="as the static shapes of the input"):
        new_estimator(tmp_path, model_fn, spec=SPEC, batch_size=8).train(input_fn, max_steps=1)


def test_ids_beyond_the_end_of_a_sequence_are_not_looked_at(tmp_path):
    def input_fn(params):
        good = tf.sparse.from_dense([[1, 2], [3, 4]])
        long = tf.sparse.from_dense([[1, 2, 3, 99, -7], [1, 0, 2, 0, 99]])
        return tf.data.Dataset.from_tensors(({"bag": good, "text": long}, [0, 0]))

    estimator = new_estimator(tmp_path, model_fn, spec=SPEC, batch_size=2)
    estimator.train(input_fn, max_steps=1)
    assert estimator.get_variable_value("global_step") == 1
