# SPDX-License-Identifier: Apache-2.0
"""`tf.function` with Keras' Adagrad.

It is Keras 2's Adagrad, which updates only the rows of a sparse gradient; Keras 3 converts the
gradients to dense ones.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks.baselines.graph_inputs import limit_threads, to_sparse
from benchmarks.baselines.stepping import timed_steps
from benchmarks.batches import Batch, make_gradients
from benchmarks.workloads import (
    INITIAL_ACCUMULATOR,
    INITIAL_VALUE,
    LEARNING_RATE,
    Workload,
)


class Baseline:
    """`safe_embedding_lookup_sparse` under a tape, in one compiled function."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], threads: int = 0):
        limit_threads(threads)
        self._tables = [tf.Variable(tf.fill([workload.rows, workload.dim], INITIAL_VALUE))
                        for _ in range(workload.num_tables)]
        self._inputs = [[to_sparse(ids, splits) for ids, splits in
                         zip(batch.ids, batch.splits, strict=True)] for batch in batches]
        self._train = _train_function(workload, self._tables)

    def run(self, first: int, count: int) -> float:
        """Runs `count` steps; returns their duration in seconds."""
        return timed_steps(lambda batch: self._train(self._inputs[batch]), first, count,
                           len(self._inputs))

    def tables(self) -> list[np.ndarray]:
        """Returns the tables, in the order of the workload."""
        return [table.numpy() for table in self._tables]

    def close(self) -> None:
        """Frees the tables."""
        self._tables, self._train = [], None


def _train_function(workload: Workload, tables: list[tf.Variable]):
    optimizer = tf_keras.optimizers.Adagrad(
        LEARNING_RATE, initial_accumulator_value=INITIAL_ACCUMULATOR)
    optimizer.build(tables)
    gradients = [tf.Variable(gradient, trainable=False) for gradient in make_gradients(workload)]

    @tf.function
    def train(inputs):
        with tf.GradientTape() as tape:
            activations = [tf.nn.safe_embedding_lookup_sparse(
                table, ids, combiner=workload.combiner(number))
                for number, (table, ids) in enumerate(zip(tables, inputs, strict=True))]
        table_gradients = tape.gradient(activations, tables,
                                        [gradient.read_value() for gradient in gradients])
        optimizer.apply_gradients(zip(table_gradients, tables, strict=True))
        return activations  # otherwise TensorFlow would not compute them

    return train
