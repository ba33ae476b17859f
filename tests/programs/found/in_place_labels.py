# SPDX-License-Identifier: Apache-2.0
"""Replicas computed with each other's labels, which model_fn changes in place.

Ways: split, tiled
"""
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.tpu import tpu_embedding

BATCH, STEPS, SAMPLES = 8, 4, 32
NUM_SHARDS, ITERATIONS, PIPELINED, RECORDS = 1, 1, False, None



def new_data():
    rng = np.random.default_rng(0)
    return {
        "user": rng.integers(-1, 12, [SAMPLES, 3]),
        "user_weight": rng.integers(1, 9, [SAMPLES, 3]).astype(np.float32) / 4,
        "item": rng.integers(-1, 5, [SAMPLES, 3]),
        "x": rng.uniform(-1, 1, [SAMPLES, 3]).astype(np.float32),
        "unused": rng.integers(0, 9, [SAMPLES, 2]),
        "y": rng.uniform(-1, 1, [SAMPLES]).astype(np.float32)}


DATA = new_data()


def decay(step):
    return 0.5 / (1.0 + tf.cast(step, tf.float32))



def sparse(values, exist):
    places = tf.where(exist)
    return tf.SparseTensor(places, tf.gather_nd(values, places), tf.shape(values, out_type=tf.int64))



def freeze(step):
    return tf.where(step < 2, tf.constant(1.0), tf.constant(0.0))



def metric_fn(labels, logits):
    return {"error": tf.metrics.mean_squared_error(labels, logits)}



def write_records(path):
    with tf.io.TFRecordWriter(path) as writer:
        for index in range(len(DATA["y"])):
            example = tf.train.Example()
            for name, values in DATA.items():
                value, feature = values[index].ravel(), example.features.feature[name]
                if values.dtype == np.float32:
                    feature.float_list.value.extend(value)
                else:
                    feature.int64_list.value.extend(value)
            writer.write(example.SerializeToString())


def parse(records):
    shapes = {name: values.shape[1:] for name, values in DATA.items()}
    return tf.io.parse_example(records, {name: tf.io.FixedLenFeature(
        shape, tf.float32 if DATA[name].dtype == np.float32 else tf.int64)
        for name, shape in shapes.items()})


def to_features(row):
    features = {"user": sparse(row["user"], row["user"] >= 0), "user_weight": sparse(row["user_weight"], row["user"] >= 0), "item": sparse(row["item"], row["item"] >= 0), "x": row["x"], "unused": row["unused"]}
    return features, {"y": row["y"]}


def input_fn(params):
    if RECORDS:
        dataset = tf.data.TFRecordDataset(RECORDS).batch(params["batch_size"]).map(parse)
        return dataset.map(to_features)
    dataset = tf.data.Dataset.from_tensor_slices(DATA)
    dataset = dataset.batch(params["batch_size"], drop_remainder=True)
    return dataset.map(to_features).prefetch(tf.data.experimental.AUTOTUNE)



def model_fn(features, labels, mode, params):
    features = dict(features, x=features["x"] - 0.5)
    user_input = tf.keras.layers.DenseFeatures([user], name="user_layer")(features)
    item_input = tf.feature_column.input_layer(features, [item])
    x = features.pop("x")
    net = tf.concat([tf.nn.l2_normalize(user_input + 2.0, 1), tf.square(user_input), tf.nn.l2_normalize(item_input + 2.0, 1), x], 1)
    net = tf.layers.dense(net, 3, tf.tanh, kernel_initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=3), kernel_regularizer=tf.keras.regularizers.l2(0.01), name="hidden")
    shards = params["context"].num_replicas if mode == tf.estimator.ModeKeys.TRAIN else 1
    if mode == tf.estimator.ModeKeys.TRAIN:
        mean = tf.tpu.cross_replica_sum(tf.reduce_mean(net, 0)) / shards
        net = net - tf.stop_gradient(mean)
    logits = tf.layers.dense(net, 1, None, kernel_initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=4), name="logits")[:, 0]
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits})
    labels["y"] *= 2.0
    y = labels["y"]
    loss = tf.losses.sigmoid_cross_entropy(tf.sigmoid(y)[:, tf.newaxis], logits[:, tf.newaxis])
    loss += tf.losses.get_regularization_loss()
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [y, logits]))
    step = tf.train.get_global_step()
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.FtrlOptimizer(0.1, initial_accumulator_value=0.25))
    train_op = optimizer.minimize(loss * 0.5, step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)



user = tf.tpu.experimental.embedding_column(
    tf.feature_column.weighted_categorical_column(
    tf.feature_column.categorical_column_with_identity("user", 12), "user_weight"), dimension=2, initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=1), combiner="sum", learning_rate_fn=decay)
item = tf.tpu.experimental.embedding_column(
    tf.feature_column.categorical_column_with_identity("item", 5), dimension=3, initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=2), combiner="mean", learning_rate_fn=freeze)


def new_estimator(model_dir):
    spec = tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        optimization_parameters=tpu_embedding.RMSPropParameters(learning_rate=0.05, rho=0.75, momentum=0.5, epsilon=0.01, weight_decay_factor=0.0625),
        feature_columns=[user, item],
        pipeline_execution_with_tensor_core=PIPELINED)
    config = tf.estimator.tpu.RunConfig(
        tf_random_seed=1, save_checkpoints_steps=STEPS, save_summary_steps=None,
        log_step_count_steps=None, tpu_config=tf.estimator.tpu.TPUConfig(
            iterations_per_loop=ITERATIONS, num_shards=NUM_SHARDS))
    return tf.estimator.tpu.TPUEstimator(
        model_fn, model_dir, config, train_batch_size=BATCH, eval_batch_size=BATCH,
        predict_batch_size=BATCH, embedding_config_spec=spec)



def main(model_dir):
    estimator = new_estimator(model_dir)
    estimator.train(input_fn, max_steps=STEPS)
    print(estimator.evaluate(input_fn, steps=2))


if __name__ == "__main__":
    main(sys.argv[1])
