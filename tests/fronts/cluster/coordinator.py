# SPDX-License-Identifier: Apache-2.0
"""A TF2 program for a ClusterCoordinator: two tables, one of two features, and a sequence.

    tpu-estimator-embedding cluster --ps 2 coordinator.py DIRECTORY STEPS [OPTION...]

Without TF_CONFIG it trains in one process. It restores DIRECTORY/ckpt if that is there, trains,
saves it again and writes all tables and slots, and the activations of a batch, to tables.npz.
Option: `refusals`, print what is refused.
"""

import os
import pathlib
import sys

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding import mid_level


def new_embedding():
    words = mid_level.TableConfig(
        11, 4, tf.constant_initializer(np.arange(44).reshape(11, 4) / 44), combiner="sum",
        optimizer=mid_level.Adagrad(0.1), name="words")
    items = mid_level.TableConfig(9, 4, mid_level.RowIdInitializer(), combiner="mean",
                                  optimizer=mid_level.Adam(0.1), name="items")
    features = {"first": mid_level.FeatureConfig(words), "second": mid_level.FeatureConfig(words),
                "history": mid_level.FeatureConfig(items, max_sequence_length=2)}
    return mid_level.TPUEmbedding(features, None, table_multipliers={"words": "warmup:4"})


def dataset():
    random = np.random.default_rng(1)
    ids = {"first": random.integers(0, 11, [80, 3]), "second": random.integers(0, 11, [80, 2]),
           "history": random.integers(1, 9, [80, 2])}
    return tf.data.Dataset.from_tensor_slices(ids).batch(8).map(lambda rows: {
        name: tf.sparse.from_dense(values) for name, values in rows.items()}).repeat()


def train_step(strategy, embedding):
    def replica(features):
        embedding.enqueue(features, training=True)
        with tf.GradientTape() as tape:
            activations = embedding.dequeue()
            tape.watch(activations)
            loss = tf.add_n([tf.reduce_mean(value ** 2) for value in activations.values()])
        embedding.apply_gradients(tape.gradient(loss, activations))
        return loss

    @tf.function
    def step(iterator):
        return strategy.run(replica, args=(next(iterator),))
    return step


def predict_step(embedding):
    @tf.function
    def step(iterator):
        embedding.enqueue(next(iterator), training=False)
        return embedding.dequeue()
    return step


class Here:
    """Calls functions in this process, as a ClusterCoordinator does on its workers."""

    def schedule(self, function, args):
        return function(*args)

    def join(self):
        pass

    def create_per_worker_dataset(self, dataset_fn):
        return dataset_fn()

    def fetch(self, value):
        return tf.nest.map_structure(lambda leaf: leaf.numpy(), value)


def connect():
    """Returns the scope and the coordinator of this program; servers and workers stay here."""
    if "TF_CONFIG" not in os.environ:
        return tf.distribute.get_strategy(), Here()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type,
                             task_index=resolver.task_id, protocol="grpc").join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    return strategy, tf.distribute.coordinator.ClusterCoordinator(strategy)


def print_refusals(strategy, embedding, coordinator):
    config = mid_level.FeatureConfig(mid_level.TableConfig(11, 4), output_shape=[8])
    with strategy.scope():
        for refused in (
                lambda: mid_level.TPUEmbedding([config], mid_level.SGD(0.1), True),
                lambda: mid_level.TPUEmbeddingV2([config], mid_level.SGD(0.1)),
                lambda: mid_level.TPUEmbeddingLayer([config], mid_level.SGD(0.1)),
                lambda: coordinator.schedule(tf.function(embedding.dequeue))):
            try:
                refused()
            except (ValueError, RuntimeError) as error:
                print("refused:", error, flush=True)


def main(directory, num_steps, *options):
    strategy, coordinator = connect()
    with strategy.scope():
        embedding = new_embedding()
    embedding.build(8)
    checkpoint = tf.train.Checkpoint(embedding=embedding)
    path = pathlib.Path(directory, "ckpt")
    if path.with_suffix(".index").exists():
        checkpoint.read(str(path)).assert_consumed()
    if "refusals" in options:
        print_refusals(strategy, embedding, coordinator)
    iterator = iter(coordinator.create_per_worker_dataset(dataset))
    step = train_step(strategy, embedding)
    for number in range(int(num_steps)):
        loss = coordinator.schedule(step, args=(iterator,))
        coordinator.join()  # so that the updates have one order
        pathlib.Path(directory, "step").write_text(str(number))
    print("loss", coordinator.fetch(loss), flush=True)
    checkpoint.write(str(path))
    activations = coordinator.schedule(predict_step(embedding), args=(iterator,))
    np.savez(path.with_name("tables.npz"), **{
        name: variable.numpy() for name, variable in embedding._saved.items()},
        **coordinator.fetch(activations))


if __name__ == "__main__":
    main(*sys.argv[1:])
