# SPDX-License-Identifier: Apache-2.0
"""Checks of a step's ids that only running can make, before any table is touched.

Each returns an op to depend on in graph mode, and raises at once when executing eagerly.
"""

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor

_VALUE = "<value>"  # where a sentence shows what was got


def check_ids(ids: Tensor, feature: str, vocabulary_size: int) -> tf.Operation | None:
    """Fails with InvalidArgumentError unless every id `[n]` is below `vocabulary_size`.

    Negative ids pass: they mark padding and are dropped.
    """
    largest = tf.reduce_max(tf.concat([ids, tf.constant([-1], ids.dtype)], 0))
    return _check(
        largest < vocabulary_size,
        f"`ids of feature {feature!r}` must be in [0, {vocabulary_size}), its vocabulary_size, "
        f"got {_VALUE}. Raise vocabulary_size, or map the ids into the vocabulary in input_fn.",
        largest)


def check_rows_sorted(rows: Tensor, feature: str) -> tf.Operation | None:
    """Fails with InvalidArgumentError unless the sample indices `[n]` never decrease."""
    return _check(
        tf.reduce_all(rows[1:] >= rows[:-1]),
        f"`sample indices of feature {feature!r}` must be in increasing order, got some that "
        "decrease. Call tf.sparse.reorder on the SparseTensor in input_fn.")


def check_samples(samples: Tensor, batch_size: Tensor, feature: str) -> tf.Operation | None:
    """Fails with InvalidArgumentError unless sorted `samples` `[n]` are in [0, batch_size)."""
    outermost = tf.concat([samples[:1], samples[-1:]], 0)
    return _check(
        tf.reduce_all((outermost >= 0) & (outermost < batch_size)),
        f"`sample indices of feature {feature!r}` must be in [0, {_VALUE}), the batch size, got "
        f"{_VALUE}. Give every feature the same batch size.", batch_size, outermost)


def check_sample_count(count: Tensor, batch_size: Tensor, feature: str) -> tf.Operation | None:
    """Fails with InvalidArgumentError unless a feature has `batch_size` samples."""
    return _check(
        tf.equal(count, batch_size),
        f"`samples of feature {feature!r}` must be {_VALUE}, the batch size, got {_VALUE}. "
        "Give every feature the same batch size.", batch_size, count)


def check_aligned(count: Tensor, num_ids: Tensor, what: str,
                  feature: str) -> tf.Operation | None:
    """Fails with InvalidArgumentError unless there is one of `what` for each id."""
    return _check(
        tf.equal(count, num_ids),
        f"`{what} of feature {feature!r}` must be as many as its ids, {_VALUE}, got {_VALUE}. "
        "Make both from tensors with the same indices.", num_ids, count)


def check_batch_size(batch_size: Tensor, expected: Tensor, feature: str,
                     reference: str) -> tf.Operation | None:
    """Fails with InvalidArgumentError unless two features have equally many samples."""
    return _check(
        tf.equal(batch_size, expected),
        f"`batch of feature {feature!r}` must be as large as that of feature {reference!r}, "
        f"{_VALUE}, got {_VALUE}.", expected, batch_size)


def _check(holds: Tensor, sentence: str, *values: Tensor) -> tf.Operation | None:
    # The raw op, because tf.debugging.Assert wraps every sentence into a cond of its own.
    return tf.raw_ops.Assert(condition=holds, data=[
        tf.strings.format(sentence, values, placeholder=_VALUE) if values else sentence])
