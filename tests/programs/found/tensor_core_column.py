"""`migrate` said that nothing was left of a program with a column for a TensorCore.

Ways: reference, pipelined, loop, imports, tf2, layers
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
        "user": rng.integers(-1, 9, [SAMPLES, 3]),
        "item": rng.integers(-1, 9, [SAMPLES, 3]),
        "x": rng.uniform(-1, 1, [SAMPLES, 3]).astype(np.float32),
        "y": rng.uniform(-1, 1, [SAMPLES]).astype(np.float32)}


DATA = new_data()


def sparse(values, exist):
    places = tf.where(exist)
    shape = tf.shape(values, out_type=tf.int64)
    return tf.SparseTensor(places, tf.gather_nd(values, places), shape)



def warm_up(step):
    return tf.minimum(1.0, (tf.cast(step, tf.float32) + 1.0) / 3.0)



def metric_fn(labels, logits):
    return {"error": tf.metrics.mean_squared_error(labels, logits)}



def to_features(row):
    features = {"user": sparse(row["user"], row["user"] >= 0), "item": sparse(row["item"], row["item"] >= 0), "x": row["x"]}
    return features, row["y"]


def rows():
    for index in range(len(DATA["y"])):
        yield {name: values[index] for name, values in DATA.items()}


def input_fn(params):
    dataset = tf.data.Dataset.from_generator(
        rows, {name: tf.as_dtype(values.dtype) for name, values in DATA.items()},
        {name: values.shape[1:] for name, values in DATA.items()})
    dataset = dataset.batch(params["batch_size"], drop_remainder=True)
    return dataset.map(to_features)



def model_fn(features, labels, mode, params):
    user_input = tf.keras.layers.DenseFeatures([user], name="user_layer")(features)
    item_input = tf.feature_column.input_layer(features, [item])
    x = features["x"]
    net = tf.concat([user_input * user_input, tf.tanh(item_input), x], 1)
    net = tf.layers.dense(net, 3, tf.tanh, kernel_initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=3), kernel_regularizer=tf.keras.regularizers.l2(0.01), name="hidden")
    logits = tf.layers.dense(net, 1, None, kernel_initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=4), name="logits")[:, 0]
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits, "net": net})
    y = labels
    loss = 0.5 * tf.reduce_mean(tf.abs(logits - y) ** 1.5)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [y, logits]))
    step = tf.train.get_or_create_global_step()
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.MomentumOptimizer(0.1, 0.75))
    train_op = optimizer.minimize(loss, global_step=step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)



user = tf.tpu.experimental.embedding_column(
    tf.feature_column.categorical_column_with_identity("user", 9), dimension=3, initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=1), combiner="sum",
    embedding_lookup_device="tpu_tensor_core", tensor_core_shape=[BATCH, 2])
item = tf.tpu.experimental.embedding_column(
    tf.feature_column.categorical_column_with_identity("item", 9), dimension=1, initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=2), combiner="sum")


def new_estimator(model_dir):
    spec = tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        optimization_parameters=tf.tpu.experimental.AdagradParameters(learning_rate=0.3),
        experimental_gradient_multiplier_fn=warm_up,
        feature_columns=[user, item],
        pipeline_execution_with_tensor_core=PIPELINED)
    config = tf.estimator.tpu.RunConfig(
        tf_random_seed=1, save_checkpoints_steps=STEPS, save_summary_steps=None,
        log_step_count_steps=None, tpu_config=tf.estimator.tpu.TPUConfig(
            iterations_per_loop=ITERATIONS, num_shards=NUM_SHARDS,
            per_host_input_for_training=tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2))
    return tf.estimator.tpu.TPUEstimator(
        model_fn, model_dir, config, train_batch_size=BATCH, eval_batch_size=BATCH,
        predict_batch_size=BATCH, embedding_config_spec=spec)



def main(model_dir):
    estimator = new_estimator(model_dir)
    estimator.train(input_fn, max_steps=STEPS)
    print(estimator.evaluate(input_fn, steps=EVALUATED))


if __name__ == "__main__":
    main(sys.argv[1])
