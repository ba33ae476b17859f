# SPDX-License-Identifier: Apache-2.0
"""The variables that hold stacks of tables, and their slots, one part for each chip."""

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.python.trackable.base import ShardInfo, Trackable

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine import variables
from tpu_estimator_embedding.mid_level.execution.table_variables import outside_strategies
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import Stacks
from tpu_estimator_embedding.plan.stacked_rows import RowsOf, join_shards, pieces
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
        if len(self.variables) == 1:
            self.variables[0].assign(value)
            return
        for part, rows in zip(self.variables, tf.split(value, len(self.variables)), strict=True):
            # A part that shared the memory of `value` would be copied by its next update.
            part.assign(tf.raw_ops.DeepCopy(x=rows))

    def read_table(self, name: str) -> Tensor:
        """Returns the rows of one table, `[vocabulary_size, dim]`, by id."""
        return join_shards(self.stack.table(name), list(
            itertools.chain.from_iterable(self._shards(name))))

    def write_table(self, name: str, rows_of: RowsOf) -> None:
        """Sets the rows of one table in place: a stack may take half of the memory.

        Args:
            name: the table.
            rows_of: ids `[n]` -> their rows `[n, dim]`; called with some of the ids at a time.
        """
        for chip, begin, rows in pieces(self.stack, name, rows_of):
            # Assigning to a slice may copy the variable.
            tf.raw_ops.ResourceScatterUpdate(
                resource=self.variables[chip].handle,
                indices=tf.range(begin, begin + rows.shape[0]), updates=rows)
        for variable in self.variables:  # otherwise every read of it would copy it from now on
            tf.raw_ops.DisableCopyOnRead(resource=variable.handle)

    def table_shards(self, name: str) -> list[tuple[str, Tensor]]:
        """Returns, for each chip, its device and the rows of one table that it holds.

        The rows are those of the chip's SparseCores concatenated along axis 0, padding included.
        """
        dimension = self.stack.table(name).dimension
        return [(part.device, tf.concat([rows[:, :dimension] for rows in shards], 0))
                for part, shards in zip(self.variables, self._shards(name), strict=True)]

    def _shards(self, name: str) -> list[list[Tensor]]:
        """Returns, for each core of each chip, the rows of one table that it holds."""
        first, cores = self.stack.table(name).row_offset, self.stack.cores
        count = self.stack.table(name).padded_rows // cores.count
        return [[value[begin:begin + count] for core in range(cores.num_sc_per_chip)
                 for begin in [core * self.stack.rows_per_shard + first]]
                for value in [part.read_value() for part in self.variables]]

    def _dense_tensor(self, dtype: tf.DType | None = None, name: str | None = None,
                      as_ref: bool = False) -> Tensor:
        value = self.read_value()
        return value if dtype is None else tf.cast(value, dtype)


tf.register_tensor_conversion_function(StackVariable, StackVariable._dense_tensor)


def create_tables(stacks: Stacks) -> dict[str, StackVariable]:
    """Creates the variable of every stack, filled with zeros.

    Returns:
        Stack name -> variable.
    """
    bare = dataclasses.replace(stacks.plan, tables=tuple(
        dataclasses.replace(table, optimizer=None) for table in stacks.plan.tables))
    with outside_strategies():
        created = variables.create_variables(bare, variables.default_names(bare))
    return {name: StackVariable(stack, created[name].parts)
            for name, stack in stacks.stacks.items()}


def create_slots(stacks: Stacks) -> dict[str, dict[str, StackVariable]]:
    """Creates the slots of every stack.

    Returns:
        Stack name -> slot name -> variable.
    """
    plan, names = stacks.plan, variables.default_names(stacks.plan)
    with outside_strategies():
        created = {table.name: variables.create_slots(plan, table, names[table.name])
                   for table in plan.tables}
    return {name: {slot: StackVariable(stack, parts) for slot, parts in created[name].items()}
            for name, stack in stacks.stacks.items()}


def initialize_tables(stacks: Stacks, tables: Mapping[str, StackVariable],
                      restored: Collection[str]) -> None:
    """Initializes the tables that were not restored.

    Each initializer is called once, with `[vocabulary_size, dim]`, and with a ShardInfo of the
    whole table if it accepts `shard_info`: TensorFlow draws other numbers for parts. Padding is 0.

    Args:
        stacks: the tables and their layouts.
        tables: stack name -> variable.
        restored: names of the tables that were restored.
    """
    with outside_strategies():
        for name, stack in stacks.stacks.items():
            for layout in stack.tables:
                if layout.name not in restored:
                    tables[name].write_table(layout.name, functools.partial(
                        tf.gather, _initial_rows(stacks, layout)))


def _initial_rows(stacks: Stacks, layout: StackedTableLayout) -> Tensor:
    initializer = stacks.tables.table_by_name[layout.name].initializer
    shape, options = (layout.vocabulary_size, layout.dimension), {}
    if "shard_info" in inspect.signature(initializer).parameters:
        options["shard_info"] = ShardInfo(shape, (0, 0))
    value = initializer(shape, tf.float32, **options)
    variables.check_initial_value(layout.name, value, list(shape))
    return value
