# SPDX-License-Identifier: Apache-2.0
"""Copies of tensors whose memory may belong to the program."""

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.ops.owned_memory import owned


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "half", "bfloat16", "float32",
                                   "complex64"])
def test_values_are_equal(dtype):
    values = tf.cast(tf.constant([[0, 1], [1, 0]]), dtype)
    np.testing.assert_array_equal(owned(values), values)
    ragged = owned(tf.RaggedTensor.from_row_lengths(values, [2, 0]))
    np.testing.assert_array_equal(ragged.flat_values, values)
    assert ragged.row_lengths().numpy().tolist() == [2, 0]


@pytest.mark.parametrize("values", [
    tf.constant(["a", "b"]), tf.bitcast(tf.constant([1, 2], tf.uint8), tf.quint8)])
def test_others_are_what_they_were(values):
    assert owned(values) is values
