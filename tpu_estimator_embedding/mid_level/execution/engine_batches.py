# SPDX-License-Identifier: Apache-2.0
"""The engine of a TPUEmbedding, created when the shapes of its features are known."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.engine.delayed_update import DelayedUpdate
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.engine.measures import MeasureRecorder
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.engine.stacked_activations import stack_gradients
from tpu_estimator_embedding.engine.step import EnqueueDatas, StepIds
from tpu_estimator_embedding.engine.step_ids import prepare_replicas
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.mid_level.config.to_plan import with_sequence_lengths
from tpu_estimator_embedding.mid_level.execution import replica_activations
from tpu_estimator_embedding.mid_level.execution.servers import check_kernels, is_cluster
from tpu_estimator_embedding.mid_level.execution.table_variables import UpdateCount
from tpu_estimator_embedding.mid_level.execution.waiting_batches import (
    FunctionBatches,
    PendingBatches,
    WaitingBatches,
)
from tpu_estimator_embedding.mid_level.input.feature_input import feature_data
from tpu_estimator_embedding.mid_level.input.row_layout import RowLayout
from tpu_estimator_embedding.ops.ordering import when
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

Values = Mapping[str, Any]  # path of a feature -> ids, weights, activations or gradients


class EngineBatches:
    """Runs lookups and updates of the batches of all replicas.

    Attributes:
        plan: the tables and features, with the sequence lengths of the layout.
        layout: the shapes of the features on one replica.
    """

    def __init__(self, plan: EmbeddingPlan, variables: Mapping[str, TableVariables],
                 layout: RowLayout, num_replicas: int, update_count: UpdateCount,
                 strategy: tf.distribute.Strategy | None = None):
        """Creates the queues, outside of strategies and functions."""
        self.plan = with_sequence_lengths(plan, layout.rows_per_sample)
        self.layout = layout
        self._num_replicas, self._update_count = num_replicas, update_count
        self._engine = PartitionedEmbedding(self.plan, variables)
        self._can_train = not plan.tables_without_optimizer
        self._is_on_servers = is_cluster(strategy)
        check_kernels(self.plan, strategy)
        batch = self._example_batch()
        self._waiting: PendingBatches = (
            FunctionBatches() if self._is_on_servers else WaitingBatches(batch))
        self._delayed = (DelayedUpdate(self.plan, batch)
                         if plan.pipelined and self._can_train else None)

    def enqueue(self, replicas: Sequence[tuple[Values, Values]], training: bool, *,
                is_optional: bool = False) -> list[None]:
        """Checks the ids and weights of all replicas and adds them to the queue.

        Args:
            replicas: (ids, weights) of each replica.
            training: whether gradients will follow.
            is_optional: whether gradients may be missing although training is True.
        """
        with tf.device(THIS_PROCESS):
            datas = [{path: feature_data(path, ids[path], weights[path], self.layout)
                      for path in ids} for ids, weights in replicas]
            self._waiting.enqueue(self._prepare(datas), training, is_optional=is_optional)
        return [None] * self._num_replicas

    def dequeue(self) -> list[dict[str, Tensor]]:
        """Returns the activations of each replica's features."""
        with tf.device(THIS_PROCESS):
            batch = self._waiting.dequeue()
            ids = batch.ids
            if self._delayed:
                # A lookup for inference sees all updates.
                applied = when(tf.logical_not(batch.is_for_training), self._complete)
                with tf.control_dependencies([applied]):
                    ids = tf.nest.map_structure(
                        lambda leaf: None if leaf is None else tf.identity(leaf), ids)
            stacked = self._engine.lookup(ids)
            with tf.control_dependencies(list(stacked.values())):
                self._complete()
                if self._can_train:
                    self._waiting.hold(batch)
            return replica_activations.split(self.plan, stacked, self.layout, self._num_replicas)

    def apply_gradients(self, gradients: Sequence[Mapping[str, Tensor]]) -> list[None]:
        """Updates the tables with the gradients of each replica's activations."""
        with tf.device(THIS_PROCESS):
            ids = self._waiting.held()
            update = self._engine.step_gradients(
                stack_gradients(self.plan, gradients), self._update_count.next())
            self._waiting.release()
            if self._delayed:
                self._delayed.delay(self._engine, ids, update)
            else:
                self._engine.update(ids, update)
        return [None] * self._num_replicas

    def drop(self) -> None:
        """Drops the batches that were enqueued, and the one that waits for gradients."""
        with tf.device(THIS_PROCESS):
            self._waiting.drop()

    def record_measures(self, recorder: MeasureRecorder) -> None:
        """Enables measuring of updates in functions traced after this call."""
        self._engine.recorder = recorder

    def complete(self) -> None:
        """Applies the delayed update, now or when the current graph runs."""
        with tf.device(THIS_PROCESS):
            self._complete()

    @contextlib.contextmanager
    def completed(self) -> Iterator[None]:
        """Applies the delayed update within the context only; eager."""
        with tf.device(THIS_PROCESS), (self._delayed.applied(self._engine) if self._delayed
                                       else contextlib.nullcontext()):
            yield

    def forget(self) -> None:
        """Drops the delayed update, because the tables are restored."""
        if self._delayed:
            with tf.init_scope(), tf.device(THIS_PROCESS):
                self._delayed.drop()

    def _complete(self) -> Tensor | None:
        return self._delayed.apply(self._engine) if self._delayed else None

    def _prepare(self, datas: Sequence[EnqueueDatas]) -> StepIds:
        return prepare_replicas(self.plan, [(data, self.layout.batch_size) for data in datas],
                                training=self._can_train, uniform=True,
                                on_servers=self._is_on_servers)

    def _example_batch(self) -> StepIds:
        """Returns placeholders with the dtypes and shapes of all batches, in a separate graph."""
        with tf.Graph().as_default():
            def example(length: int) -> EnqueueData:
                return EnqueueData(
                    tf.compat.v1.placeholder(tf.int64, [None]),
                    tf.compat.v1.placeholder(tf.int64, [None, 2] if length else [None]))
            return self._prepare([{path: example(length) for path, length in
                                 self.layout.rows_per_sample.items()}
                                for _ in range(self._num_replicas)])
