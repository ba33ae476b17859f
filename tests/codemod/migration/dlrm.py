# SPDX-License-Identifier: Apache-2.0
"""A legacy program like DLRM: columns, a shared table, weights, two MLPs and their interaction."""

import sys

import numpy as np
import tensorflow.compat.v1 as tf

DIMENSION = 8
BUCKETS = {"user": 40, "item": 60, "clicked": 60, "words": 30}
STATISTICS = ["age", "visits"]  # with a feature for each, beside the vector "counters"
INTERACTING = 1 + len(BUCKETS)  # the bottom MLP and every embedding
PAIRS = [i * INTERACTING + j for i in range(INTERACTING) for j in range(i)]


def columns():
    ids = {key: tf.feature_column.categorical_column_with_identity(key, BUCKETS["item"])
           for key in ["item", "clicked"]}
    user = tf.feature_column.categorical_column_with_identity("user", BUCKETS["user"])
    words = tf.feature_column.weighted_categorical_column(
        tf.feature_column.categorical_column_with_identity("words", BUCKETS["words"]),
        "importance")
    shared = tf.tpu.experimental.shared_embedding_columns(
        [ids["item"], ids["clicked"]], DIMENSION, combiner="mean")
    return [tf.tpu.experimental.embedding_column(user, DIMENSION),
            tf.tpu.experimental.embedding_column(words, DIMENSION, combiner="sum")] + shared


def input_fn(params):
    rng = np.random.default_rng(7)
    count = 320
    ids = {key: rng.integers(0, BUCKETS[key], [count, 3 if key in ("clicked", "words") else 1])
           for key in BUCKETS}
    ids["clicked"][:, 1] = ids["clicked"][:, 0]  # an id twice in a sample
    rows = {**ids, "importance": rng.uniform(0.5, 2.0, [count, 3]).astype(np.float32),
            "counters": rng.uniform(0.0, 9.0, [count, 4]).astype(np.float32),
            **{key: rng.uniform(0.0, 1.0, [count, 1]).astype(np.float32) for key in STATISTICS}}
    labels = ((ids["user"][:, 0] + ids["words"].sum(axis=1)) % 2).astype(np.float32)

    def with_sparse_ids(features, labels):
        return {key: tf.RaggedTensor.from_tensor(value).to_sparse()
                if key in BUCKETS or key == "importance" else value
                for key, value in features.items()}, labels

    return tf.data.Dataset.from_tensor_slices((rows, labels)).repeat().batch(
        params["batch_size"], drop_remainder=True).map(with_sparse_ids)


def metric_fn(labels, probabilities):
    return {"auc": tf.metrics.auc(labels, probabilities),
            "accuracy": tf.metrics.accuracy(labels, tf.round(probabilities)),
            "prediction": tf.metrics.mean(probabilities)}


def model_fn(features, labels, mode, params):
    statistics = {key: features[key] for key in STATISTICS}
    bottom = tf.concat([tf.log1p(features["counters"])]
                       + [statistics[key] for key in STATISTICS], axis=1)
    for layer, units in enumerate(params["bottom"]):
        bottom = tf.layers.dense(bottom, units, activation=tf.nn.relu, name=f"bottom_{layer}")
    embedded = tf.keras.layers.DenseFeatures(columns())(features)
    embedded = tf.reshape(embedded, [-1, len(BUCKETS), DIMENSION])
    vectors = tf.concat([bottom[:, tf.newaxis, :], embedded], axis=1)
    products = tf.matmul(vectors, vectors, transpose_b=True)
    interaction = tf.gather(tf.reshape(products, [-1, INTERACTING * INTERACTING]), PAIRS, axis=1)
    top = tf.concat([bottom, interaction], axis=1)
    for units in params["top"]:
        top = tf.layers.dense(top, units, activation=tf.nn.relu)
    logits = tf.layers.dense(top, 1, name="logits")[:, 0]
    probabilities = tf.sigmoid(logits)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, predictions={"probabilities": probabilities})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, probabilities]))
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdagradOptimizer(params["rate"]))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, config=tf.estimator.tpu.RunConfig(model_dir=sys.argv[1]), train_batch_size=16,
        eval_batch_size=16, predict_batch_size=16,
        params={"bottom": [16, DIMENSION], "top": [16, 8], "rate": 0.05},
        embedding_config_spec=tf.estimator.tpu.experimental.EmbeddingConfigSpec(
            feature_columns=columns(),
            optimization_parameters=tf.tpu.experimental.AdagradParameters(0.1)))
    estimator.train(input_fn, max_steps=40)
    print(estimator.evaluate(input_fn, steps=5))


if __name__ == "__main__":
    main()
