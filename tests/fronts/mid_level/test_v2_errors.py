# SPDX-License-Identifier: Apache-2.0
"""Errors of TPUEmbeddingV2, which name the feature or table, and do not change tables."""

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.optimizers import SGD, Adagrad
from tpu_estimator_embedding.mid_level.config.sparse_core_embedding_config import (
    SparseCoreEmbeddingConfig,
)
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.tpu_embedding_v2 import TPUEmbeddingV2

IDS = {"title": tf.constant([1, 2, 3, 4]), "more": [tf.constant([0, 0, 1, 2])]}


def config_of(shape=(4,), **options):
    words = TableConfig(9, 3, name="words", **options)
    return {"title": FeatureConfig(words, output_shape=shape),
            "more": [FeatureConfig(words, output_shape=[4])]}


@pytest.fixture
def embedding():
    return TPUEmbeddingV2(config_of(), Adagrad(0.1))


def with_title(value):
    return {**IDS, "title": value}


@pytest.mark.parametrize("optimizer, setting", [
    (SGD(weight_decay_factor=0.1), "weight_decay_factor"),
    (SGD(multiply_weight_decay_factor_by_learning_rate=False),
     "multiply_weight_decay_factor_by_learning_rate"),
    (Adagrad(slot_variable_creation_fn=dict), "slot_variable_creation_fn")])
def test_settings_that_stacks_do_not_have_are_refused(optimizer, setting):
    with pytest.raises(NotImplementedError,
                       match=f"(?i)`?{setting}`? of table 'words' must be None"):
        TPUEmbeddingV2(config_of(), optimizer)


@pytest.mark.parametrize("shape, sentence", [
    (None, "`output_shape` of feature 'title' must be fully defined for TPUEmbeddingV2"),
    ([None, 4], "`output_shape` of feature 'title' must be fully defined"),
    ([6], "Samples of feature 'title' must be a multiple of the SparseCores of a chip, 4, "
          "got 6")])
def test_output_shapes_are_needed(shape, sentence):
    with pytest.raises(ValueError, match=sentence):
        TPUEmbeddingV2(config_of(shape), SGD())


@pytest.mark.parametrize("features, error, sentence", [
    ({"title": IDS["title"]}, ValueError, "Missing: .'more/0'."),
    ({**IDS, "more": (IDS["more"][0],)}, TypeError, "`features` must have the structure"),
    (with_title("words"), ValueError, "Input of feature 'title' must be a Tensor, "
                                      "SparseTensor or RaggedTensor, got 'str'"),
    (with_title(tf.constant([1, 2, 3])), ValueError, "Ids of feature 'title' must be 4 values"),
    (with_title(tf.constant([1., 2, 3, 4])), ValueError, "feature 'title' must be integers"),
    (with_title(tf.sparse.from_dense([[1], [2]])), ValueError,
     r"Batch of feature 'title' must be 4, .* got \[2\]"),
    (with_title(tf.SparseTensor([[0]], [1], [4])), ValueError,
     "Rank of the sparse input of feature 'title' must be at least 2, got 1"),
    (with_title(tf.ragged.constant([[[1]], [], [], []])), ValueError,
     "Rank of the ragged input of feature 'title' must be 2, got 3"),
    (with_title(tf.ragged.constant([[1], []], dtype=tf.int64)), ValueError,
     r"Batch of feature 'title' must be 4, .* got \[2\]"),
    (with_title(tf.SparseTensor([[0, 0], [4, 0]], [1, 2], [4, 1])),
     tf.errors.InvalidArgumentError, "indices of feature .*title.* must be in .0, 4., the batch"),
    (with_title(tf.constant([1, 2, 3, 9])), tf.errors.InvalidArgumentError,
     "title.* must be in .0, 9., its vocabulary_size, got 9"),
    (with_title(tf.constant([1, 2, 3, 2**32 + 1], tf.int64)), tf.errors.InvalidArgumentError,
     "title.* must be in .0, 9., its vocabulary_size, got 4294967297")])
def test_wrong_features_are_refused_and_change_nothing(embedding, features, error, sentence):
    def train(features):
        activations, preserved = embedding(features)
        embedding.apply_gradients(activations, preserved)

    train(IDS)
    before = {slot: variable.numpy() for slot, variable in embedding.variables["words"].items()}
    with pytest.raises(error, match=sentence):
        train(features)
    for slot, variable in embedding.variables["words"].items():
        np.testing.assert_array_equal(variable.numpy(), before[slot])


@pytest.mark.parametrize("ids, weights, sentence", [
    (IDS["title"], tf.sparse.from_dense([[1.0]] * 4), "Expect weight to be Tensor type but "),
    (tf.sparse.from_dense([[1]] * 4), tf.ones([4]), "Expect weight to be SparseTensor type"),
    (tf.ragged.constant([[1]] * 4), tf.ones([4]), "Expect weight to be RaggedTensor type"),
    (IDS["title"], tf.ones([3]), "Weights of feature 'title' must be 4 values")])
