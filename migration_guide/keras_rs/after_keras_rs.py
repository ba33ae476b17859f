# SPDX-License-Identifier: Apache-2.0
"""Keras RS: a DistributedEmbedding in a Keras 3 model."""

import os
import sys

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
import keras
import keras_rs
import numpy as np
import tensorflow as tf
from tpu_estimator_embedding import checkpoint

WORDS, USERS = 50, 20


def feature_configs():
    words = keras_rs.layers.TableConfig("words", WORDS, 4, combiner="mean")
    users = keras_rs.layers.TableConfig("users", USERS, 4, combiner="sum")
    return {
        "words": keras_rs.layers.FeatureConfig("words", words, (8, 3), (8, 4)),
        "users": keras_rs.layers.FeatureConfig("users", users, (8, 1), (8, 4))}


def input_fn(params):
    rng = np.random.default_rng(1)
    words, users = rng.integers(0, WORDS, [160, 3]), rng.integers(0, USERS, [160, 1])
    labels = (words.sum(axis=1) % 2).astype(np.float32)
    rows = tf.data.Dataset.from_tensor_slices(({"words": words, "users": users}, labels))
    return rows.repeat().batch(params["batch_size"], drop_remainder=True)


class SummingAdagrad(keras.optimizers.Adagrad):
    """Adagrad that adds the gradients of a repeated id up before it squares them."""

    def apply(self, grads, trainable_variables=None):
        return super().apply([summed(gradient) for gradient in grads], trainable_variables)


def summed(gradient):
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    ids, places = tf.unique(gradient.indices)
    sums = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(ids))
    return tf.IndexedSlices(sums, ids, gradient.dense_shape)


def make_model():
    features = {"words": keras.Input((3,), 8, dtype="int64", name="words"),
                "users": keras.Input((1,), 8, dtype="int64", name="users")}
    activations = keras_rs.layers.DistributedEmbedding(feature_configs())(features)
    inputs = keras.layers.Concatenate()([activations["words"], activations["users"]])
    return keras.Model(features, keras.layers.Dense(1, use_bias=False, name="dense")(inputs))


def main(model_dir, estimator_checkpoint, steps=20):
    model = make_model()
    model.compile(SummingAdagrad(0.1, name="adagrad"),
                  keras.losses.BinaryCrossentropy(from_logits=True))
    batches = input_fn({"batch_size": 8})
    model.optimizer.build(model.trainable_variables)  # makes the slots

    saved = tf.train.Checkpoint(model=model)
    template = saved.save(f"{model_dir}/template")
    checkpoint.convert(estimator_checkpoint, f"{model_dir}/start", "keras-rs",
                       template=template, names={"kernel": "dense/kernel"})
    saved.restore(f"{model_dir}/start").assert_existing_objects_matched()

    model.fit(batches, steps_per_epoch=int(steps), verbose=2)
    saved.write(f"{model_dir}/ckpt-20")


if __name__ == "__main__":
    main(*sys.argv[1:])
