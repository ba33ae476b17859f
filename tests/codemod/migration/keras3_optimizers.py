# SPDX-License-Identifier: Apache-2.0
"""Trains a table with each optimizer of the stage `keras3`, for a separate process.

    KERAS_BACKEND=... python keras3_optimizers.py DIRECTORY_OF_RUNTIME BATCHES.npz DIRECTORY

DIRECTORY/tables.npz gets the table, and the slots, that the optimizers of `keras_training` and
those of Keras itself (`plain ...`) have trained, and the former with limited gradients
(`limited ...`). DIRECTORY/saved is a model with two tables.
"""

import sys
import types

import keras
import keras_rs
import numpy as np
import tensorflow as tf

sys.path.insert(0, sys.argv[1])

import keras_training  # noqa: E402  # which migrate writes beside a program

BATCHES = np.load(sys.argv[2])
# Optimizer -> the one that is written, and that of Keras itself.
MADE = {
    "SGD": (lambda: keras.optimizers.SGD(0.1), lambda: keras.optimizers.SGD(0.1)),
    "Adagrad": 2 * (lambda: keras.optimizers.Adagrad(
        0.1, initial_accumulator_value=0.1, epsilon=0.0),),
    "Adam, lazy": (lambda: keras_training.TableAdam(0.01, 0.9, 0.999, 1e-8),
                   lambda: keras.optimizers.Adam(0.01, epsilon=1e-8)),
    "Adam, not lazy": (lambda: keras_training.TableAdam(0.01, 0.9, 0.999, 1e-8, is_lazy=False),
                       lambda: keras.optimizers.Adam(0.01, epsilon=1e-8)),
    "Adam, ε outside": (lambda: keras_training.TableAdam(
        0.01, 0.9, 0.999, 1e-3, sum_inside_sqrt=False),
        lambda: keras.optimizers.Adam(0.01, epsilon=1e-3)),
    "FTRL": (lambda: keras_training.TableFtrl(0.1, l1_regularization_strength=0.01),
             lambda: keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.01)),
    "FTRL times rate": (lambda: keras_training.TableFtrl(
        0.1, -0.5, 0.1, 0.01, 0.02, 0.5, multiply_linear_by_learning_rate=True),
        lambda: keras.optimizers.Ftrl(0.1, -0.5, 0.1, 0.01, 0.02, beta=0.5)),
}


LIMIT = 0.3
LIMITED = {
    "SGD": lambda: keras.optimizers.SGD(0.1, clipvalue=LIMIT),
    "Adagrad": lambda: keras.optimizers.Adagrad(
        0.1, initial_accumulator_value=0.1, epsilon=0.0, clipvalue=LIMIT),
    "Adam, lazy": lambda: keras_training.TableAdam(0.01, 0.9, 0.999, 1e-8, clipvalue=LIMIT),
    "FTRL": lambda: keras_training.TableFtrl(
        0.1, l1_regularization_strength=0.01, clipvalue=LIMIT),
}


def gradient(ids, values, shape):
    """Returns what a lookup gives: dense on JAX, a gradient for each id on TensorFlow."""
    if keras_training.BACKEND == "tensorflow":
        return tf.IndexedSlices(tf.constant(values), tf.constant(ids), shape)
    dense = np.zeros(shape, np.float32)
    np.add.at(dense, ids, values)
    return keras.ops.convert_to_tensor(dense)


def trained(make, is_plain):
    start = BATCHES["start"]
    table, optimizer = keras.Variable(start, name="embeddings"), make()
    used = optimizer if is_plain else keras_training.TableOptimizers({}, optimizer)
    used.build([table])
    for ids, values in zip(BATCHES["ids"], BATCHES["gradients"], strict=True):
        used.apply([gradient(ids, values, start.shape)], [table])
    slots = [one for one in optimizer.variables if tuple(one.shape) == start.shape]
    return [keras.ops.convert_to_numpy(one) for one in (table, *slots)]


def input_fn():
    return tf.data.Dataset.from_tensor_slices((
        {"words": BATCHES["ids"], "users": BATCHES["ids"][::-1]},
        (BATCHES["ids"].sum(axis=1) % 2).astype(np.float32))).batch(5)


def forward(features, params):
    both = keras.ops.concatenate([features["words"], features["users"]], axis=1)
    return {"logits": keras.ops.squeeze(keras.layers.Dense(1)(both), axis=1)}


def loss_of(labels, outputs, params):
    return keras.ops.mean(keras_training.sigmoid_cross_entropy(labels, outputs["logits"]))


def feature_config():
    rows, dim = BATCHES["start"].shape
    tables = {name: keras_rs.layers.TableConfig(
        name=name, vocabulary_size=rows, embedding_dim=dim, combiner="sum",
        placement="default_device") for name in ("words", "users")}
    return {name: keras_rs.layers.FeatureConfig(
        name, table, input_shape=(None, None), output_shape=(None, dim))
        for name, table in tables.items()}


def trained_model():
    config = types.SimpleNamespace(
        feature_config=feature_config, WEIGHT_KEYS={}, ONE_ID_FEATURES=[],
        optimizers=lambda: {"words": MADE["Adam, lazy"][0](), "users": MADE["FTRL"][0]()})
    training = keras_training.KerasTraining(
        (forward, loss_of, lambda outputs, params: outputs, dict, lambda *_: {},
         lambda params: keras.optimizers.SGD(0.1)), config, train_batch_size=5)
    return training.train(input_fn, steps=4)


CASES = {**{name: made[0] for name, made in MADE.items()},
         **{f"plain {name}": made[1] for name, made in MADE.items()},
         **{f"limited {name}": make for name, make in LIMITED.items()}}
np.savez(f"{sys.argv[3]}/tables.npz", **{
    f"{name}/{index}": value for name, make in CASES.items()
    for index, value in enumerate(trained(make, name.startswith("plain ")))})
trained_model().save(f"{sys.argv[3]}/saved")
