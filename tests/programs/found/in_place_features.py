# SPDX-License-Identifier: Apache-2.0
"""Replicas computed with each other's features, which model_fn changes in place.

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
        "user_0": rng.integers(-1, 9, [SAMPLES, 3]),
        "user_0_weight": rng.integers(1, 9, [SAMPLES, 3]).astype(np.float32) / 4,
        "x": rng.uniform(-1, 1, [SAMPLES, 3]).astype(np.float32),
        "y": rng.uniform(-1, 1, [SAMPLES]).astype(np.float32)}


DATA = new_data()


def sparse(values, exist):
    places = tf.where(exist)
    return tf.SparseTensor(places, tf.gather_nd(values, places), tf.shape(values, out_type=tf.int64))



def freeze(step):
    return tf.where(step < 2, tf.constant(1.0), tf.constant(0.0))



def metric_fn(labels, logits):
    return {"auc": tf.metrics.auc(labels > 0, tf.sigmoid(logits)),
            "size": tf.metrics.mean(tf.abs(logits))}



def to_features(row):
    features = {"user_0": sparse(row["user_0"], row["user_0"] >= 0), "user_0_weight": sparse(row["user_0_weight"], row["user_0"] >= 0), "nested": {"x": row["x"], "deep": {"twice": 2.0 * row["x"]}}}
    return features, row["y"][:, tf.newaxis]


def rows():
    for index in range(len(DATA["y"])):
        yield {name: values[index] for name, values in DATA.items()}


def input_fn(params):
    dataset = tf.data.Dataset.from_generator(
        rows, {name: values.dtype for name, values in DATA.items()},
        {name: values.shape[1:] for name, values in DATA.items()})
    dataset = dataset.batch(params["batch_size"]).cache()
    return dataset.map(to_features)



def model_fn(features, labels, mode, params):
    features["nested"]["x"] *= 0.5
    features["nested"].update(log=tf.log(2.0 + features["nested"]["x"]))
    x = features["nested"]["deep"]["twice"]
    net = tf.concat([features["user_0"], x], 1)
    net = tf.layers.dense(net, 3, tf.tanh, kernel_initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=2), kernel_regularizer=lambda w: 0.01 * tf.reduce_sum(tf.square(w)), name="hidden")
    turn = tf.get_variable("turn", [3, 3], initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=3))
    _, net = tf.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, tf.tanh(tf.matmul(v, turn))), [tf.constant(0), net])
    step = tf.train.get_or_create_global_step()
    net = tf.cond(tf.less(step, 2), lambda: net, lambda: tf.tanh(net))
    logits = tf.layers.dense(net, 1, None, kernel_initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=4), name="logits")[:, 0]
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits, "net": net})
    y = tf.squeeze(labels, 1)
    loss = tf.losses.mean_squared_error(y, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, {"labels": y, "logits": logits}))
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, step, 2, 0.5, staircase=True)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.MomentumOptimizer(rate, 0.75))
    train_op = optimizer.minimize(loss)
    with tf.control_dependencies([train_op]):
        train_op = tf.assign_add(step, 1)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)



def new_estimator(model_dir):
    spec = tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        optimization_parameters=tpu_embedding.AdagradMomentumParameters(learning_rate=0.1, momentum=0.75, epsilon=0.01),
        experimental_gradient_multiplier_fn=freeze,
        table_to_config_dict={
            "user": tpu_embedding.TableConfig(9, 3, tf.random_uniform_initializer(-1.0, 1.0, seed=1), combiner='sqrtn')},
        feature_to_config_dict={
            "user_0": tpu_embedding.FeatureConfig("user", weight_key="user_0_weight")},
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
