# SPDX-License-Identifier: Apache-2.0
"""Shared columns: in a tf_keras model, one table of two features."""

import sys

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tpu_estimator_embedding import checkpoint, mid_level

ITEMS = 50


def feature_config():
    items = mid_level.TableConfig(ITEMS, 4, combiner="sum", name="items")
    return {"seen": mid_level.FeatureConfig(items), "bought": mid_level.FeatureConfig(items)}


def input_fn(params):
    rng = np.random.default_rng(1)
    seen, bought = rng.integers(0, ITEMS, [160, 3]), rng.integers(0, ITEMS, [160, 2])
    labels = (seen.sum(axis=1) % 2).astype(np.float32)
    rows = tf.data.Dataset.from_tensor_slices(({"seen": seen, "bought": bought}, labels))
    return rows.repeat().batch(params["batch_size"], drop_remainder=True).map(
        lambda features, labels: ({name: tf.RaggedTensor.from_tensor(ids).to_sparse()
                                   for name, ids in features.items()}, labels))


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = mid_level.TPUEmbeddingLayer(feature_config(), mid_level.Adagrad(0.1))
        self.dense = keras.layers.Dense(1, use_bias=False)

    def call(self, features):
        activations = self.embedding(features)
        # DenseFeatures concatenated the columns in the order of their names.
        inputs = tf.concat([activations["bought"], activations["seen"]], axis=1)
        return self.dense(inputs)[:, 0]


def main(model_dir, estimator_checkpoint, steps=20):
    model = Model()
    model.compile(
        keras.optimizers.Adagrad(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
    batches = input_fn({"batch_size": 8})
    model(next(iter(batches))[0])  # makes the dense variables

    model.optimizer.build(model.trainable_variables)  # makes its slots
    [slot] = [one for one in model.optimizer.variables if "kernel" in one.name]
    saved = tf.train.Checkpoint(layer=model.embedding, variables={
        "global_step": model.optimizer.iterations, "kernel": model.dense.kernel,
        "kernel/Adagrad": slot})
    checkpoint.convert(estimator_checkpoint, f"{model_dir}/start", "tpu-embedding-layer")
    saved.restore(f"{model_dir}/start").assert_existing_objects_matched()

    model.fit(batches, steps_per_epoch=int(steps), verbose=2)
    saved.write(f"{model_dir}/ckpt-20")


if __name__ == "__main__":
    main(*sys.argv[1:])
