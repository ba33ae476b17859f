# SPDX-License-Identifier: Apache-2.0
r"""Ranks products: trains a model of clicks, then warm-starts a model of purchases from it.

Purchases are rare, so most products occur in clicks only. Shows a program for TensorFlow 1.15:
`tf.contrib.tpu`, a subclass of TPUEstimator, `WarmStartSettings`, prediction of whole batches.

    python examples/synthetic_data.py purchases /tmp/purchases
    tpu-estimator-embedding run --tf1 examples/contrib_ranking.py --base_dir=/tmp/ranking \
        --clicks=/tmp/purchases/clicks.csv --purchases=/tmp/purchases/purchases.csv \
        --candidates=/tmp/purchases/candidates.csv
"""

import json
import os

import numpy as np
import tensorflow as tf
from tensorflow.contrib import tpu as contrib_tpu

tf.flags.DEFINE_string("tpu", "", "Name of the TPU.")
tf.flags.DEFINE_boolean("use_tpu", True, "Use one.")
tf.flags.DEFINE_string("clicks", None, "Clicks, a line `user,product,clicked` each.")
tf.flags.DEFINE_string("purchases", None, "Purchases, in the same format.")
tf.flags.DEFINE_string("candidates", None, "What to rank, in the same format.")
tf.flags.DEFINE_string("base_dir", None, "Directories of both models are made here.")
tf.flags.DEFINE_integer("click_steps", 300, "Steps of the first stage.")
tf.flags.DEFINE_integer("purchase_steps", 30, "Steps of the second stage.")
tf.flags.DEFINE_integer("batch_size", 256, "Lines in a step.")

FLAGS = tf.flags.FLAGS

NUM_USERS, NUM_PRODUCTS = 300, 500


class RankingEstimator(contrib_tpu.TPUEstimator):
    """A TPUEstimator whose input_fns give raw lines."""

    def __init__(self, model_fn, stage, columns, **kwargs):
        self._stage = stage
        config = contrib_tpu.RunConfig(
            cluster=tf.contrib.cluster_resolver.TPUClusterResolver(FLAGS.tpu),
            model_dir=os.path.join(FLAGS.base_dir, stage),
            tf_random_seed=11,
            tpu_config=tf.contrib.tpu.TPUConfig(
                iterations_per_loop=10,
                per_host_input_for_training=contrib_tpu.InputPipelineConfig.PER_HOST_V2))
        embedding_config_spec = tf.estimator.tpu.experimental.EmbeddingConfigSpec(
            feature_columns=columns,
            optimization_parameters=tf.tpu.experimental.AdagradParameters(0.5))
        super(RankingEstimator, self).__init__(  # noqa: UP008 (as it was written)
            model_fn=model_fn, config=config, use_tpu=FLAGS.use_tpu,
            params={"columns": columns, "stage": stage},
            train_batch_size=FLAGS.batch_size, eval_batch_size=FLAGS.batch_size,
            predict_batch_size=FLAGS.batch_size,
            embedding_config_spec=embedding_config_spec, **kwargs)

    def _call_input_fn(self, input_fn, mode):
        """Parses the lines that the input_fn reads."""
        call = super()._call_input_fn(input_fn, mode)

        def input_fn_with_parsing(ctx):
            return call(ctx).map(parse_lines, num_parallel_calls=4)

        return input_fn_with_parsing

    def predict(self, input_fn, predict_keys=None, hooks=None, checkpoint_path=None,
                yield_single_examples=True):
        """Yields `(user, product, score)`."""
        for prediction in super().predict(
                input_fn, predict_keys, hooks, checkpoint_path, yield_single_examples):
            yield (int(prediction["user"]), int(prediction["product"]),
                   float(prediction["score"]))


def parse_lines(lines):
    user, product, label = tf.io.decode_csv(lines, [[0], [0], [0.0]])
    features = {"user": to_sparse(user), "product": to_sparse(product),
                "user_id": user, "product_id": product}
    return features, label


def to_sparse(ids):
    rows = tf.range(tf.size(ids, out_type=tf.int64))
    return tf.SparseTensor(tf.stack([rows, tf.zeros_like(rows)], axis=1), ids,
                           tf.stack([tf.size(ids, out_type=tf.int64), 1]))


def make_input_fn(path, is_training):
    def input_fn(params):
        dataset = tf.data.TextLineDataset(path)
        if is_training:
            dataset = dataset.cache().shuffle(20000).repeat()
        return dataset.batch(params["batch_size"], drop_remainder=is_training)

    return input_fn


def embedding_columns():
    return [
        tf.tpu.experimental.embedding_column(
            tf.feature_column.categorical_column_with_identity(name, rows), dimension=4,
            initializer=tf.random_normal_initializer(stddev=0.01), combiner="sum")
        for name, rows in [("user", NUM_USERS), ("product", NUM_PRODUCTS)]]


def mlp(inputs):
    """Two layers, made by hand: the variables are scopes' own."""
    with tf.variable_scope("mlp", initializer=tf.glorot_uniform_initializer()):
        weights = tf.get_variable("weights", [inputs.shape[1], 8])
        bias = tf.get_variable("bias", [8], initializer=tf.zeros_initializer())
        hidden = tf.nn.leaky_relu(tf.nn.xw_plus_b(inputs, weights, bias))
        return tf.squeeze(tf.layers.dense(hidden, 1, name="out"), axis=1)


def model_fn(features, labels, mode, params):
    with tf.variable_scope("model"):
        logits = mlp(tf.feature_column.input_layer(features, params["columns"]))
    if mode == tf.estimator.ModeKeys.PREDICT:
        return contrib_tpu.TPUEstimatorSpec(mode, predictions={
            "user": features["user_id"], "product": features["product_id"], "score": logits})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return contrib_tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(
            lambda labels, logits: {"auc": tf.metrics.auc(labels, tf.sigmoid(logits))},
            [labels, logits]))
    learning_rate = 0.05 if params["stage"] == "clicks" else 0.005
    optimizer = contrib_tpu.CrossShardOptimizer(tf.train.AdagradOptimizer(learning_rate))
    return contrib_tpu.TPUEstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step()))


def main(unused_argv):
    columns = embedding_columns()
    clicks = RankingEstimator(model_fn, "clicks", columns)
    clicks.train(make_input_fn(FLAGS.clicks, True), max_steps=FLAGS.click_steps)
    click_metrics = clicks.evaluate(make_input_fn(FLAGS.candidates, False), steps=4)

    purchases = RankingEstimator(
        model_fn, "purchases", columns,
        warm_start_from=tf.estimator.WarmStartSettings(
            clicks.model_dir, vars_to_warm_start="model/.*"))
    purchases.train(make_input_fn(FLAGS.purchases, True), steps=FLAGS.purchase_steps)
    tf.logging.info("Ranking the candidates.")
    ranking = sorted(purchases.predict(make_input_fn(FLAGS.candidates, False)),
                     key=lambda scored: -scored[2])
    with tf.gfile.Open(os.path.join(FLAGS.base_dir, "ranking.json"), "w") as f:
        json.dump({"auc": float(np.asarray(click_metrics["auc"])), "ranking": ranking}, f)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.app.run()
