# SPDX-License-Identifier: Apache-2.0
"""Delays updates until the next batch is looked up: pipelining, with tables one step stale.

A TPU that overlaps lookups with the model looks up batch n + 1 before it applies the gradients of
batch n. Here these gradients are stored, with the learning rates and multipliers of their step.
"""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step import StepGradients, StepIds
from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.ops.ordering import after, when
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

_STEP = tf.float64  # exact up to 2⁵³ for any dtype of the global step


class DelayedUpdate:
    """The pending update of the previous batch; there is none at first."""

    def __init__(self, plan: EmbeddingPlan, ids: StepIds, channel: str | None = None):
        """Creates a queue for one update of the tables of a plan by ids like `ids`.

        Args:
            plan: the tables.
            ids: have the structure of the ids of every batch.
            channel: name of that which holds the update if the tables belong to the process,
                otherwise None.
        """
        with tf.Graph().as_default():
            example = (ids, _example_gradients(plan))
        self._queue = TensorQueue(example, capacity=1, channel=channel)

    @property
    def exported(self) -> tf.saved_model.experimental.TrackableResource:
        """What stands for the queue in a SavedModel, where it stays empty."""
        return self._queue.exported

    def delay(self, engine: PartitionedEmbedding, ids: StepIds,
              step_gradients: StepGradients) -> Tensor:
        """Applies the pending update, if any, and stores another; returns a tensor to wait for.

        Args:
            engine: the tables.
            ids: the ids of the step, made with `training=True`.
            step_gradients: the result of `engine.step_gradients`.
        """
        with tf.control_dependencies([self.apply(engine)]):
            return after(self._queue.enqueue((ids, step_gradients._replace(
                gradients=dict(step_gradients.gradients),
                step=tf.cast(step_gradients.step, _STEP)))))

    def apply(self, engine: PartitionedEmbedding) -> Tensor:
        """Applies the pending update, if any; returns a tensor to wait for.

        In eager execution, an update that fails stays pending.
        """
        return when(self._queue.size() > 0, lambda: self._apply_pending(engine))

    def _apply_pending(self, engine: PartitionedEmbedding) -> tf.Operation | None:
        pending = self._queue.dequeue()
        try:
            return engine.update(*pending)
        except Exception:
            if tf.executing_eagerly():
                self._queue.enqueue(pending)
            raise

    @contextlib.contextmanager
    def applied(self, engine: PartitionedEmbedding) -> Iterator[None]:
        """Applies the pending update within the context, and takes it back at the end; eager.

        A program that saves its tables then goes on as if it had not saved them: the next lookup
        still misses the update. While the context is open, changed tables are in memory twice.
        """
        if not int(self._queue.size()):
            yield
            return
        variables = [part for table in engine.variables.values()
                     for parts in (table.parts, *table.slots.values()) for part in parts]
        before = [variable.read_value() for variable in variables]  # shared until the update
        pending = self._queue.dequeue()
        try:
            engine.update(*pending)
            yield
        finally:
            for variable, value in zip(variables, before, strict=True):
                variable.assign(value)
            self._queue.enqueue(pending)  # last, as a variable may complete before it is assigned

    def drop(self) -> Tensor:
        """Drops the pending update, if any; returns a tensor to wait for."""
        return when(self._queue.size() > 0, lambda: after(self._queue.dequeue()[1].step))


def _example_gradients(plan: EmbeddingPlan) -> StepGradients:
    """Returns placeholders for gradients, with their dtypes and shapes, in the default graph."""
    def scalar(dtype: tf.DType = tf.float32) -> Tensor:
        return tf.compat.v1.placeholder(dtype, [])
    return StepGradients(
        {table.name: tf.compat.v1.placeholder(tf.float32, [None, table.dimension])
         for table in plan.tables},
        {table.name: scalar() if callable(rate) else rate for table in plan.tables
         for rate in (table.training_optimizer.learning_rate,)},
        {table.name: scalar() for table in plan.tables if plan.multiplier_of(table)},
        scalar(_STEP))
