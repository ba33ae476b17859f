# SPDX-License-Identifier: Apache-2.0
"""tf.recompute_grad failed: it searched for variables, and found the dummies of the tables.

Ways: reference, tiled, imports
"""
import sys

import numpy as np
import tensorflow.compat.v1 as tf

BATCH, STEPS, SAMPLES = 8, 4, 32
NUM_SHARDS, ITERATIONS, PIPELINED, RECORDS = 1, 1, False, None



def new_data():
    rng = np.random.default_rng(0)
    return {
        "user": rng.integers(-1, 5, [SAMPLES, 3]),
        "x": rng.uniform(-1, 1, [SAMPLES, 3]).astype(np.float32),
        "unused": rng.integers(0, 9, [SAMPLES, 2]),
        "y": rng.uniform(-1, 1, [SAMPLES]).astype(np.float32)}


DATA = new_data()


def sparse(values, exist):
    places = tf.where(exist)
    shape = tf.shape(values, out_type=tf.int64)
    return tf.SparseTensor(places, tf.gather_nd(values, places), shape)



def metric_fn(labels, logits):
    return {"auc": tf.metrics.auc(labels > 0, tf.sigmoid(logits)),
            "size": tf.metrics.mean(tf.abs(logits))}



SEEN = []


def host_fn(step, losses):
    def note(step, losses):
        SEEN.append((int(step[0]), float(losses.mean())))
        return np.int64(0)
    return [tf.py_func(note, [step, losses], tf.int64)]



def to_features(row):
    features = {"user": sparse(row["user"], row["user"] >= 0), "x": row["x"], "unused": row["unused"]}
    return features, {"y": row["y"]}


def rows():
    for index in range(len(DATA["y"])):
        yield {name: values[index] for name, values in DATA.items()}


def input_fn(params):
    dataset = tf.data.Dataset.from_generator(
        rows, {name: tf.as_dtype(values.dtype) for name, values in DATA.items()},
        {name: values.shape[1:] for name, values in DATA.items()})
    dataset = dataset.batch(params["batch_size"]).cache()
    return tf.data.make_one_shot_iterator(dataset.map(to_features)).get_next()



def model_fn(features, labels, mode, params):
    features["log"] = tf.log(2.0 + features["x"])
    features.update({"x": features["x"] + 1.0})
    user_rows, user_length = tf.keras.experimental.SequenceFeatures([user], name="user_layer")(features)
    x = features["x"]
    net = tf.concat([tf.reduce_sum(user_rows * tf.sequence_mask(user_length, 3, tf.float32)[:, :, tf.newaxis], 1), x], 1)
    net = tf.layers.dense(net, 4, tf.tanh, kernel_initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=2), name="hidden")
    @tf.recompute_grad
    def recomputed(values):
        return tf.tanh(values) * tf.sigmoid(values)
    net = recomputed(net)
    net = net - tf.reduce_mean(net, 0)
    logits = tf.layers.dense(net, 1, None, kernel_initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=3), name="logits")[:, 0]
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits, "p": tf.sigmoid(logits)[:, tf.newaxis]})
    labels["sign"] = tf.sign(labels["y"])
    y = labels["sign"]
    loss = 0.5 * tf.reduce_mean(tf.abs(logits - y) ** 1.5)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, {"labels": y, "logits": logits}))
    step = tf.train.get_global_step()
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.03, epsilon=0.01))
    gradients = optimizer.compute_gradients(loss)
    train_op = optimizer.apply_gradients(gradients, global_step=step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op,
            host_call=(host_fn, [tf.reshape(step, [1]), tf.reshape(loss, [1])]))



user = tf.tpu.experimental.embedding_column(
    tf.feature_column.sequence_categorical_column_with_identity("user", 5), dimension=1, initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=1), combiner="sum", max_sequence_length=3)


def new_estimator(model_dir):
    spec = tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        optimization_parameters=tf.tpu.experimental.StochasticGradientDescentParameters(learning_rate=0.2, weight_decay_factor=0.125, multiply_weight_decay_factor_by_learning_rate=True),
        clipping_limit=0.0625,
        partition_strategy="mod",
        feature_columns=[user],
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
