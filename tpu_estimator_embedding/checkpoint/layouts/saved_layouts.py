# SPDX-License-Identifier: Apache-2.0
"""The row layouts that a checkpoint records."""

from collections.abc import Mapping

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.layouts.table_layouts import (
    TABLE_LAYOUTS_KEY,
    TableLayout,
    parse_table_layouts,
)
from tpu_estimator_embedding.checkpoint.layouts.unknown_layouts import hosts_from_environment


def saved_layouts(checkpoint: str) -> dict[str, TableLayout]:
    """Returns key of a table or slot -> its layout; nothing if the checkpoint has no record.

    Args:
        checkpoint: a checkpoint, or a directory of checkpoints, of which the latest is read.
    """
    reader = tf.train.load_checkpoint(checkpoint)
    if not reader.has_tensor(TABLE_LAYOUTS_KEY):
        return {}
    return parse_table_layouts(reader.get_tensor(TABLE_LAYOUTS_KEY))


def layout_in(checkpoint: str, layouts: Mapping[str, TableLayout], key: str, ours: TableLayout,
              checkpoint_num_hosts: int | None) -> TableLayout:
    """Returns the layout in which a checkpoint holds a table or slot.

    Args:
        checkpoint: the checkpoint, for the message.
        layouts: what it says of its tables.
        key: the table or slot in the checkpoint.
        ours: the layout that the program gives the table.
        checkpoint_num_hosts: hosts that wrote a checkpoint that does not say so; None if
            only the environment may know.

    Raises:
        ValueError: if the checkpoint does not say how rows lie, and nobody else does.
    """
    if key in layouts:
        return layouts[key]
    checkpoint_num_hosts = checkpoint_num_hosts or hosts_from_environment()
    if ours.partition_strategy == "mod" and ours.vocabulary_size > 1:
        checks.check(
            checkpoint_num_hosts is not None, "checkpoint_num_hosts",
            f"given to read {key!r} with partition_strategy='mod' from {checkpoint}",
            None, "The checkpoint does not say how many hosts wrote it, and the order of its "
            "rows depends on it. Pass the number to TPUEstimator, or to an unmodified program by "
            "`tpu-estimator-embedding run --checkpoint-num-hosts N`.")
    return TableLayout(ours.partition_strategy, checkpoint_num_hosts or 1, ours.vocabulary_size)


def same_order(one: TableLayout, other: TableLayout) -> bool:
    """Whether two layouts save the rows of a table in one order.

    >>> same_order(TableLayout("mod", 4, 3), TableLayout("mod", 5, 3))
    True
    """
    if one.is_by_id or other.is_by_id:
        return one.is_by_id and other.is_by_id
    rows = one.vocabulary_size
    return min(one.num_hosts, rows) == min(other.num_hosts, rows)
