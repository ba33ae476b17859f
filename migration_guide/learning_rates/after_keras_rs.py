# SPDX-License-Identifier: Apache-2.0
"""Learning rates: in a Keras 3 loop, an optimizer for each rate."""

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



def make_model():
    features = {"words": keras.Input((3,), 8, dtype="int64", name="words"),
                "users": keras.Input((1,), 8, dtype="int64", name="users")}
    activations = keras_rs.layers.DistributedEmbedding(feature_configs())(features)
    inputs = keras.layers.Concatenate()([activations["words"], activations["users"]])
    return keras.Model(features, keras.layers.Dense(1, use_bias=False, name="dense")(inputs))


class RateOfWords(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.2 / (1.0 + 0.1 * tf.cast(step, tf.float32))


def main(model_dir, estimator_checkpoint, steps=20):
    model = make_model()
    loss_of = keras.losses.BinaryCrossentropy(from_logits=True)
    optimizers = {  # part of a variable's path -> its optimizer
        "/words/": keras.optimizers.SGD(RateOfWords()),
        "/users/": keras.optimizers.SGD(0.5),
        "dense/": keras.optimizers.SGD(
            keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5), name="sgd")}
    updates = [(optimizer, variable) for part, optimizer in optimizers.items()
               for variable in model.trainable_variables if part in variable.path]
    for optimizer in optimizers.values():
        optimizer.build(model.trainable_variables)
    model.compile(optimizers["dense/"])  # whose step a checkpoint of the model has

    saved = tf.train.Checkpoint(model=model)
    template = saved.save(f"{model_dir}/template")
    checkpoint.convert(estimator_checkpoint, f"{model_dir}/start", "keras-rs",
                       template=template, names={"kernel": "dense/kernel"})
    saved.restore(f"{model_dir}/start").assert_existing_objects_matched()

    @tf.function
    def train_step(features, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(features, training=True)[:, 0])
        gradients = tape.gradient(loss, [variable.value for _, variable in updates])
        for gradient, (optimizer, variable) in zip(gradients, updates, strict=True):
            optimizer.apply([gradient], [variable])
        return loss

    for features, labels in input_fn({"batch_size": 8}).take(int(steps)):
        loss = train_step(features, labels)
    print(f"loss {float(loss):.4f}")
    saved.write(f"{model_dir}/ckpt-20")


if __name__ == "__main__":
    main(*sys.argv[1:])
