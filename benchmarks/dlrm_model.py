# SPDX-License-Identifier: Apache-2.0
"""The DLRM above its tables, in TensorFlow's ops."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def log_odds(numbers: Any, vectors: Sequence[Any], weights: Sequence[Any]) -> Any:
    """Returns `[batch]` log odds.

    Args:
        numbers: `[batch, 13]`.
        vectors: `[batch, dim]` of each table.
        weights: of the layers, as `dlrm.initial_weights` orders them.
    """
    kernels, biases = weights[::2], weights[1::2]
    bottom = numbers
    for kernel, bias in zip(kernels[:2], biases[:2], strict=True):
        bottom = tf.nn.relu(bottom @ kernel + bias)
    vectors = [bottom, *vectors]
    stacked = tf.stack(vectors, axis=1)
    products = tf.reshape(tf.matmul(stacked, stacked, transpose_b=True), [-1, len(vectors) ** 2])
    pairs = np.flatnonzero(np.tri(len(vectors), k=-1))
    top = tf.concat([tf.gather(products, pairs, axis=1), *vectors], axis=1)
    top = tf.nn.relu(top @ kernels[2] + biases[2])
    return (top @ kernels[3] + biases[3])[:, 0]


def mean_loss(log_odds: Any, labels: Any) -> Any:
    """Returns the mean cross-entropy."""
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=log_odds))
