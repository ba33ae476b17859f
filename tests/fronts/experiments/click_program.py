# SPDX-License-Identifier: Apache-2.0
"""A small program such as users have: it knows nothing of experiments, nor of this package."""

import argparse
import os
import time

import numpy as np
import tensorflow.compat.v1 as tf

USERS, ITEMS, BATCH_SIZE = 40, 30, 32


def clicks(seed, count):
    rng = np.random.default_rng(seed)
    scores = np.random.default_rng(0)
    user_score, item_score = scores.normal(size=USERS), scores.normal(size=ITEMS)
    user, item = rng.integers(0, USERS, count), rng.integers(0, ITEMS - 5, count)
    log_odds = 2 * (user_score[user] + item_score[item])
    clicked = rng.random(count) < 1 / (1 + np.exp(-log_odds))
    return {"user": user[:, None], "item": item[:, None]}, clicked[:, None].astype(np.float32)


def input_fn_of(seed, count, repeat):
    def input_fn(params):
        dataset = tf.data.Dataset.from_tensor_slices(clicks(seed, count))
        return dataset.repeat(repeat).batch(params["batch_size"], drop_remainder=True).map(
            lambda features, labels: (
                {name: tf.sparse.from_dense(ids + 1) for name, ids in features.items()}, labels)
        ).map(lambda features, labels: (
            {name: tf.SparseTensor(ids.indices, ids.values - 1, ids.dense_shape)
             for name, ids in features.items()}, labels))
    return input_fn


def embedding_columns():
    return [tf.tpu.experimental.embedding_column(
        tf.feature_column.categorical_column_with_identity(name, size), 4)
        for name, size in (("user", USERS), ("item", ITEMS))]


def model_fn(features, labels, mode, params):
    inputs = tf.keras.layers.DenseFeatures(params["columns"])(features)
    log_odds = tf.matmul(inputs, tf.get_variable("kernel", [inputs.shape[1], 1]))
    loss = tf.losses.sigmoid_cross_entropy(labels, log_odds)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(
            lambda labels, log_odds: {"auc": tf.metrics.auc(labels, tf.sigmoid(log_odds))},
            [labels, log_odds]))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.1))
    return tf.estimator.tpu.TPUEstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step()))


class Slowly(tf.train.SessionRunHook):
    """Gives a test the time to interrupt."""

    def after_run(self, run_context, run_values):
        time.sleep(0.3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_dir", default="model")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--evaluations", type=int, default=2)
    parser.add_argument("--no_tpu", action="store_true")
    parser.add_argument("--seed", type=int, default=0, help="1 does not work")
    args = parser.parse_args()
    if args.seed == 1:
        raise ValueError("this seed brings bad luck")
    tpu = tf.estimator.tpu
    columns = embedding_columns()
    spec = tpu.experimental.EmbeddingConfigSpec(
        feature_columns=columns, optimization_parameters=tf.tpu.experimental.AdagradParameters(0.5))
    estimator = tpu.TPUEstimator(
        model_fn, use_tpu=not args.no_tpu, train_batch_size=BATCH_SIZE, eval_batch_size=BATCH_SIZE,
        params={"columns": columns}, embedding_config_spec=spec, config=tpu.RunConfig(
            model_dir=args.model_dir, save_summary_steps=5, save_checkpoints_steps=1000,
            tf_random_seed=7))
    hooks = [Slowly()] if os.environ.get("CLICK_PROGRAM_IS_SLOW") else []
    for number in range(1, args.evaluations + 1):
        stop = args.steps * number // args.evaluations
        estimator.train(input_fn_of(1, 640, None), max_steps=stop, hooks=hooks)
        estimator.evaluate(input_fn_of(2, 320, 1))


if __name__ == "__main__":
    main()
