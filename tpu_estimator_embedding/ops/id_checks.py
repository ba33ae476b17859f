# SPDX-License-Identifier: Apache-2.0
"""Runtime checks of a step's ids, before any table is touched.

Each check returns the ops to depend on in graph mode, and raises at once in eager execution.
"""

from collections.abc import Sequence

import tensorflow as tf

from tpu_estimator_embedding.ops.assertion import VALUE, assert_that
from tpu_estimator_embedding.types import Tensor


def check_ids(ids: Tensor, feature: str, vocabulary_size: int) -> list[tf.Operation]:
    """Fails with InvalidArgumentError unless every id `[n]` is below `vocabulary_size`.

    Negative ids pass: they mark padding and are dropped.
    """
    largest = tf.reduce_max(tf.concat([ids, tf.constant([-1], ids.dtype)], 0))
    return assert_that(
        largest < vocabulary_size,
        f"Ids of feature {feature!r} must be in [0, {vocabulary_size}), its vocabulary_size, "
        f"got {VALUE}. Raise vocabulary_size, or map the ids into the vocabulary in input_fn.",
        largest)


def check_row_splits(row_splits: Tensor, feature: str) -> list[tf.Operation]:
    """Fails with InvalidArgumentError unless the row splits `[batch + 1]` never decrease."""
    return assert_that(
        tf.reduce_all(row_splits[1:] >= row_splits[:-1]),
        f"Row splits of feature {feature!r} must be in increasing order, got some that decrease.")


def check_samples(samples: Tensor, batch_size: Tensor, feature: str) -> list[tf.Operation]:
    """Fails with InvalidArgumentError unless `samples` `[n]` are in [0, batch_size)."""
    outermost = tf.stack([tf.reduce_min(samples), tf.reduce_max(samples)])
    return assert_that(
        tf.reduce_all((samples >= 0) & (samples < batch_size)),
        f"Sample indices of feature {feature!r} must be in [0, {VALUE}), the batch size, got "
        f"{VALUE}. Give every feature the same batch size.", batch_size, outermost)


def in_batch(tensor: tf.SparseTensor, feature: str, axis: int = 0) -> tf.SparseTensor:
    """Returns a SparseTensor that fails with InvalidArgumentError if a sample is not in the batch.

    TensorFlow's own ops on it name no feature, and some of them leave such samples out.

    >>> in_batch(tf.SparseTensor([[1, 0]], [3], [2, 4]), "words").values.numpy().tolist()
    [3]
    """
    samples, size = tensor.indices[:, axis], tensor.dense_shape[axis]
    ends = tf.stack([tf.reduce_min(samples), tf.reduce_max(samples)])
    with tf.control_dependencies(assert_that(
            tf.reduce_all((samples >= 0) & (samples < size)),
            f"Sample indices of feature {feature!r} must be in [0, {VALUE}), the batch size in its "
            f"dense_shape, got {VALUE}. Make the SparseTensor with a dense_shape that covers all "
            "of its indices.",
            size, ends)):
        return tf.SparseTensor(tf.identity(tensor.indices), tensor.values, tensor.dense_shape)


def check_sample_count(count: Tensor, batch_size: Tensor, feature: str) -> list[tf.Operation]:
    """Fails with InvalidArgumentError unless a feature has `batch_size` samples."""
    return assert_that(
        tf.equal(count, batch_size),
        f"Samples of feature {feature!r} must be {VALUE}, the batch size, got {VALUE}. "
        "Give every feature the same batch size.", batch_size, count)


def check_aligned(count: Tensor, num_ids: Tensor, what: str,
                  feature: str) -> list[tf.Operation]:
    """Fails with InvalidArgumentError unless there are as many `what` as ids."""
    return assert_that(
        tf.equal(count, num_ids),
        f"{what.capitalize()} of feature {feature!r} must be as many as its ids, {VALUE}, got "
        f"{VALUE}. Make both from tensors with the same indices.", num_ids, count)


def check_static_batch_size(batch_size: Tensor, static: int, feature: str) -> list[tf.Operation]:
    """Fails with InvalidArgumentError unless a batch matches the static shapes of the input."""
    return assert_that(
        tf.equal(batch_size, static),
        f"Batch of feature {feature!r} must be {static} samples, as the static shapes of the input "
        f"say, got {VALUE}.", batch_size)


def check_batch_size(batch_size: Tensor, expected: Tensor, feature: str | Sequence[str],
                     reference: str) -> list[tf.Operation]:
    """Fails with InvalidArgumentError unless features have the same number of samples.

    Args:
        batch_size: samples of a feature, or `[n]` for n features.
        expected: those of the reference.
        feature: name of the feature, or n names; the error shows the first that differs.
        reference: name of the feature to compare with.
    """
    features = [feature] if isinstance(feature, str) else feature
    sizes = tf.reshape(batch_size, [-1])
    is_expected = tf.equal(sizes, expected)
    wrong = tf.argmin(tf.cast(is_expected, tf.int32))
    names = tf.constant([f"Batch of feature {name!r}" for name in features])
    return assert_that(
        tf.reduce_all(is_expected),
        f" must be as large as that of feature {reference!r}, {VALUE}, got {VALUE}.",
        expected, sizes[wrong], subject=names[wrong])
