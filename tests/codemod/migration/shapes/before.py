# SPDX-License-Identifier: Apache-2.0
"""A small program, from which test_usual_shapes_verified.py makes others."""

import numpy as np
import tensorflow.compat.v1 as tf

HPARAMS = {"clip": 0.05}
COLUMNS = [
    tf.tpu.experimental.embedding_column(
        tf.feature_column.categorical_column_with_identity(name, 20), 4, combiner="mean",
        initializer=tf.random_uniform_initializer(-0.5, 0.5, seed=seed))
    for name, seed in (("a", 3), ("b", 4))]


def input_fn(params):
    rng = np.random.RandomState(0)
    data = {name: rng.randint(0, 20, (64, 2)) for name in ("a", "b")}
    dense = rng.rand(64, 3).astype(np.float32)
    labels = rng.randint(0, 2, (64, 1)).astype(np.float32)

    def sparse(ids):
        shifted = tf.sparse.from_dense(ids + 1)
        return tf.SparseTensor(shifted.indices, shifted.values - 1, shifted.dense_shape)

    dataset = tf.data.Dataset.from_tensor_slices((data["a"], data["b"], dense, labels))
    dataset = dataset.map(lambda a, b, x, y: ({"a": sparse(a), "b": sparse(b), "x": x}, y))
    return dataset.batch(params["batch_size"], drop_remainder=True).repeat()


def metric_fn(labels, logits):
    return {"mean": tf.metrics.mean(logits)}


def model_fn(features, labels, mode, params):
    net = tf.feature_column.input_layer(features, params["columns"])
    net = tf.concat([net, features["x"]], axis=1)
    net = tf.layers.dense(net, 8, activation=tf.nn.relu, name="hidden",
                          kernel_initializer=tf.glorot_uniform_initializer(seed=1))
    logits = tf.layers.dense(net, 1, name="logits",
                             kernel_initializer=tf.glorot_uniform_initializer(seed=2))
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, step, 3, 0.9)
    optimizer = tf.train.AdagradOptimizer(rate)
    optimizer = tf.tpu.CrossShardOptimizer(optimizer)
    train_op = optimizer.minimize(loss, global_step=step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main(model_dir):
    config = tf.estimator.tpu.RunConfig(
        model_dir=model_dir, tpu_config=tf.estimator.tpu.TPUConfig(num_shards=1))
    spec = tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        feature_columns=COLUMNS, optimization_parameters=tf.tpu.experimental.AdagradParameters(0.1))
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, config=config, params={"columns": COLUMNS, "hp": HPARAMS}, train_batch_size=16,
        eval_batch_size=16, embedding_config_spec=spec)
    estimator.train(input_fn, max_steps=6)
    return estimator


if __name__ == "__main__":
    main("model")
