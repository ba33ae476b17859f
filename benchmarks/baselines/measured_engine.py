# SPDX-License-Identifier: Apache-2.0
"""The engine with statistics of every 100th step, to measure their cost against `engine`."""

import time
from collections.abc import Sequence

import tensorflow as tf

from benchmarks.baselines import engine
from benchmarks.batches import Batch
from benchmarks.workloads import Workload
from tpu_estimator_embedding.engine.measures import create_marks
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step import StepGradients, StepIds
from tpu_estimator_embedding.statistics.summaries import to_summary
from tpu_estimator_embedding.statistics.table_statistics import summarize

_EVERY = 100


class _MeasuredEngine(PartitionedEmbedding):
    """Measures its update if `is_due` is fed with True."""

    def update(self, ids: StepIds, step_gradients: StepGradients) -> tf.Operation:
        """Updates tables."""
        self.is_due = tf.compat.v1.placeholder_with_default(False, [])
        with tf.control_dependencies(None):
            marks = create_marks(self.variables)
            self.unmark = tf.group(*(mark.initializer for parts in marks.values()
                                     for mark in parts))
        self.measures = self.measured_update(ids, step_gradients, marks, self.is_due)
        return tf.group(*(host.sums for host in self.measures.hosts))


class Baseline(engine.Baseline):
    """Marks trained rows in every step, and measures the last step of every turn.

    A turn is shorter than 100 steps. Each of its steps is charged 1/100 of the measured step,
    including the time to create the summary.
    """

    _engine: _MeasuredEngine

    def __init__(self, workload: Workload, batches: Sequence[Batch]):
        super().__init__(workload, batches)
        self._session.run(self._engine.unmark)

    def _make_engine(self, workload: Workload, num_hosts: int) -> PartitionedEmbedding:
        plain = engine.make_engine(workload, num_hosts)
        self._engine = _MeasuredEngine(plain.plan, plain.variables)
        return self._engine

    def run(self, first: int, count: int) -> float:
        """Runs `count` steps over the batches in turn; returns their duration in seconds."""
        plain = super().run(first, count - 1) / max(1, count - 1)
        start = time.perf_counter()
        self.measured()
        measured = time.perf_counter() - start
        return count * (plain * (1 - 1 / _EVERY) + measured / _EVERY)

    def measured(self) -> bytes:
        """Runs a measured step; returns its summary."""
        values = self._session.run(self._engine.measures, {self._engine.is_due: True})
        return to_summary(summarize(self._engine.plan, values)).SerializeToString()
