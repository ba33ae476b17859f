# SPDX-License-Identifier: Apache-2.0
"""Reads and parses the files without training."""

import tempfile
from collections.abc import Sequence

import tensorflow as tf

from benchmarks import records
from benchmarks.baselines.stepping import timed_steps
from benchmarks.batches import Batch
from benchmarks.workloads import Workload


class Baseline:
    """The dataset of the end-to-end baselines, without a model."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], is_stock: bool = False,
                 directory: str = ""):
        self._directory = tempfile.TemporaryDirectory()
        files = records.write_once(workload, batches, directory or self._directory.name)
        with tf.Graph().as_default():
            input_fn = records.make_input_fn(workload, files, False, is_stock)
            dataset = input_fn({"batch_size": workload.batch_size})
            iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
            batch = tf.nest.flatten(iterator.get_next(), expand_composites=True)
            self._session = tf.compat.v1.Session()
            self._session.run(iterator.initializer)
            self._next = self._session.make_callable(tf.group(*batch))

    def run(self, first: int, count: int) -> float:
        """Parses `count` batches; returns the duration in seconds."""
        return timed_steps(lambda _: self._next(), first, count, count)

    def close(self) -> None:
        """Ends the reading."""
        self._session.close()
        self._directory.cleanup()
