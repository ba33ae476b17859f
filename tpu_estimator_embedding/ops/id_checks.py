# SPDX-License-Identifier: Apache-2.0
"""Checks of a step's ids that only running can make, before any table is touched."""

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor


def check_ids(ids: Tensor, feature: str, vocabulary_size: int) -> tf.Operation | None:
    """Fails with InvalidArgumentError unless every id is below `vocabulary_size`.

    Negative ids pass: they mark padding and are dropped.

    Returns:
        An op to depend on in graph mode; None when executing eagerly.
    """
    largest = tf.reduce_max(tf.concat([ids, tf.constant([-1], ids.dtype)], 0))
    message = tf.strings.format(
        f"`ids of feature '{feature}'` must be in [0, {vocabulary_size}), its vocabulary_size, "
        "got {}. Raise vocabulary_size, or map the ids into the vocabulary in input_fn.",
        largest)
    return tf.debugging.Assert(largest < vocabulary_size, [message])


def check_rows_sorted(rows: Tensor, feature: str) -> tf.Operation | None:
    """Fails with InvalidArgumentError unless the sample indices never decrease."""
    return tf.debugging.Assert(
        tf.reduce_all(rows[1:] >= rows[:-1]),
        [f"`sample indices of feature '{feature}'` must be in increasing order, got some that "
         "decrease. Call tf.sparse.reorder on the SparseTensor in input_fn."])


def check_batch_size(batch_size: Tensor, expected: Tensor, feature: str,
                     reference: str) -> tf.Operation | None:
    """Fails with InvalidArgumentError unless two features have equally many samples."""
    message = tf.strings.format(
        f"`batch of feature '{feature}'` must be as large as that of feature '{reference}', "
        "{}, got {}.", [expected, batch_size])
    return tf.debugging.Assert(tf.equal(batch_size, expected), [message])
