# SPDX-License-Identifier: Apache-2.0
"""Applies the updates of a step to the rows of one part of a table, and to its slots."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tpu_estimator_embedding.ops.gradients import RowGradients
from tpu_estimator_embedding.ops.lookup import gather_rows
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.types import Tensor


def update_rows(optimizer: RowOptimizer, table: tf.Variable, slots: Mapping[str, tf.Variable],
                row_gradients: RowGradients, learning_rate: Tensor,
                step: Tensor) -> list[tf.Operation]:
    """Updates the touched rows of one part of a table, and its slots, in place.

    Args:
        optimizer: the update.
        table: resource variable `[rows of this part, dim]`.
        slots: slot name -> resource variable of the same shape.
        row_gradients: the summed gradients of distinct rows.
        learning_rate: scalar float32.
        step: scalar, the global step before it is incremented.

    Returns:
        The writes; all of them run after all reads.
    """
    ids, gradients = row_gradients
    row = gather_rows(table, ids)
    slot_rows = {name: gather_rows(slot, ids) for name, slot in slots.items()}
    new_row, new_slots = optimizer.update(gradients, row, slot_rows, learning_rate, step)
    new_values = [(table, new_row), *((slots[name], new_slots[name]) for name in slots)]
    reads = [row, *slot_rows.values()]
    if not optimizer.rule.updates_untouched_rows:
        with tf.control_dependencies(reads):
            return [_scatter(variable, ids, values) for variable, values in new_values]
    return _update_all_rows(optimizer, table, slots, ids, new_values, learning_rate, step)


def _scatter(variable: tf.Variable, ids: Tensor, values: Tensor) -> tf.Operation:
    return tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=ids, updates=values)


def _update_all_rows(optimizer: RowOptimizer, table: tf.Variable,
                     slots: Mapping[str, tf.Variable], touched: Tensor,
                     touched_values: Sequence[tuple[tf.Variable, Tensor]],
                     learning_rate: Tensor, step: Tensor) -> list[tf.Operation]:
    """Updates all rows; untouched rows get a gradient of 0, without clipping and decay."""
    row, slot_rows = table.read_value(), {name: slot.read_value() for name, slot in slots.items()}
    new_row, new_slots = optimizer.rule.update(tf.zeros_like(row), row, slot_rows, learning_rate,
                                               step)
    everywhere = {id(table): new_row, **{id(slots[name]): new_slots[name] for name in slots}}
    with tf.control_dependencies([row, *slot_rows.values(),
                                  *(values for _, values in touched_values)]):
        return [variable.assign(tf.tensor_scatter_nd_update(
            everywhere[id(variable)], touched[:, tf.newaxis], values), read_value=False)
            for variable, values in touched_values]
