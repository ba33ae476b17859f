# SPDX-License-Identifier: Apache-2.0
"""Trains TPUEmbeddingV2 and the layers under strategies; run in a separate process.

Prints one line for each pair that was trained and gave what one replica with the whole
batch gives.
"""

import sys

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.optimizers import Adagrad, Adam
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class
from tpu_estimator_embedding.mid_level.tpu_embedding_v2 import TPUEmbeddingV2

BATCH_SIZE, STEPS = 16, 3
IDS = np.random.default_rng(0).integers(0, 30, [STEPS * BATCH_SIZE, 2])


def config_of(batch_size, dim=3):
    """Two features of one table; the values start as multiples of 1/100."""
    values = np.arange(30 * dim, dtype=np.float32).reshape([30, dim]) / 100
    table = TableConfig(30, dim, tf.compat.v1.constant_initializer(values), name="t")
    shape = None if batch_size is None else [batch_size]
    return {name: FeatureConfig(table, output_shape=shape) for name in "ab"}


def dataset(batch_size):
    ids = {"a": IDS[:, 0], "b": IDS[:, 1]}
    return tf.data.Dataset.from_tensor_slices(ids).batch(batch_size, drop_remainder=True)


def train_v2(strategy, *, inside, pipelined=False, accumulate=True):
    """Trains in a loop in a tf.function; enqueues inside or outside of strategy.run."""
    share = BATCH_SIZE // strategy.num_replicas_in_sync
    config = config_of(share)
    with strategy.scope():
        embedding = TPUEmbeddingV2(
            config, Adam(0.05, use_gradient_accumulation=accumulate), pipelined, num_chips=2)
    partition = (lambda ids: ids) if inside else embedding.enqueue
    iterator = iter(strategy.distribute_datasets_from_function(
        lambda context: dataset(share).map(partition)))

    def step(element):
        partitioned = embedding.enqueue(element) if inside else element
        activations, preserved = embedding.dequeue(partitioned)
        gradients = tf.nest.map_structure(lambda value: 2 * value + 1, activations)
        embedding.apply_gradients(gradients, preserved)

    @tf.function
    def train():
        for _ in tf.range(STEPS):
            strategy.run(step, args=(next(iterator),))

    train()
    return embedding.variables[config["a"].table]


def train_layer(strategy, keras, threshold):
    with strategy.scope():
        layer = partial_layer_class(keras)(config_of(None), Adagrad(0.1),
                                           size_threshold=threshold)
        inputs = {name: keras.Input([], dtype="int64", name=name) for name in "ab"}
        outputs = layer(inputs)
        model = keras.Model(inputs, outputs["a"] + outputs["b"])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(dataset(BATCH_SIZE).map(lambda ids: (ids, tf.ones([BATCH_SIZE, 3]))), epochs=1,
              verbose=0)
    if layer.tpu_embedding is None:
        return {"small": tf.convert_to_tensor(layer.keras_embedding_layers["a"].embeddings)}
    return dict(layer.tpu_embedding._tables.variables)


def compare(name, expected, strategies, train):
    for strategy in strategies:
        found = train(strategy)
        assert found.keys() == expected.keys()
        for slot, values in expected.items():
            np.testing.assert_allclose(found[slot], values, rtol=1e-4, atol=1e-6)
        print(name, type(strategy).__name__)


def main():
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    import keras
    import tf_keras
    default = tf.distribute.get_strategy()
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    alone = train_v2(default, inside=True)
    compare("V2 inside", alone, [tf.distribute.OneDeviceStrategy("CPU:1"), mirrored],
            lambda strategy: train_v2(strategy, inside=True))
    compare("V2 that ignores a setting", alone, [mirrored],
            lambda strategy: train_v2(strategy, inside=True, accumulate=False))
    compare("V2 outside", alone, [mirrored], lambda strategy: train_v2(strategy, inside=False))
    compare("V2 pipelined", train_v2(default, inside=True, pipelined=True), [mirrored],
            lambda strategy: train_v2(strategy, inside=True, pipelined=True))
    for module, threshold in ((keras, 0), (tf_keras, None)):
        compare(f"layer {threshold}", train_layer(default, module, threshold), [mirrored],
                lambda strategy, module=module, threshold=threshold: train_layer(
                    strategy, module, threshold))


if __name__ == "__main__":
    sys.exit(main())
