# SPDX-License-Identifier: Apache-2.0
"""Tables that a graph uses before they are created.

A TPU gives activations to a loop whose program creates and names the variables afterwards. Here
the loop reads from handles outside of it, which lead to the variables once these exist.
"""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.engine.variables import TableVariables, variables_made_by
from tpu_estimator_embedding.ops.graph_rewrites import late_tensor, set_late_tensor
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Tensor


class LateVariable(NamedTuple):
    """A float32 variable that is created later.

    Attributes:
        handle: its resource handle, a late tensor.
        shape: of its value.
    """

    handle: Tensor
    shape: tf.TensorShape

    @property
    def device(self) -> str:
        """The device of the handle."""
        return self.handle.device

    @property
    def dtype(self) -> tf.DType:
        """The dtype of its value."""
        return tf.float32

    def assign(self, value: Tensor, read_value: bool = False) -> tf.Operation:
        """Returns the op that assigns a value of the shape; it cannot be read afterwards."""
        assert not read_value
        return tf.raw_ops.AssignVariableOp(
            resource=self.handle, value=tf.ensure_shape(value, self.shape))

    def read_value(self) -> Tensor:
        """Returns the value."""
        value = tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=tf.float32)
        return tf.ensure_shape(value, self.shape)


def late_variables(plan: EmbeddingPlan, missing: str) -> dict[str, TableVariables]:
    """Returns table name -> variables to be set by `set_late_variables`, in the default graph.

    Args:
        plan: the tables.
        missing: name that the error shows if a table is used and was never created.
    """
    def parts(table: TablePlan, _: str) -> list[tf.Variable]:
        with tf.device(THIS_PROCESS):
            return [LateVariable(late_tensor(tf.TensorSpec([], tf.resource), missing=missing),
                                 tf.TensorShape([rows, table.dimension]))
                    for rows in plan.rows_per_host(table)]

    return variables_made_by(parts, plan)


def set_late_variables(late: Mapping[str, TableVariables],
                       made: Mapping[str, TableVariables]) -> None:
    """Leads late variables to those that now exist, wherever they were used."""
    for name, table in late.items():
        pairs = [(table.parts, made[name].parts),
                 *((table.slots[slot], made[name].slots[slot]) for slot in table.slots)]
        for before, after in pairs:
            for variable, own in zip(before, after, strict=True):
                set_late_tensor(variable.handle, own.handle)
