# SPDX-License-Identifier: Apache-2.0
"""Tables that all graphs and sessions of the process share, as a TPU's tables are shared.

TensorFlow's variables belong to one session. These need the native kernels, are in no collection,
and have no value until one is assigned.
"""

from typing import Any, NamedTuple, cast

import tensorflow as tf

from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.engine.variables import TableVariables, variables_made_by
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.ops.assertion import assert_that
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Tensor


class ProcessVariable(NamedTuple):
    """A float32 variable of the process, in one graph.

    Attributes:
        handle: its resource handle.
        shape: of its value.
    """

    handle: Tensor
    shape: tf.TensorShape

    @property
    def device(self) -> str:
        """The device of the handle."""
        return self.handle.device

    def assign(self, value: Tensor) -> tf.Operation:
        """Returns the op that assigns a value of the shape."""
        return tf.raw_ops.AssignVariableOp(
            resource=self.handle, value=tf.ensure_shape(value, self.shape))

    def read_value(self) -> Tensor:
        """Returns the value; an error when it is evaluated if none was assigned."""
        has_value = assert_that(
            tf.raw_ops.VarIsInitializedOp(resource=self.handle),
            "Tables must be loaded before they are retrieved, got one without values. Run the ops "
            "load_tpu_embedding_..._parameters.")
        with tf.control_dependencies(has_value):
            value = tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=tf.float32)
        return tf.ensure_shape(value, self.shape)


def create_process_variables(plan: EmbeddingPlan, owner: str) -> dict[str, TableVariables]:
    """Returns table name -> variables of the process, one part for each host.

    Args:
        plan: the tables.
        owner: whose tables they are; variables of equal owners and tables are the same.
    """
    def parts(table: TablePlan, name: str) -> list[tf.Variable]:
        made = []
        for part, rows in enumerate(plan.rows_per_host(table)):
            shape = [rows, table.dimension]
            with tf.device(THIS_PROCESS):
                handle = load.native_ops().tpu_embedding_process_variable(
                    owner=owner, variable=f"{name}/part_{part}", dtype=tf.float32, shape=shape)
            made.append(ProcessVariable(handle, tf.TensorShape(shape)))
        return cast(list[tf.Variable], made)

    return variables_made_by(parts, plan)


def drop_process_variables(owner: str) -> None:
    """Frees the variables of an owner."""
    functions: Any = load.kernels().functions
    functions.tpu_embedding_drop_variables(owner.encode())
