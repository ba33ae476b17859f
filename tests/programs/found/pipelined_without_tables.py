"""Pipelined, every step trained on the first batch: there is no table of the engine.

Ways: reference, pipelined, loop
"""
import sys

import numpy as np
import tensorflow.compat.v1 as tf

BATCH, STEPS = 8, 4
SAMPLES = BATCH * STEPS
EVALUATED = 2  # steps
NUM_SHARDS, ITERATIONS, PIPELINED, RECORDS = 1, 1, False, None



def new_data():
    rng = np.random.default_rng(0)
    return {
        "user_a": rng.integers(-1, 9, [SAMPLES, 3]),
        "user_b": rng.integers(-1, 9, [SAMPLES, 3]),
        "x": rng.uniform(-1, 1, [SAMPLES, 3]).astype(np.float32),
        "y": rng.uniform(-1, 1, [SAMPLES]).astype(np.float32)}


DATA = new_data()


def sparse(values, exist):
    places = tf.where(exist)
    shape = tf.shape(values, out_type=tf.int64)
    return tf.SparseTensor(places, tf.gather_nd(values, places), shape)



def metric_fn(labels, logits):
    return {"mean": tf.metrics.mean(logits)}



def to_features(row):
    features = {"user_a": sparse(row["user_a"], row["user_a"] >= 0), "user_b": sparse(row["user_b"], row["user_b"] >= 0), "x": row["x"]}
    return features, {"y": row["y"]}


def rows():
    for index in range(len(DATA["y"])):
        yield {name: values[index] for name, values in DATA.items()}


def input_fn(params):
    dataset = tf.data.Dataset.from_generator(
        rows, {name: tf.as_dtype(values.dtype) for name, values in DATA.items()},
        {name: values.shape[1:] for name, values in DATA.items()})
    dataset = dataset.batch(params["batch_size"]).cache()
    return dataset.map(to_features)



def model_fn(features, labels, mode, params):
    features.update({"x": features["x"] + 1.0})
    user_a_input = tf.keras.layers.DenseFeatures([user_a], name="user_a_layer")(features)
    user_b_input = tf.keras.layers.DenseFeatures([user_b], name="user_b_layer")(features)
    x = features.get("x")
    net = tf.concat([user_a_input, user_b_input, x], 1)
    net = tf.layers.dense(net, 4, tf.tanh, kernel_initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=2), name="hidden")
    step = tf.train.get_or_create_global_step()
    net = tf.cond(tf.less(step, 2), lambda: net, lambda: tf.tanh(net))
    turn = tf.get_variable("turn", [4, 4], initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=3))
    _, net = tf.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, tf.tanh(tf.matmul(v, turn))), [tf.constant(0), net])
    logits = tf.layers.dense(net, 1, None, kernel_initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=4), name="logits")[:, 0]
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits, "p": tf.sigmoid(logits)[:, tf.newaxis]})
    y = labels["y"]
    loss = tf.losses.huber_loss(y, logits, weights=2.0)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [y, logits]))
    step = tf.train.get_or_create_global_step()
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.FtrlOptimizer(0.03, initial_accumulator_value=0.25))
    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables)
    train_op = optimizer.apply_gradients(zip(gradients, variables), global_step=step)
    average = tf.train.ExponentialMovingAverage(0.75)
    with tf.control_dependencies([train_op]):
        train_op = average.apply(tf.trainable_variables())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)



user_a, user_b = tf.tpu.experimental.shared_embedding_columns(
    [tf.feature_column.categorical_column_with_identity("user_a", 9), tf.feature_column.categorical_column_with_identity("user_b", 9)],
    dimension=3, initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=1), combiner="mean",
    embedding_lookup_device="tpu_tensor_core", tensor_core_shape=[BATCH, 3])


def new_estimator(model_dir):
    spec = tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        optimization_parameters=tf.tpu.experimental.StochasticGradientDescentParameters(learning_rate=0.2),
        feature_columns=[user_a, user_b],
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
    print(estimator.evaluate(input_fn, steps=EVALUATED))


if __name__ == "__main__":
    main(sys.argv[1])
