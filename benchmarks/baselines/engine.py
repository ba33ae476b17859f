# SPDX-License-Identifier: Apache-2.0
"""This package's engine in a session: lookups and updates, without estimator and model.

TPU_ESTIMATOR_EMBEDDING_KERNELS selects the kernels.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from benchmarks.baselines.graph_inputs import Feeds, feature, fed, fill, next_batch, table_name
from benchmarks.baselines.session_steps import Parts, SessionSteps
from benchmarks.batches import Batch, make_gradients
from benchmarks.workloads import (
    INITIAL_ACCUMULATOR,
    INITIAL_VALUE,
    LEARNING_RATE,
    Workload,
)
from tpu_estimator_embedding.engine.enqueue_data import RaggedEnqueueData
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step_ids import prepare_ids
from tpu_estimator_embedding.engine.variables import create_variables, default_names
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan


class Baseline(SessionSteps):
    """A graph with one lookup and one update of all tables."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], num_hosts: int = 1,
                 threads: int = 0):
        def build(feeds: Feeds) -> tuple[list[Parts], tf.Operation]:
            engine = self._make_engine(workload, num_hosts)
            return parts_of(engine), build_step(engine, workload, batches, feeds)

        super().__init__(build, len(batches), threads)
        self.description = load.description()

    def _make_engine(self, workload: Workload, num_hosts: int) -> PartitionedEmbedding:
        return make_engine(workload, num_hosts)


def make_engine(workload: Workload, num_hosts: int = 1) -> PartitionedEmbedding:
    """Returns the engine with the tables of a workload."""
    plan = to_plan(workload, num_hosts)
    return PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))


def to_plan(workload: Workload, num_hosts: int) -> EmbeddingPlan:
    """Returns the tables and features of a workload."""
    optimizer = RowOptimizer(Adagrad(INITIAL_ACCUMULATOR), LEARNING_RATE)
    tables = [TablePlan(table_name(table), workload.rows, workload.dim, fill(INITIAL_VALUE),
                        workload.combiner(table), optimizer)
              for table in range(workload.num_tables)]
    features = [FeaturePlan(feature(table), table_name(table))
                for table in range(workload.num_tables)]
    return EmbeddingPlan.build(tables, features, num_hosts=num_hosts)


def parts_of(engine: PartitionedEmbedding) -> list[Parts]:
    """Returns the parts of every table, in the order of the workload."""
    return [engine.variables[table.name].parts for table in engine.plan.tables]


def build_step(engine: PartitionedEmbedding, workload: Workload, batches: Sequence[Batch],
               feeds: Feeds) -> tf.Operation:
    """Returns the op of a step that reads batches from memory."""
    inputs = next_batch(batches, lambda batch: tuple(
        zip(batch.ids, batch.splits, strict=True)), feeds)
    gradients = [tf.compat.v1.get_variable(
        f"gradient_{table}", initializer=fed(gradient, feeds), trainable=False,
        use_resource=True) for table, gradient in enumerate(make_gradients(workload))]
    return train_step(engine, workload, inputs, gradients)


def train_step(engine: PartitionedEmbedding, workload: Workload,
               inputs: Sequence[tuple[tf.Tensor, tf.Tensor]],
               gradients: Sequence[tf.Variable]) -> tf.Operation:
    """Returns the op that looks up ids and then updates their rows.

    Args:
        engine: the tables.
        workload: the workload of the tables.
        inputs: ids and row splits of every table.
        gradients: gradient of the activations of every table.
    """
    data: Mapping[str, RaggedEnqueueData] = {
        feature(table): RaggedEnqueueData(ids, splits)
        for table, (ids, splits) in enumerate(inputs)}
    ids = prepare_ids(engine.plan, data, workload.batch_size, training=True)
    activations = engine.lookup(ids)
    with tf.control_dependencies(list(activations.values())):
        return engine.apply_gradients(
            ids, {table_name(table): gradient.read_value()
                  for table, gradient in enumerate(gradients)}, step=tf.constant(0, tf.int64))
