# SPDX-License-Identifier: Apache-2.0
"""Variables that store the measures of an update in programs without sessions."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.engine.measures import (
    HostMeasures,
    StepMeasures,
    create_marks,
    find_trained_rows,
)
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

_HOST = HostMeasures(*(tf.TensorSpec(shape, dtype) for shape, dtype in (
    ([None, 5], tf.float64), ([None], tf.int64), ([None], tf.float32), ([None], tf.int64),
    ([None], tf.int64), ([None, 3], tf.int64))))


class MeasureRecorder:
    """Enables measuring of updates while `is_due` is set, and stores the last measures.

    Create it in eager execution, outside of strategies.

    Attributes:
        plan: the tables.
        marks: the marks of their rows.
        is_due: whether to measure the next update.
    """

    def __init__(self, plan: EmbeddingPlan, variables: Mapping[str, TableVariables]):
        self.plan, self._variables = plan, variables
        self.marks = create_marks(variables)
        self.is_due = tf.Variable(False, trainable=False)
        num_hosts = max(len(table.parts) for table in variables.values())
        of_tables = [tf.TensorSpec([None], dtype) for dtype in (
            tf.int64, tf.float32, tf.float32)]
        self._values = tf.nest.map_structure(_variable_like, StepMeasures(
            tuple(_HOST for _ in range(num_hosts)), *of_tables))
        self._count = tf.Variable(0, trainable=False, dtype=tf.int64)

    @property
    def handles(self) -> list[Tensor]:
        """The handles of all variables that an update uses."""
        return [variable.handle for variable in self.children.values()]

    @property
    def children(self) -> dict[str, tf.Variable]:
        """Name -> variable, for an object whose exported functions may record measures."""
        marks = [mark for parts in self.marks.values() for mark in parts]
        return {f"measures_{number}": variable for number, variable in enumerate((
            *marks, self.is_due, self._count, *tf.nest.flatten(self._values)))}

    def find_trained_rows(self) -> None:
        """Sets the marks of rows according to their slots."""
        find_trained_rows(self.plan, self._variables, self.marks)

    def record(self, measures: StepMeasures) -> tf.Operation | None:
        """Stores measures if they are due; returns the op to wait for, in a graph."""
        def keep() -> Tensor:
            writes = [variable.assign(tf.cast(value, variable.dtype), read_value=False)
                      for variable, value in zip(tf.nest.flatten(self._values),
                                                 tf.nest.flatten(measures), strict=True)]
            writes.append(self._count.assign_add(1, read_value=False))
            with tf.control_dependencies([] if tf.executing_eagerly() else writes):
                return tf.constant(True)

        with tf.control_dependencies(tf.nest.flatten(measures)):
            kept = tf.cond(self.is_due, keep, lambda: tf.constant(False))
        return None if tf.executing_eagerly() else kept.op

    def take(self) -> Any:
        """Returns the measures as arrays; None if nothing was measured since the last call."""
        if not self._count.numpy():
            return None
        self._count.assign(0)
        return tf.nest.map_structure(lambda variable: variable.numpy(), self._values)


def _variable_like(spec: tf.TensorSpec) -> tf.Variable:
    return tf.Variable(tf.zeros([size or 0 for size in spec.shape], spec.dtype), trainable=False,
                       shape=spec.shape)
