# SPDX-License-Identifier: Apache-2.0
"""The variables that hold stacks of tables, and their slots, one part for each chip."""

import inspect
import itertools
from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.python.trackable.base import ShardInfo, Trackable

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.partitioned_embedding import create_variables, default_names
from tpu_estimator_embedding.mid_level.execution.table_variables import outside_strategies
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import Stacks
from tpu_estimator_embedding.plan.stacked_rows import rows_of_shard, unstack_rows
from tpu_estimator_embedding.plan.table_stacking import StackedTableLayout, TableStack
from tpu_estimator_embedding.types import Tensor

PARAMETERS = "parameters"  # TensorFlow's name for the table next to its slots


class StackVariable(Trackable):
    """A stack or one of its slots: `stack.shape` float32, split over chips.

    Attributes:
        stack: layout of its tables.
        variables: one variable per chip, `[rows per chip, padded dimension]`.
    """

    def __init__(self, stack: TableStack, variables: list[tf.Variable]):
        self.stack = stack
        self.variables = tuple(variables)

    @property
    def shape(self) -> tf.TensorShape:
        """Shape of the concatenated parts."""
        return tf.TensorShape(self.stack.shape)

    @property
    def values(self) -> tuple[tf.Variable, ...]:
        """`variables`, under the name that TensorFlow's distributed variables use."""
        return self.variables

    @property
    def dtype(self) -> tf.DType:
        """tf.float32."""
        return self.variables[0].dtype

    def read_value(self) -> Tensor:
        """Returns all parts concatenated along axis 0."""
        return tf.concat([part.read_value() for part in self.variables], 0)

    def numpy(self) -> np.ndarray:
        """Returns all parts concatenated along axis 0, as an array."""
        return self.read_value().numpy()

    def read_from_device(self, device: str) -> Tensor:
        """Returns the part of chip r for the device "/TPU:r" or any other device with index r.

        Raises:
            ValueError: if there is no chip r.
        """
        chip = tf.DeviceSpec.from_string(device).device_index
        checks.check(chip in range(len(self.variables)), "device",
                     f"a device with an index from 0 to {len(self.variables) - 1}", device)
        return self.variables[chip].read_value()

    def assign(self, value: Tensor) -> None:
        """Sets all parts from one tensor of `shape`."""
        value = tf.ensure_shape(tf.convert_to_tensor(value, self.dtype), self.shape)
        for part, rows in zip(self.variables, tf.split(value, len(self.variables)), strict=True):
            part.assign(rows)

    def read_table(self, name: str) -> Tensor:
        """Returns the rows of one table, `[vocabulary_size, dim]`, by id."""
        return unstack_rows(self.stack, self.read_value())[name]

    def assign_tables(self, tables: Mapping[str, Tensor]) -> None:
        """Sets the rows of some or all tables, each `[vocabulary_size, dim]`, by id.

        They are written in place: a stack may take half of the memory.
        """
        cores = self.stack.cores
        for (name, values), shard in itertools.product(tables.items(), range(cores.count)):
            layout = self.stack.table(name)
            rows = rows_of_shard(layout, tf.convert_to_tensor(values), shard)
            part, core = divmod(shard, cores.num_sc_per_chip)
            begin = core * self.stack.rows_per_shard + layout.row_offset
            # Assigning to a slice may copy the variable.
            tf.raw_ops.ResourceScatterUpdate(
                resource=self.variables[part].handle,
                indices=tf.range(begin, begin + rows.shape[0]), updates=rows)
        for variable in self.variables:  # otherwise every read of it would copy it from now on
            tf.raw_ops.DisableCopyOnRead(resource=variable.handle)

    def table_shards(self, name: str) -> list[tuple[str, Tensor]]:
        """Returns, for each chip, its device and the rows of one table that it holds.

        The rows are those of the chip's SparseCores concatenated along axis 0, padding included.
        """
        layout, cores = self.stack.table(name), self.stack.cores
        end = layout.row_offset + layout.padded_rows // cores.count
        shards = []
        for part in self.variables:
            rows = tf.reshape(part, [cores.num_sc_per_chip, self.stack.rows_per_shard, -1])
            rows = rows[:, layout.row_offset:end, :layout.dimension]
            shards.append((part.device, tf.reshape(rows, [-1, layout.dimension])))
        return shards

    def _dense_tensor(self, dtype: tf.DType | None = None, name: str | None = None,
                      as_ref: bool = False) -> Tensor:
        value = self.read_value()
        return value if dtype is None else tf.cast(value, dtype)


tf.register_tensor_conversion_function(StackVariable, StackVariable._dense_tensor)


def create_stack_variables(stacks: Stacks) -> dict[str, dict[str, StackVariable]]:
    """Creates the variables of every stack, filled with zeros, and of its slots.

    Returns:
        Stack name -> "parameters" or slot name -> variable.
    """
    created = {}
    with outside_strategies():
        variables = create_variables(stacks.plan, default_names(stacks.plan))
        for name, stack in stacks.stacks.items():
            parts = {PARAMETERS: variables[name].parts, **variables[name].slots}
            created[name] = {slot: StackVariable(stack, part) for slot, part in parts.items()}
    return created


def initialize_tables(stacks: Stacks, variables: Mapping[str, Mapping[str, StackVariable]],
                      restored: Collection[str]) -> None:
    """Initializes the tables that were not restored.

    Each initializer is called once, with `[vocabulary_size, dim]`, and with a ShardInfo of the
    whole table if it accepts `shard_info`. Padding is 0.

    Args:
        stacks: the tables and their layouts.
        variables: stack name -> "parameters" or slot name -> variable.
        restored: names of the tables that were restored.
    """
    with outside_strategies():
        for name, stack in stacks.stacks.items():
            for layout in stack.tables:
                if layout.name not in restored:
                    variables[name][PARAMETERS].assign_tables(
                        {layout.name: _initial_rows(stacks, layout)})


def _initial_rows(stacks: Stacks, layout: StackedTableLayout) -> Tensor:
    initializer = stacks.tables.table_by_name[layout.name].initializer
    shape, options = (layout.vocabulary_size, layout.dimension), {}
    if "shard_info" in inspect.signature(initializer).parameters:
        options["shard_info"] = ShardInfo(shape, (0, 0))
    return initializer(shape, tf.float32, **options)
