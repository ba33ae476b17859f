# SPDX-License-Identifier: Apache-2.0
"""The rows of a saved table or slot that a variable contains, and their order."""

import tensorflow as tf


class TableSlice(tf.Variable.SaveSliceInfo):
    """Maps the part of one host to rows of the tensor in a checkpoint.

    TensorFlow reads the position of the slice; this package's restore reads the order of the rows.

    Attributes:
        partition_strategy: "div" or "mod".
        num_hosts: hosts that share the table.
        part: index of the part.
        checkpoint_num_hosts: number of hosts that wrote checkpoints that do not record their
            row layout; None if unknown.
    """

    def __init__(self, place: tf.Variable.SaveSliceInfo, *, partition_strategy: str,
                 num_hosts: int, part: int, checkpoint_num_hosts: int | None):
        """Adds the order of the rows to the position of a slice."""
        super().__init__(place.full_name, place.full_shape, place.var_offset, place.var_shape)
        self.partition_strategy = partition_strategy
        self.num_hosts = num_hosts
        self.part = part
        self.checkpoint_num_hosts = checkpoint_num_hosts
