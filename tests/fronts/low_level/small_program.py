# SPDX-License-Identifier: Apache-2.0
"""One table of ones, one feature with one id per sample, and gradients of ones."""

import tensorflow as tf

from tpu_estimator_embedding.compat.modules import tpu_embedding


def make_engine(num_cores=1, mode=tpu_embedding.TRAINING, **options):
    """An engine of one table, `[10, 1]` ones under gradient descent of rate 1."""
    if mode == tpu_embedding.TRAINING:
        options.setdefault("optimization_parameters",
                           tpu_embedding.StochasticGradientDescentParameters(1.0))
    options.setdefault("device_config", tpu_embedding.DeviceConfig(
        1, num_cores, "/job:localhost"))
    return tpu_embedding.TPUEmbedding(
        {"words": tpu_embedding.TableConfig(10, 1, tf.compat.v1.ones_initializer(), "sum")},
        {"title": tpu_embedding.FeatureConfig("words")}, 2 * num_cores, mode, **options)


class SmallProgram:
    """A graph in which every core looks two ids up, and takes 1 off each of them.

    Attributes:
        ids: `[cores, 2]` placeholder of the ids of each core, 3 and 3 where not fed.
        enqueue, activations, sends: an op or tensor for each core.
        step: placeholder of the global step, 0 where not fed.
    """

    def __init__(self, num_cores=1, mode_override=None, receives=True, sends=True,
                 **options):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.engine = make_engine(num_cores, **options)
            self.ids = tf.compat.v1.placeholder_with_default([[3, 3]] * num_cores, [num_cores, 2])
            self.step = tf.compat.v1.placeholder_with_default(0, [])
            self.variables = self.engine.create_variables_and_ops()
            self.enqueue = self.enqueue_ops(mode_override)
            self.activations = [self.engine.get_activations()["title"]
                                for _ in range(num_cores if receives else 0)]
            self.sends = [self.send_op() for _ in range(num_cores if sends else 0)]
            self.session = tf.compat.v1.Session()
            self.session.run(tf.compat.v1.global_variables_initializer())

    def enqueue_ops(self, mode_override):
        with self.graph.as_default():
            return self.engine.generate_enqueue_ops([
                {"title": tpu_embedding.EnqueueData(self.ids[core], tf.constant([[0, 0], [1, 0]]))}
                for core in range(self.engine.num_cores)], mode_override)

    def send_op(self):
        """Sends gradients that do not depend on activations, which nothing orders but us."""
        with self.graph.as_default():
            return self.engine.generate_send_gradients_op({"title": tf.ones([2, 1])}, self.step)

    def run(self, *fetches, **feeds):
        """Runs; raises DeadlineExceededError where it would wait for ever."""
        return self.session.run(
            fetches, {getattr(self, name): value for name, value in feeds.items()},
            options=tf.compat.v1.RunOptions(timeout_in_ms=20_000))

    def row(self, id):
        (table,) = self.session.run(self.variables.embedding_variables_by_table["words"])
        return float(table[id, 0])
