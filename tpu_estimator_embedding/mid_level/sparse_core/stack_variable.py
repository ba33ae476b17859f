# SPDX-License-Identifier: Apache-2.0
"""The variables that hold stacks of tables, and their slots, one part for each chip."""

from typing import Any

import tensorflow as tf
from tensorflow.python.trackable.base import Trackable

from tpu_estimator_embedding.engine.partitioned_embedding import create_variables, default_names
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import Stacks
from tpu_estimator_embedding.mid_level.step.table_variables import outside_strategies
from tpu_estimator_embedding.plan.stacked_rows import stack_rows, unstack_rows
from tpu_estimator_embedding.plan.table_stacking import TableStack
from tpu_estimator_embedding.types import Tensor

PARAMETERS = "parameters"  # what upstream calls the table beside its slots


class StackVariable(Trackable):
    """A stack, or one of its slots: `stack.shape` float32, cut between chips.

    Attributes:
        stack: where the rows of its tables lie.
        variables: `[rows of a chip, padded dimension]`, one for each chip.
    """

    def __init__(self, stack: TableStack, variables: list[tf.Variable]):
        self.stack = stack
        self.variables = tuple(variables)

    @property
    def shape(self) -> tf.TensorShape:
        """Shape of all parts together."""
        return tf.TensorShape(self.stack.shape)

    @property
    def dtype(self) -> tf.DType:
        """tf.float32."""
        return self.variables[0].dtype

    def read_value(self) -> Tensor:
        """Returns all parts concatenated along axis 0."""
        return tf.concat([part.read_value() for part in self.variables], 0)

    def numpy(self) -> Any:
        """Returns all parts concatenated along axis 0, as an array."""
        return self.read_value().numpy()

    def assign(self, value: Tensor) -> None:
        """Sets all parts from one tensor of `shape`."""
        value = tf.ensure_shape(tf.convert_to_tensor(value, self.dtype), self.shape)
        for part, rows in zip(self.variables, tf.split(value, len(self.variables)), strict=True):
            part.assign(rows)

    def read_table(self, name: str) -> Tensor:
        """Returns the rows of one table, `[vocabulary_size, dim]`, by id."""
        return unstack_rows(self.stack, self.read_value())[name]

    def assign_tables(self, tables: dict[str, Tensor]) -> None:
        """Sets the rows of some or all tables, each `[vocabulary_size, dim]`, by id."""
        if len(tables) < len(self.stack.tables):
            tables = {**unstack_rows(self.stack, self.read_value()), **tables}
        self.assign(stack_rows(self.stack, tables))

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

    def _dense_tensor(self, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Tensor:
        value = self.read_value()
        return value if dtype is None else tf.cast(value, dtype)


tf.register_tensor_conversion_function(StackVariable, StackVariable._dense_tensor)


def create_stack_variables(stacks: Stacks) -> dict[str, dict[str, StackVariable]]:
    """Creates every stack, and its slots where it has an optimizer.

    The initializer of a table is called once, with `[vocabulary_size, dim]`. Padding is 0.

    Returns:
        Stack name -> "parameters" or slot name -> variable.
    """
    created = {}
    with outside_strategies():
        variables = create_variables(stacks.plan, default_names(stacks.plan))
        for name, stack in stacks.stacks.items():
            parts = {PARAMETERS: variables[name].parts, **variables[name].slots}
            created[name] = {slot: StackVariable(stack, part) for slot, part in parts.items()}
            created[name][PARAMETERS].assign_tables(_initial_tables(stacks, stack))
    return created


def _initial_tables(stacks: Stacks, stack: TableStack) -> dict[str, Tensor]:
    values = {}
    for layout in stack.tables:
        initializer = stacks.tables.table_by_name[layout.name].initializer
        values[layout.name] = initializer([layout.vocabulary_size, layout.dimension], tf.float32)
    return values
