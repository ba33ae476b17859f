# SPDX-License-Identifier: Apache-2.0
"""The activation and the loss of `tf.contrib.sparsemax`."""

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor


def sparsemax(logits: Tensor, name: str | None = None) -> Tensor:
    """Projects each row on the probability simplex: `max(z - threshold(z), 0)`.

    Source: Martins, Astudillo: From Softmax to Sparsemax, https://arxiv.org/abs/1602.02068, 2016.

    Args:
        logits: `[batch, classes]`.
        name: name of the ops.

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     session.run(sparsemax(tf.constant([[0.0, 0.5, 3.0]]))).tolist()
    [[0.0, 0.0, 1.0]]
    """
    with tf.name_scope(name or "sparsemax"):
        logits = tf.convert_to_tensor(logits)
        shifted = logits - tf.reduce_max(logits, axis=1, keepdims=True)
        descending = tf.sort(shifted, axis=1, direction="DESCENDING")
        counts = tf.cast(tf.range(1, tf.shape(logits)[1] + 1), logits.dtype)
        sums = tf.cumsum(descending, axis=1)
        support = tf.reduce_sum(tf.cast(1 + counts * descending > sums, tf.int32), axis=1)
        total = tf.gather(sums, support - 1, batch_dims=1)
        threshold = (total - 1) / tf.cast(support, logits.dtype)
        return tf.maximum(shifted - threshold[:, None], 0)


def sparsemax_loss(logits: Tensor, sparsemax: Tensor, labels: Tensor,
                   name: str | None = None) -> Tensor:
    """Computes the loss of each row, whose gradient is `sparsemax(z) - labels`.

    Args:
        logits: `[batch, classes]`.
        sparsemax: the result of `sparsemax(logits)`.
        labels: probabilities, `[batch, classes]`.
        name: name of the ops.

    Returns:
        `[batch]`.
    """
    with tf.name_scope(name or "sparsemax_loss"):
        shifted = logits - tf.reduce_max(logits, axis=1, keepdims=True)
        # sum over the support of (z^2 - threshold^2) / 2, where p = z - threshold
        of_support = tf.where(sparsemax > 0, sparsemax * (shifted - sparsemax / 2), 0)
        return tf.reduce_sum(of_support + labels * (labels / 2 - shifted), axis=1)
