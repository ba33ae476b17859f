# SPDX-License-Identifier: Apache-2.0
"""This package's engine in a session: lookups and updates, no estimator, no model.

Which kernels it runs on is said by TPU_ESTIMATOR_EMBEDDING_KERNELS.
"""

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
)
from benchmarks.contenders.stepping import timed_steps
from benchmarks.workloads import (
    INITIAL_ACCUMULATOR,
    INITIAL_VALUE,
    LEARNING_RATE,
    Workload,
)
from tpu_estimator_embedding.engine.enqueue_data import RaggedEnqueueData
from tpu_estimator_embedding.engine.partitioned_embedding import (
    PartitionedEmbedding,
    create_variables,
    default_names,
    shard_ids,
)
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan


class Contender:
    """A graph with one lookup and one update of everything."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], num_hosts: int = 1,
                 threads: int = 0):
        self._num_batches = len(batches)
        plan = to_plan(workload, num_hosts)
        with tf.Graph().as_default():
            self._variables = create_variables(plan, default_names(plan))
            feeds: Feeds = {}
            self._step = _build_step(plan, self._variables, workload, batches, feeds)
            self._session = tf.compat.v1.Session(config=session_config(threads))
            initialize(self._session, feeds)
            self._train = self._session.make_callable(self._step)
        self.description = load.description()

    def run(self, first: int, count: int) -> float:
        """Returns the seconds that `count` steps take; batches come in turn."""
        return timed_steps(lambda _: self._train(), first, count, self._num_batches)

    def tables(self) -> list[np.ndarray]:
        """Returns the tables, in the order of the workload."""
        return [np.concatenate(self._session.run(self._variables[name].parts))
                for name in sorted(self._variables)]

    def close(self) -> None:
        """Frees the tables."""
        self._session.close()


def session_config(threads: int) -> tf.compat.v1.ConfigProto:
    """Returns how many threads a session may use; 0 leaves it to TensorFlow."""
    return tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads,
                                    inter_op_parallelism_threads=threads)


def to_plan(workload: Workload, num_hosts: int) -> EmbeddingPlan:
    """Returns the tables and features of a workload."""
    optimizer = RowOptimizer(Adagrad(INITIAL_ACCUMULATOR), LEARNING_RATE)
    tables = [TablePlan(f"table_{table:03}", workload.rows, workload.dim,
                        fill(INITIAL_VALUE),
                        workload.combiner(table), optimizer)
              for table in range(workload.num_tables)]
    features = [FeaturePlan(feature(table), f"table_{table:03}")
                for table in range(workload.num_tables)]
    return EmbeddingPlan.build(tables, features, num_hosts=num_hosts)


def _build_step(plan: EmbeddingPlan, variables, workload: Workload,
                batches: Sequence[Batch], feeds: Feeds) -> tf.Operation:
    inputs = next_batch(batches, lambda batch: tuple(
        zip(batch.ids, batch.splits, strict=True)), feeds)
    data = {feature(table): RaggedEnqueueData(ids, splits)
            for table, (ids, splits) in enumerate(inputs)}
    gradients = {f"table_{table:03}": tf.compat.v1.get_variable(
        f"gradient_{table}", initializer=fed(gradient, feeds), trainable=False, use_resource=True)
        for table, gradient in enumerate(make_gradients(workload))}
    engine = PartitionedEmbedding(plan, variables)
    ids = shard_ids(plan, data, workload.batch_size, training=True)
    activations = engine.lookup(ids)
    with tf.control_dependencies(list(activations.values())):
        return engine.apply_gradients(
            ids, {name: gradient.read_value() for name, gradient in gradients.items()},
            step=tf.constant(0, tf.int64))
