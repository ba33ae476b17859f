# SPDX-License-Identifier: Apache-2.0
"""`tpu_embedding.TPUEmbedding` of this package, called directly in a session."""

from collections.abc import Sequence

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
from tpu_estimator_embedding.compat.modules import tpu_embedding
from tpu_estimator_embedding.kernels import load


class Baseline(SessionSteps):
    """One core that enqueues, receives activations and sends gradients in one run."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], threads: int = 0):
        def build(feeds: Feeds) -> tuple[list[Parts], list[tf.Operation]]:
            engine = _make_engine(workload)
            variables = engine.create_variables_and_ops().embedding_variables_by_table
            return ([variables[name] for name in sorted(variables)],
                    _build_step(engine, workload, batches, feeds))

        super().__init__(build, len(batches), threads)
        self.description = load.description()


def _make_engine(workload: Workload) -> tpu_embedding.TPUEmbedding:
    tables = {table_name(table): tpu_embedding.TableConfig(
        workload.rows, workload.dim, fill(INITIAL_VALUE), workload.combiner(table))
        for table in range(workload.num_tables)}
    features = {feature(table): tpu_embedding.FeatureConfig(table_name(table))
                for table in range(workload.num_tables)}
    return tpu_embedding.TPUEmbedding(
        tables, features, workload.batch_size, tpu_embedding.TRAINING, master="",
        optimization_parameters=tpu_embedding.AdagradParameters(
            LEARNING_RATE, INITIAL_ACCUMULATOR))


def _build_step(engine: tpu_embedding.TPUEmbedding, workload: Workload,
                batches: Sequence[Batch], feeds: Feeds) -> list[tf.Operation]:
    inputs = next_batch(batches, lambda batch: tuple(
        zip(batch.ids, batch.splits, strict=True)), feeds)
    enqueue = engine.generate_enqueue_ops([{
        feature(table): tpu_embedding.RaggedEnqueueData(ids, splits)
        for table, (ids, splits) in enumerate(inputs)}], ragged=True)
    activations = engine.get_activations()
    gradients = {feature(table): tf.compat.v1.get_variable(
        f"gradient_{table}", initializer=fed(gradient, feeds), trainable=False,
        use_resource=True).read_value()
        for table, gradient in enumerate(make_gradients(workload))}
    send = engine.generate_send_gradients_op(gradients)
    return [*enqueue, *(value.op for value in activations.values()), send]

