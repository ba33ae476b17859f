# SPDX-License-Identifier: Apache-2.0
import tensorflow as tf
import trainer.input as data


def columns():
    words = tf.feature_column.categorical_column_with_identity("words", data.VOCAB)
    return [tf.compat.v1.tpu.experimental.embedding_column(words, dimension=4, combiner="mean")]


def model_fn(features, labels, mode, params):
    net = tf.compat.v1.feature_column.input_layer(features, params["columns"])
    logits = tf.compat.v1.layers.dense(net, 1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    train_op = None
    if mode == tf.estimator.ModeKeys.TRAIN:
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(tf.compat.v1.train.AdagradOptimizer(0.1))
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
    return tf.compat.v1.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)
