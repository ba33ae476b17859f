# SPDX-License-Identifier: Apache-2.0
"""Simulated quantization: looked-up values rounded to a few levels."""

import tensorflow as tf

from tpu_estimator_embedding.types import Quantization, Tensor


def quantize(values: Tensor, quantization: Quantization) -> Tensor:
    """Returns `values` clipped to [lower, upper] and rounded to `num_buckets` levels.

        s = (upper - lower) / (num_buckets - 1)
        q = ⌊(clip(x, lower, upper) - lower) / s + 1/2⌋ s + lower

    Source: comments of TensorFlow's `optimization_parameters.proto`
    (SimulatedQuantization).

    >>> quantize(tf.constant([-2.0, 0.1, 0.4, 2.0]), Quantization(3, -1.0, 1.0)).numpy().tolist()
    [-1.0, 0.0, 0.0, 1.0]
    """
    num_buckets, lower, upper = quantization
    step = (upper - lower) / (num_buckets - 1)
    clipped = tf.clip_by_value(values, lower, upper)
    return tf.floor((clipped - lower) / step + 0.5) * step + lower
