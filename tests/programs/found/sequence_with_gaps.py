"""A migrated program could not read a sequence whose samples have gaps between their ids.

Ways: reference, tf2, layers
"""
import sys

import numpy as np
import tensorflow.compat.v1 as tf

BATCH, STEPS, SAMPLES = 8, 4, 32
NUM_SHARDS, ITERATIONS, PIPELINED, RECORDS = 1, 1, False, None



def new_data():
    rng = np.random.default_rng(0)
    return {
        "user": rng.integers(-1, 12, [SAMPLES, 3]),
        "item": rng.integers(-1, 12, [SAMPLES, 3]),
        "x": rng.uniform(-1, 1, [SAMPLES, 3]).astype(np.float32),
        "y": rng.uniform(-1, 1, [SAMPLES]).astype(np.float32)}


DATA = new_data()


def decay(step):
    return 0.5 / (1.0 + tf.cast(step, tf.float32))



def sparse(values, exist):
    places = tf.where(exist)
    shape = tf.shape(values, out_type=tf.int64)
    return tf.SparseTensor(places, tf.gather_nd(values, places), shape)



def metric_fn(labels, logits):
    return {"mean": tf.metrics.mean(logits)}



def to_features(row):
    features = {"user": sparse(row["user"], row["user"] >= 0), "item": sparse(row["item"], row["item"] >= 0), "nested": {"x": row["x"], "deep": {"twice": 2.0 * row["x"]}}}
    return features, row["y"]


def input_fn(params):
    dataset = tf.data.Dataset.from_tensor_slices(DATA).repeat()
    dataset = dataset.batch(params["batch_size"], drop_remainder=True)
    return dataset.map(to_features)



def model_fn(features, labels, mode, params):
    features["nested"]["x"] *= 0.5
    item_rows, item_length = tf.keras.experimental.SequenceFeatures([item], name="item_layer")(features)
    with tf.variable_scope("embeddings_scope", reuse=tf.AUTO_REUSE):
        embeddings = tf.feature_column.input_layer(features, [user])
    x = features["nested"]["x"]
    net = tf.concat([tf.reduce_max(item_rows, 1), embeddings * embeddings, x], 1)
    net = tf.layers.dense(net, 3, tf.tanh, kernel_initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=3), name="hidden")
    logits = tf.layers.dense(net, 1, None, kernel_initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=4), name="logits")[:, 0]
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits, "net": net})
    y = labels
    loss = tf.losses.sigmoid_cross_entropy(tf.sigmoid(y)[:, tf.newaxis], logits[:, tf.newaxis])
    loss += 0.1 * tf.reduce_mean(tf.square(x[:, 0] - net[:, 0]))
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, [y, logits]))
    step = tf.train.get_global_step()
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.1, epsilon=0.01))
    train_op = optimizer.minimize(loss, global_step=step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)



user = tf.tpu.experimental.embedding_column(
    tf.feature_column.categorical_column_with_identity("user", 12), dimension=2, initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=1), combiner="mean", learning_rate_fn=decay)
item = tf.tpu.experimental.embedding_column(
    tf.feature_column.sequence_categorical_column_with_identity("item", 12), dimension=3, initializer=tf.random_uniform_initializer(-1.0, 1.0, seed=2), combiner="mean", max_sequence_length=3)


def new_estimator(model_dir):
    spec = tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        optimization_parameters=tf.tpu.experimental.AdamParameters(learning_rate=0.05, epsilon=0.01, lazy_adam=False),
        experimental_gradient_multiplier_fn=decay,
        clipping_limit=0.0625,
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
