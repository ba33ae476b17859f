# SPDX-License-Identifier: Apache-2.0
"""Reads variables of a checkpoint for users of an estimator, with rows in the order of ids."""

from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.checkpoint.savers import layout_in, saved_layouts
from tpu_estimator_embedding.checkpoint.table_layouts import TableLayout
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.plan.partition_strategy import saved_rows


def value_by_id(checkpoint: str, name: str, plan: EmbeddingPlan,
                checkpoint_num_hosts: int | None) -> Any:
    """Returns the value of a variable; row i of a table or slot is that of id i.

    Args:
        checkpoint: a checkpoint, or a directory of checkpoints.
        name: name of the variable.
        plan: the tables of the program.
        checkpoint_num_hosts: number of hosts that wrote a checkpoint without a record of its
            layout; None if unknown.

    Raises:
        ValueError: if the program's tables use `mod`, and the row layout of the checkpoint is
            unknown.
    """
    layout = _layout(checkpoint, name, plan, checkpoint_num_hosts)
    value = tf.train.load_variable(checkpoint, name)
    if layout is None or layout.is_by_id:
        return value
    return value[saved_rows(layout.vocabulary_size, layout.num_hosts, layout.partition_strategy)]


def _layout(checkpoint: str, name: str, plan: EmbeddingPlan, checkpoint_num_hosts: int | None
            ) -> TableLayout | None:
    layouts = saved_layouts(checkpoint)
    shape = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map().get(name)
    is_like_table = shape in [[table.vocabulary_size, table.dimension] for table in plan.tables]
    if layouts or not is_like_table:  # a checkpoint with a record has one of every table
        return layouts.get(name)
    ours = TableLayout(plan.partition_strategy, plan.num_hosts, shape[0])
    return layout_in(checkpoint, layouts, name, ours, checkpoint_num_hosts)
