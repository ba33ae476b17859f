# SPDX-License-Identifier: Apache-2.0
"""A program that measures updates on 1, 2 and many threads, and prints what it measured.

The threads are as in `same_bits`. There are enough ids for several shares of the update.
"""

import hashlib
import json

import numpy as np
import tensorflow as tf

from tests.spec.engine.same_bits import NUM_THREADS, use_threads
from tpu_estimator_embedding.engine.enqueue_data import RaggedEnqueueData
from tpu_estimator_embedding.engine.measures import create_marks
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step_ids import prepare_replicas
from tpu_estimator_embedding.engine.variables import create_variables, default_names
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan
from tpu_estimator_embedding.statistics.table_statistics import summarize

SIZES = {"large": 30_000, "small": 50}
DIMENSION, BATCH_SIZE, IDS_PER_SAMPLE, REPLICAS, STEPS = 20, 2_000, 5, 2, 2


def new_plan(accumulates):
    optimizer = RowOptimizer(Adagrad(), 0.1, gradient_limits=(-0.5, 0.5),
                             use_gradient_accumulation=accumulates)
    return EmbeddingPlan.build(
        [TablePlan(name, size, DIMENSION, tf.random_uniform_initializer(seed=1), "mean", optimizer)
         for name, size in SIZES.items()],
        [FeaturePlan(f"of_{name}", name) for name in SIZES], num_hosts=2)


def new_inputs(rng):
    """Returns for each replica the ids of every feature."""
    splits = np.arange(BATCH_SIZE + 1, dtype=np.int64) * IDS_PER_SAMPLE
    return [{f"of_{name}": RaggedEnqueueData(
        (rng.random(BATCH_SIZE * IDS_PER_SAMPLE) ** 3 * size).astype(np.int64), splits)
        for name, size in SIZES.items()} for _ in range(REPLICAS)]


def measured(accumulates):
    """Returns a digest of all measures, and the statistics of the last step."""
    rng, digest = np.random.default_rng(3), hashlib.sha256()
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(1)
        plan = new_plan(accumulates)
        engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))
        marks = create_marks(engine.variables)
        steps = []
        for step in range(STEPS):
            with tf.control_dependencies(tf.nest.flatten(steps)):
                ids = prepare_replicas(plan, [(datas, tf.constant(BATCH_SIZE, tf.int64))
                                              for datas in new_inputs(rng)], training=True)
                gradients = {name: tf.constant(rng.standard_normal(
                    [REPLICAS * BATCH_SIZE, DIMENSION]), tf.float32) for name in SIZES}
                steps.append(engine.measured_update(
                    ids, engine.step_gradients(gradients, tf.constant(step)), marks,
                    tf.constant(True)))
        with tf.compat.v1.Session() as session:
            session.run([tf.compat.v1.global_variables_initializer(),
                         tf.compat.v1.local_variables_initializer()])
            values = session.run(steps)
    for value in tf.nest.flatten(values):
        digest.update(value.tobytes())
    return digest.hexdigest()[:16], {name: table.scalars for name, table in
                                     summarize(plan, values[-1]).items()}


def main():
    found = {}
    for number in NUM_THREADS:
        use_threads(number)
        for accumulates in (True, False):
            found[f"{number} threads, accumulates: {accumulates}"] = measured(accumulates)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
