# SPDX-License-Identifier: Apache-2.0
"""Updates that wait until the next batch is looked up: pipelining, one step stale.

A TPU that overlaps lookups with the model looks batch n + 1 up before it applies the
gradients of batch n. Here these gradients wait, with the learning rates of their step.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.mid_level.config.to_plan import learning_rates, with_learning_rates
from tpu_estimator_embedding.mid_level.step.waiting_batches import when
from tpu_estimator_embedding.types import Tensor


class DelayedUpdate:
    """The gradients of the batch before, of which there are none at first."""

    def __init__(self, engine: PartitionedEmbedding, ids: Any):
        """Makes room for the gradients of batches like `ids`."""
        self._engine = engine
        with tf.Graph().as_default():
            gradients = {table.name: tf.compat.v1.placeholder(tf.float32, [None, table.dimension])
                         for table in engine.plan.tables}
            rates = {table.name: tf.compat.v1.placeholder(tf.float32, [])
                     for table in engine.plan.tables
                     if callable(table.training_optimizer.learning_rate)}
        self._queue = TensorQueue((ids, gradients, rates), capacity=1)

    def delay(self, ids: Any, gradients: Mapping[str, Tensor]) -> None:
        """Keeps gradients until `apply`."""
        self._queue.enqueue((ids, dict(gradients), learning_rates(self._engine.plan)))

    def apply(self) -> Tensor:
        """Updates the tables with what waits; returns a tensor to wait for."""
        return when(self._queue.queue.size() > 0, self._apply)

    def drop(self) -> None:
        """Forgets what waits."""
        when(self._queue.queue.size() > 0, self._queue.dequeue)

    def _apply(self) -> None:
        ids, gradients, rates = self._queue.dequeue()
        plan = with_learning_rates(self._engine.plan, rates)
        PartitionedEmbedding(plan, self._engine.variables).apply_gradients(ids, gradients, 0)
