# SPDX-License-Identifier: Apache-2.0
"""Simulated quantization: looked-up rows are rounded, gradients and tables are not."""

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.mid_level import (
    SGD,
    FeatureConfig,
    QuantizationConfig,
    TableConfig,
    TPUEmbedding,
)

VALUES = np.array([[-3.0, 0.3], [0.74, 0.76], [1.0, 5.0]], np.float32)


def rounded(values, buckets, lower, upper):
    """To the nearest of `buckets` values, the upper one of two at the same distance."""
    levels = np.linspace(lower, upper, buckets)
    distances = np.abs(values[..., np.newaxis] - levels)
    return levels[::-1][np.argmin(distances[..., ::-1], axis=-1)]


@pytest.mark.parametrize("quantization, function", [((2, 0.0, 1.0), True), ((5, -1.0, 1.0), False)])
@pytest.mark.parametrize("kernels", ["tf", "native"])
def test_rows_are_rounded_before_they_are_combined(quantization, function, kernels, monkeypatch):
    monkeypatch.setenv("TPU_ESTIMATOR_EMBEDDING_KERNELS", kernels)
    table = TableConfig(3, 2, tf.compat.v1.constant_initializer(VALUES), combiner="mean",
                        quantization_config=QuantizationConfig(*quantization))
    embedding = TPUEmbedding({"a": FeatureConfig(table)}, SGD(0.5))
    embedding.build(2)

    def step(ids):
        embedding.enqueue({"a": ids})
        activations = embedding.dequeue()["a"]
        embedding.apply_gradients({"a": tf.ones_like(activations)})
        return activations

    ids = tf.ragged.constant([[0, 1, 2], [1]])
    activations = (tf.function(step) if function else step)(ids)
    levels = rounded(VALUES, *quantization)
    np.testing.assert_allclose(activations, [levels.mean(0), levels[1]], rtol=1e-6)
    gradient = np.array([[1 / 3], [1 / 3 + 1], [1 / 3]])
    np.testing.assert_allclose(embedding.embedding_tables[table], VALUES - 0.5 * gradient,
                               rtol=1e-5)