def test_wrong_weights_are_refused(embedding, ids, weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        embedding(with_title(ids), {"title": weights, "more": [None]})


def test_weights_that_are_not_as_many_as_ids_are_refused(embedding):
    weights = tf.SparseTensor([[0, 0]], [1.0], [4, 1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Weights of feature .*title"):
        embedding(with_title(tf.sparse.from_dense([[1]] * 4)), {"title": weights, "more": [None]})


def test_device_must_be_a_tpu_or_of_the_strategy(embedding):
    embedding.enqueue(IDS, device="/TPU:0")
    embedding.enqueue(IDS, device="/job:localhost/replica:0/task:0/device:CPU:0")
    for device in ("/CPU:1", "/GPU:0"):
        with pytest.raises(ValueError, match=f"^Non-TPU device {device} passed to enqueue. "):
            embedding.enqueue(IDS, device=device)
    for device, error in ((3, TypeError), ("nonsense", ValueError)):
        with pytest.raises(error, match=f"Non-TPU device {device} passed to enqueue. `device` must "
                                        "be None, a TPU, or a device of the strategy, .* got "):
            embedding.enqueue(IDS, device=device)


def test_weights_that_are_texts_are_refused(embedding):
    weights = tf.SparseTensor([[0, 0]], ["1"], [4, 1])
    with pytest.raises(ValueError, match="^Cast string to float is not supported. Weights of "
                                         "feature 'title' must be numbers.* got 'string'"):
        embedding(with_title(tf.sparse.from_dense([[1]] * 4)), {"title": weights, "more": [None]})


def test_gradients_go_with_the_second_output_of_the_lookup(embedding):
    gradients, _ = embedding(IDS)
    with pytest.raises(ValueError, match=r"`preserved_outputs` must have the stacks \['wor"):
        embedding.apply_gradients(gradients, {})
    with pytest.raises(TypeError, match="`preserved_outputs` must be the ids that the lookup "
                                        "returned, by stack, got None"):
        embedding.apply_gradients(gradients, None)
    with pytest.raises(ValueError, match=r"`preserved_outputs\['words'\]` must be a Partitioned"):
        embedding.apply_gradients(gradients, {"words": tf.constant(1)})


def test_weights_are_in_the_structure_of_the_features(embedding):
    with pytest.raises(ValueError, match=r"`weights` must have .* Missing: \['more/0'\]"):
        embedding(IDS, {"title": None})


@pytest.mark.parametrize("gradient, error, sentence", [
    (tf.ones([4, 8]), ValueError, r"Found gradient of shape \(4, 8\) at path title. "
                                r"Expected shape \[4, 3\]"),
    (tf.ones([12]), ValueError, "at path title. Expected shape"),
    (np.ones([4, 3]), ValueError, "Gradient of feature 'title' must be a Tensor or None"),
    ([tf.ones([4, 3])], TypeError, "`gradients` must have the structure of feature_config")])
def test_wrong_gradients_change_nothing(embedding, gradient, error, sentence):
    _, preserved = embedding(IDS)
    before = embedding.variables["words"]["parameters"].numpy()
    with pytest.raises((error, ValueError), match=sentence):
        embedding.apply_gradients({"title": gradient, "more": [tf.ones([4, 3])]}, preserved)
    np.testing.assert_array_equal(embedding.variables["words"]["parameters"].numpy(), before)


def test_gradient_of_none_is_zero_and_warned_of():
    config = config_of(initializer=tf.compat.v1.ones_initializer())
    embedding = TPUEmbeddingV2(config, SGD(1.0))
    _, preserved = embedding(IDS)
    with pytest.warns(UserWarning, match="gradient of feature 'title' is None"):
        embedding.apply_gradients({"title": None, "more": [tf.ones([4, 3])]}, preserved)
    np.testing.assert_array_equal(embedding.embedding_tables[config["title"].table][:4, 0],
                                  [-1.0, 0.0, 0.0, 1.0])


def test_tables_without_optimizer_are_only_looked_up():
    embedding = TPUEmbeddingV2(config_of())
    activations, preserved = embedding(IDS)
    assert set(embedding.variables["words"]) == {"parameters"}
    with pytest.raises(RuntimeError, match="`apply_gradients` must have an optimizer for every"):
        embedding.apply_gradients(activations, preserved)


@pytest.mark.parametrize("argument, limit, found", [
    ("max_ids_per_table", 1, 2), ("max_unique_ids_per_table", 1, 2)])
def test_limits_that_are_given_count(argument, limit, found):
    config = {"title": config_of()["title"]}
    embedding = TPUEmbeddingV2(config, SGD(), False, SparseCoreEmbeddingConfig(
        **{argument: {"words": limit}}))
    ids = tf.ragged.constant([[1, 5], [2], [3], []], dtype=tf.int64)  # 1 and 5 on one core
    with pytest.raises(tf.errors.InvalidArgumentError, match=(
            f"must be at most {limit}, got {found}. Raise {argument}")):
        embedding({"title": ids})
    most, unique = TPUEmbeddingV2.compute_sparse_core_stats({"title": ids}, config, 1)
    assert (int(most["words"]), int(unique["words"])) == (2, 2)
    with pytest.raises(ValueError, match=f"`{argument}` must have names of stacks"):
        TPUEmbeddingV2(config, SGD(), False, SparseCoreEmbeddingConfig(**{argument: {"x": 1}}))


def test_ids_without_room_are_refused():
    config = {"title": config_of()["title"]}
    embedding = TPUEmbeddingV2(config, SGD(), False, SparseCoreEmbeddingConfig(
        max_ids_per_chip_per_sample=2))
    ids = tf.ragged.constant([[1, 2, 3]] * 4, dtype=tf.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Raise max_ids_per_chip_per_sample"):
        embedding({"title": ids})
