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
    """Returns key of a table or slot -> its layout; empty if the checkpoint has no record.

    Args:
        checkpoint: a checkpoint, or a directory, whose latest checkpoint is read.
    """
    reader = tf.train.load_checkpoint(checkpoint)
    if not reader.has_tensor(TABLE_LAYOUTS_KEY):
        return {}
    return parse_table_layouts(reader.get_tensor(TABLE_LAYOUTS_KEY))


def layout_in(checkpoint: str, layouts: Mapping[str, TableLayout], key: str, present: TableLayout,
              checkpoint_num_hosts: int | None) -> TableLayout:
    """Returns the layout of a table or slot in a checkpoint.

    Args:
        checkpoint: path of the checkpoint, for the message.
        layouts: its record of layouts.
        key: the table or slot in the checkpoint.
        present: the layout of the table in the program.
        checkpoint_num_hosts: number of hosts that wrote a checkpoint without a record; None reads
            the environment variable.

    Raises:
        ValueError: if the layout is neither recorded nor given.
    """
    if key in layouts:
        return layouts[key]
    checkpoint_num_hosts = checkpoint_num_hosts or hosts_from_environment()
    if present.partition_strategy == "mod" and present.vocabulary_size > 1:
        checks.check(
            checkpoint_num_hosts is not None, "checkpoint_num_hosts",
            f"given to read {key!r} with partition_strategy='mod' from {checkpoint}",
            None, "The checkpoint does not contain the number of hosts that wrote it, and the "
            "order of its rows depends on it. Pass the number to TPUEstimator, or run an "
            "unmodified program with `tpu-estimator-embedding run --checkpoint-num-hosts N`.")
    return TableLayout(
        present.partition_strategy, checkpoint_num_hosts or 1, present.vocabulary_size)


def same_order(one: TableLayout, other: TableLayout) -> bool:
    """Whether two layouts save the rows of a table in the same order.

    >>> same_order(TableLayout("mod", 4, 3), TableLayout("mod", 5, 3))
    True
    """
    if one.is_by_id or other.is_by_id:
        return one.is_by_id and other.is_by_id
    rows = one.vocabulary_size
    return min(one.num_hosts, rows) == min(other.num_hosts, rows)
