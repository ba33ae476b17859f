# SPDX-License-Identifier: Apache-2.0
"""Keras 3: a shared table, weights of ids, batch normalization and metrics."""

import sys

import numpy as np
import keras
import keras_training
import embedding_config
import tensorflow.compat.v1 as tf

WORDS, USERS = 50, 20


def input_fn(params):
    rng = np.random.default_rng(1)
    words = rng.integers(0, WORDS, [160, 3])
    rows = {"words": words, "users": rng.integers(0, USERS, [160, 1]),
            "friends": rng.integers(0, USERS, [160, 2]),
            "closeness": rng.random([160, 2], np.float32), "age": rng.random([160, 1], np.float32)}
    labels = (words.sum(axis=1) % 2).astype(np.float32)

    def with_sparse_ids(features, labels):
        return {name: values if name == "age" else tf.RaggedTensor.from_tensor(values).to_sparse()
                for name, values in features.items()}, labels

    return tf.data.Dataset.from_tensor_slices((rows, labels)).repeat().batch(
        params["batch_size"], drop_remainder=True).map(with_sparse_ids)


def metric_fn(labels, probabilities):
    predicted = tf.round(probabilities)
    return {"auc": tf.metrics.auc(labels, probabilities),
            "accuracy": tf.metrics.accuracy(labels, predicted),
            "mean": tf.metrics.mean(probabilities)}


def forward(features, params):
    """Returns the outputs of the model, as model_fn computed them."""
    net = keras.ops.concatenate([features["words"], features["users"], features["friends"],
        features["age"]], axis=1)
    net = keras.layers.Dense(params["hidden"], activation='relu', name="hidden")(net)
    net = keras.layers.BatchNormalization(momentum=0.9)(net)
    logits = keras.ops.squeeze(keras.layers.Dense(1)(net), axis=1)
    probabilities = keras.ops.sigmoid(logits)
    return {'logits': logits, 'probabilities': probabilities}


def loss_of(labels, outputs, params):
    """Returns the loss of a batch."""
    logits = outputs['logits']
    return keras.ops.mean(keras_training.sigmoid_cross_entropy(labels, logits))


def predictions_of(outputs, params):
    """Returns name -> prediction of each example."""
    probabilities = outputs['probabilities']
    return {"probabilities": probabilities}


def new_metrics():
    """Returns metric -> what accumulates it."""
    return {
        "auc": keras.metrics.AUC(num_thresholds=200, name="auc"),
        "accuracy": keras.metrics.Mean(name="accuracy"),
        "mean": keras.metrics.Mean(name="mean"),
    }


def metric_values(labels, outputs, params):
    """Returns metric -> what a batch adds to it."""
    probabilities = outputs['probabilities']
    predicted = keras.ops.round(probabilities)
    return {
        "auc": (labels, probabilities),
        "accuracy": (keras_training.equal(labels, predicted),),
        "mean": (probabilities,),
    }


def make_optimizer(params):
    """Returns the optimizer of the dense variables."""
    learning_rate = params["rate"]
    return keras.optimizers.Adagrad(learning_rate, initial_accumulator_value=0.1, epsilon=0.0)


def make_estimator(model_dir):
    return keras_training.KerasTraining(
        (forward, loss_of, predictions_of, new_metrics, metric_values, make_optimizer),
        embedding_config,
        model_dir=model_dir,
        params={"hidden": 8, "rate": 0.05},
        train_batch_size=8,
        eval_batch_size=8,
        predict_batch_size=8)


def main():
    estimator = make_estimator(sys.argv[1])
    estimator.train(input_fn, max_steps=20)
    print(estimator.evaluate(input_fn, steps=5))


if __name__ == "__main__":
    main()
