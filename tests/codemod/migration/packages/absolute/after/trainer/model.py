# SPDX-License-Identifier: Apache-2.0
from tpu_estimator_embedding.trainer import Outputs, activations_of
from tpu_estimator_embedding import (
    embedding_column)
import tensorflow as tf
import trainer.input as data


def columns():
    words = tf.feature_column.categorical_column_with_identity("words", data.VOCAB)
    return [embedding_column(words, dimension=4, combiner="mean")]


def model_fn(features, labels, mode, params):
    net = activations_of(features, params["columns"])
    logits = tf.compat.v1.layers.dense(net, 1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    return Outputs(mode=mode, loss=loss)


def dense_learning_rate(global_step, params):
    """Returns the learning rate of a step, as model_fn computed it."""
    return 0.1


def make_optimizer(learning_rate, params):
    """Returns the legacy optimizer of the dense variables."""
    return tf.compat.v1.train.AdagradOptimizer(learning_rate)
