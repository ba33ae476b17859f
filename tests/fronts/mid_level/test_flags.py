# SPDX-License-Identifier: Apache-2.0
"""Flags of the TF2 classes: a text, which would count as True, is an error everywhere."""

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding import mid_level


def features():
    table = mid_level.TableConfig(4, 2, name="t")
    return {"f": mid_level.FeatureConfig(table, output_shape=[4])}


FRONT_DOORS = [mid_level.TPUEmbedding, mid_level.TPUEmbeddingV2, mid_level.TPUEmbeddingLayer,
               mid_level.PartialTPUEmbedding]


@pytest.mark.parametrize("front_door", FRONT_DOORS)
@pytest.mark.parametrize("value", ["False", "", 2, 0.0, np.zeros(2)])
def test_pipelining_is_true_or_false(front_door, value):
    with pytest.raises(ValueError, match="`pipeline_execution_with_tensor_core` must be True or "
                                         "False"):
        front_door(features(), mid_level.SGD(0.1), pipeline_execution_with_tensor_core=value)


@pytest.mark.parametrize("front_door", FRONT_DOORS)
@pytest.mark.parametrize("value", [True, False, None, np.bool_(True), np.int64(1), 0])
def test_flags_of_python_and_numpy_are_taken(front_door, value):
    front_door(features(), mid_level.SGD(0.1), pipeline_execution_with_tensor_core=value)


def test_training_may_be_none_as_keras_passes_it():
    embedding = mid_level.TPUEmbedding(features(), mid_level.SGD(0.1))
    embedding.enqueue({"f": tf.constant([1, 2, 3, 0])}, training=None)
    assert embedding.dequeue()["f"].shape == [4, 2]
    embedding.enqueue({"f": tf.constant([1, 2, 3, 0])}, training=False)  # no gradients are missing


def test_other_flags():
    with pytest.raises(ValueError, match="`combine_small_tables` must be True or False, got 'no'"):
        mid_level.PartialTPUEmbedding(features(), mid_level.SGD(0.1), combine_small_tables="no")
    with pytest.raises(ValueError, match="`training` must be True or False, got 'x'"):
        mid_level.TPUEmbedding(features(), mid_level.SGD(0.1)).enqueue(
            {"f": tf.constant([1])}, training="x")


@pytest.mark.parametrize("config", [42, 0, "x"])
def test_config_for_sparse_cores_is_one(config):
    with pytest.raises(ValueError, match="must be a SparseCoreEmbeddingConfig or None, got"):
        mid_level.TPUEmbeddingV2(features(), mid_level.SGD(0.1), False, config)
