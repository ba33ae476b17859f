# SPDX-License-Identifier: Apache-2.0
"""A stock v1 program without TPUEstimator: columns and a sparse optimizer."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks.baselines.graph_inputs import (
    Feeds,
    feature,
    fed,
    fill,
    next_batch,
    to_sparse,
)
from benchmarks.baselines.session_steps import Parts, SessionSteps
from benchmarks.batches import Batch, make_gradients
from benchmarks.workloads import (
    INITIAL_ACCUMULATOR,
    INITIAL_VALUE,
    LEARNING_RATE,
    Workload,
)


class Baseline(SessionSteps):
    """`embedding_column`s, `input_layer` and `AdagradOptimizer` in a session."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], threads: int = 0):
        super().__init__(lambda feeds: build_step(workload, batches, feeds), len(batches),
                         threads)


def build_step(workload: Workload, batches: Sequence[Batch], feeds: Feeds
               ) -> tuple[list[Parts], list[tf.Operation]]:
    """Returns the tables, and the ops of a step."""
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
    # Fetches both, because the gradients alone do not need the activations.
    return [[table] for table in tables], [activations.op, step]


def _columns(workload: Workload) -> list:
    return [tf.feature_column.embedding_column(
        tf.feature_column.categorical_column_with_identity(feature(table), workload.rows),
        workload.dim, workload.combiner(table),
        initializer=fill(INITIAL_VALUE))
        for table in range(workload.num_tables)]
