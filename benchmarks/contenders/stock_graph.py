# SPDX-License-Identifier: Apache-2.0
"""What a program without TPUEstimator would write: columns and a sparse optimizer."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks.batches import Batch, make_gradients
from benchmarks.contenders.graph_inputs import (
    Feeds,
    feature,
    fed,
    fill,
    initialize,
    next_batch,
    to_sparse,
)
from benchmarks.contenders.stepping import timed_steps
from benchmarks.workloads import (
    INITIAL_ACCUMULATOR,
    INITIAL_VALUE,
    LEARNING_RATE,
    Workload,
)


class Contender:
    """`embedding_column`s, `input_layer` and `AdagradOptimizer` in a session."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], threads: int = 0):
        self._num_batches = len(batches)
        with tf.Graph().as_default():
            feeds: Feeds = {}
            self._tables, ops = _build_step(workload, batches, feeds)
            self._session = tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads))
            initialize(self._session, feeds)
            self._train = self._session.make_callable(ops)

    def run(self, first: int, count: int) -> float:
        """Returns the seconds that `count` steps take; batches come in turn."""
        return timed_steps(lambda _: self._train(), first, count, self._num_batches)

    def tables(self) -> list[np.ndarray]:
        """Returns the tables, in the order of the workload."""
        return self._session.run(self._tables)

    def close(self) -> None:
        """Frees the tables."""
        self._session.close()


def _build_step(workload: Workload, batches: Sequence[Batch], feeds: Feeds
                ) -> tuple[list[tf.Variable], list[tf.Operation]]:
    features = next_batch(batches, lambda batch: {
        feature(table): to_sparse(ids, splits)
        for table, (ids, splits) in enumerate(zip(batch.ids, batch.splits, strict=True))}, feeds)
    activations = tf.compat.v1.feature_column.input_layer(features, _columns(workload))
    gradient = tf.compat.v1.get_variable(
        "gradient", initializer=fed(np.concatenate(make_gradients(workload), axis=1), feeds),
        trainable=False, use_resource=True).read_value()
    tables = tf.compat.v1.trainable_variables()
    optimizer = tf.compat.v1.train.AdagradOptimizer(LEARNING_RATE, INITIAL_ACCUMULATOR)
    step = optimizer.apply_gradients(zip(
        tf.gradients(activations, tables, grad_ys=gradient), tables, strict=True))
    return tables, [activations.op, step]  # both, as gradients alone need no activations


def _columns(workload: Workload) -> list:
    return [tf.feature_column.embedding_column(
        tf.feature_column.categorical_column_with_identity(feature(table), workload.rows),
        workload.dim, workload.combiner(table),
        initializer=fill(INITIAL_VALUE))
        for table in range(workload.num_tables)]
