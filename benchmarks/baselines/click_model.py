# SPDX-License-Identifier: Apache-2.0
"""The model of the end-to-end baselines: embeddings and a small dense tower."""

from typing import Any

import tensorflow.compat.v1 as tf

from benchmarks.baselines.graph_inputs import feature, fill
from benchmarks.workloads import (
    INITIAL_ACCUMULATOR,
    INITIAL_VALUE,
    LEARNING_RATE,
    Workload,
)

_HIDDEN = 64


def columns(workload: Workload) -> list[Any]:
    """Returns a TPU embedding column for every table."""
    return [tf.tpu.experimental.embedding_column(
        tf.feature_column.categorical_column_with_identity(feature(table), workload.rows),
        workload.dim, workload.combiner(table),
        initializer=fill(INITIAL_VALUE))
        for table in range(workload.num_tables)]


def model_fn(features, labels, mode, params):
    """Builds one hidden layer and a logit, trained with Adagrad like the tables."""
    inputs = tf.feature_column.input_layer(features, params["columns"])
    hidden = tf.nn.relu(_dense(inputs, _HIDDEN, "hidden"))
    loss = tf.losses.sigmoid_cross_entropy(labels, _dense(hidden, 1, "logit"))
    optimizer = tf.train.AdagradOptimizer(LEARNING_RATE, INITIAL_ACCUMULATOR)
    if params["use_tpu"]:
        optimizer = tf.tpu.CrossShardOptimizer(optimizer)
    return params["spec_class"](
        mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step()))


def _dense(inputs, width, name):
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [inputs.shape[1], width], use_resource=True,
                                 initializer=tf.random_normal_initializer(stddev=0.1, seed=1))
        bias = tf.get_variable("bias", [width], use_resource=True,
                               initializer=tf.zeros_initializer())
    return tf.matmul(inputs, kernel) + bias
