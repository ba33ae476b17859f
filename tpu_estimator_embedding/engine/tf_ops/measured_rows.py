# SPDX-License-Identifier: Apache-2.0
"""Measures the update of the rows of one part of a table with TensorFlow's ops."""

from collections.abc import Sequence

import tensorflow as tf

from tpu_estimator_embedding.engine.measures import HostMeasures
from tpu_estimator_embedding.engine.tf_ops.sharded_ids import HostIds
from tpu_estimator_embedding.ops.gradients import RowGradients
from tpu_estimator_embedding.ops.lookup import gather_rows
from tpu_estimator_embedding.optimizers.row_optimizer import Limits, clip
from tpu_estimator_embedding.types import Tensor


def rows_if(measures: Tensor, part: tf.Variable, ids: Tensor) -> Tensor:
    """Returns the rows `[u, dim]` of a part; no rows if nothing is measured."""
    return tf.cond(measures, lambda: gather_rows(part, ids),
                   lambda: tf.zeros([0, part.shape[1]], part.dtype))


def measure(measures: Tensor, part: tf.Variable, marks: tf.Variable, ids: HostIds, before: Tensor,
            gradients: Sequence[RowGradients], limits: Limits) -> HostMeasures:
    """Marks the rows of an updated part, and measures them.

    Args:
        measures: scalar bool; if False, all results are empty or 0.
        part: the rows of the part.
        marks: the mark of each row.
        ids: the ids of the step.
        before: the rows of `ids.unique_ids` before the update.
        gradients: the gradients of the rows in each round of updates.
        limits: the limits of the gradients.

    Returns:
        The measures of one table, each field with one row.
    """
    unique_ids, positions = ids.unique_ids, ids.positions
    assert unique_ids is not None and positions is not None  # of ids for training
    mark = tf.raw_ops.ResourceScatterUpdate(
        resource=marks.handle, indices=unique_ids, updates=tf.ones_like(unique_ids, tf.bool))

    def measured() -> HostMeasures:
        after = gather_rows(part, unique_ids)
        counts = tf.math.unsorted_segment_sum(
            tf.ones_like(positions), positions, tf.size(unique_ids))
        sums = [tf.add_n(of_rounds) for of_rounds in zip(
            *(_gradient_sums(of_round.gradients, limits) for of_round in gradients), strict=True)]
        sums += [_squares(tf.cast(after, tf.float64) - tf.cast(before, tf.float64)),
                 _squares(before)]
        covered = tf.math.count_nonzero(marks.read_value())
        norms = tf.sqrt(tf.reduce_sum(tf.square(tf.cast(after, tf.float64)), 1))
        return HostMeasures(
            tf.stack(sums)[tf.newaxis], covered[tf.newaxis], tf.cast(norms, tf.float32),
            unique_ids, tf.cumsum(counts),
            tf.stack([tf.size(ids.ids, tf.int64), tf.size(unique_ids, tf.int64), tf.add_n([
                tf.size(of_round.ids, tf.int64) for of_round in gradients])])[tf.newaxis])

    with tf.control_dependencies([] if mark is None else [mark]):
        return HostMeasures(*tf.cond(measures, lambda: tuple(measured()), lambda: (
            tf.zeros([1, 5], tf.float64), tf.zeros([1], tf.int64), tf.zeros([0]),
            tf.zeros([0], unique_ids.dtype), tf.zeros([0], tf.int32),
            tf.zeros([1, 3], tf.int64))))


def concatenated(tables: Sequence[HostMeasures]) -> HostMeasures:
    """Returns the measures of all tables of a host."""
    return HostMeasures(*(tf.concat(parts, 0) for parts in zip(*tables, strict=True)))


def _gradient_sums(gradients: Tensor, limits: Limits) -> tuple[Tensor, Tensor, Tensor]:
    clipped = clip(gradients, limits)
    is_clipped = tf.reduce_any(tf.not_equal(clipped, gradients), 1)
    return (_squares(gradients), _squares(clipped),
            tf.math.count_nonzero(is_clipped, dtype=tf.float64))


def _squares(values: Tensor) -> Tensor:
    return tf.reduce_sum(tf.square(tf.cast(values, tf.float64)))
