# SPDX-License-Identifier: Apache-2.0
"""Trains a layer on two replicas in several ways, and prints row 1 of its table after each.

Each replica looks up row 1 with its own gradient: 1 and 2 in the first step, 3 and 4 in the next.
"""

import importlib
import sys

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)

from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig  # noqa: E402
from tpu_estimator_embedding.mid_level.config.optimizers import Adagrad  # noqa: E402
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig  # noqa: E402
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import (  # noqa: E402
    embedding_layer_class,
)

STRATEGY = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
FACTORS = ([1.0, 2.0], [3.0, 4.0])


def new_layer(keras):
    table = TableConfig(5, 1, tf.zeros_initializer(), combiner="sum", name="t")
    return embedding_layer_class(keras)(
        {"f": FeatureConfig(table)}, Adagrad(1.0, initial_accumulator_value=0.25))


def distributed(factors):
    return STRATEGY.experimental_distribute_values_from_function(
        lambda context: tf.constant(factors[context.replica_id_in_sync_group]))


def loss_of(layer, factor):
    return factor * tf.reduce_sum(layer({"f": tf.constant([1])})["f"])


def train(keras, wrap, way):
    with STRATEGY.scope():
        layer = new_layer(keras)
        optimizer = keras.optimizers.SGD(0.5)

    def replica(factor):
        with tf.GradientTape(persistent=True) as tape:
            loss = loss_of(layer, factor)
        variables = layer.trainable_variables
        tape.gradient(loss, variables)  # dropped
        gradients = tape.gradient(loss, variables)
        if way == "two towers":
            with tf.GradientTape() as tape:
                loss = loss_of(layer, factor) - loss_of(layer, 2.0)
            gradients = [tf.add_n(pair) for pair in zip(
                gradients, tape.gradient(loss, variables), strict=True)]
        if way == "own mean":
            gradients = tf.distribute.get_replica_context().all_reduce("mean", gradients)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    step = wrap(lambda factor: STRATEGY.run(replica, args=(factor,)))
    for factors in FACTORS:
        step(distributed(factors))
    [table] = layer.embedding_tables.values()
    return float(table[1, 0])


def main(*names):
    for name in names:
        keras = importlib.import_module(name)
        for wrap in (tf.function, lambda step: step):
            for way in ("plain", "two towers", "own mean"):
                print(name, way, round(train(keras, wrap, way), 4))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
