# SPDX-License-Identifier: Apache-2.0
"""This package's engine in a `tf.function`: the lower limit for the TF2 classes.

TensorFlow needs 0.2 ms to call a function, and less to run a session.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from benchmarks.baselines.engine import make_engine, parts_of, train_step
from benchmarks.baselines.graph_inputs import flat_dataset, limit_threads
from benchmarks.baselines.stepping import timed_steps
from benchmarks.batches import Batch, make_gradients
from benchmarks.workloads import Workload
from tpu_estimator_embedding.kernels import load


class Baseline:
    """A function with one lookup and one update of all tables."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], threads: int = 0):
        limit_threads(threads)
        self._num_batches = len(batches)
        self._engine = make_engine(workload)
        self._train = _step_function(self._engine, workload, batches)
        self.description = load.description()

    def run(self, first: int, count: int) -> float:
        """Runs `count` steps over the batches in turn; returns their duration in seconds."""
        return timed_steps(lambda _: self._train(), first, count, self._num_batches)

    def tables(self) -> list[np.ndarray]:
        """Returns the tables, in the order of the workload."""
        return [np.concatenate([part.numpy() for part in parts])
                for parts in parts_of(self._engine)]

    def close(self) -> None:
        """Frees the tables."""
        self._engine = self._train = None


def _step_function(engine, workload: Workload, batches: Sequence[Batch]):
    inputs = iter(flat_dataset(batches))
    gradients = [tf.Variable(gradient, trainable=False) for gradient in make_gradients(workload)]

    @tf.function(autograph=False)
    def train():
        train_step(engine, workload, next(inputs), gradients)

    return train
