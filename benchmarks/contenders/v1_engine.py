# SPDX-License-Identifier: Apache-2.0
"""`tpu_embedding.TPUEmbedding` of this package, driven by hand in a session."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks.batches import Batch, make_gradients
from benchmarks.contenders.engine import session_config
from benchmarks.contenders.graph_inputs import (
    Feeds,
    feature,
    fed,
    fill,
    initialize,
    next_batch,
)
from benchmarks.contenders.stepping import timed_steps
from benchmarks.workloads import (
    INITIAL_ACCUMULATOR,
    INITIAL_VALUE,
    LEARNING_RATE,
    Workload,
)
from tpu_estimator_embedding.compat.modules import tpu_embedding
from tpu_estimator_embedding.kernels import load


class Contender:
    """One core that enqueues, receives activations and sends gradients in one run."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], threads: int = 0):
        self._num_batches = len(batches)
        with tf.Graph().as_default():
            feeds: Feeds = {}
            engine = _make_engine(workload)
            self._variables = engine.create_variables_and_ops().embedding_variables_by_table
            step = _build_step(engine, workload, batches, feeds)
            self._session = tf.compat.v1.Session(config=session_config(threads))
            initialize(self._session, feeds)
            self._train = self._session.make_callable(step)
        self.description = load.description()

    def run(self, first: int, count: int) -> float:
        """Returns the seconds that `count` steps take; batches come in turn."""
        return timed_steps(lambda _: self._train(), first, count, self._num_batches)

    def tables(self) -> list[np.ndarray]:
        """Returns the tables, in the order of the workload."""
        return [np.concatenate(self._session.run(self._variables[name]))
                for name in sorted(self._variables)]

    def close(self) -> None:
        """Frees the tables."""
        self._session.close()


def _make_engine(workload: Workload) -> tpu_embedding.TPUEmbedding:
    tables = {_table(table): tpu_embedding.TableConfig(
        workload.rows, workload.dim, fill(INITIAL_VALUE), workload.combiner(table))
        for table in range(workload.num_tables)}
    features = {feature(table): tpu_embedding.FeatureConfig(_table(table))
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


def _table(table: int) -> str:
    return f"table_{table:03}"
