# SPDX-License-Identifier: Apache-2.0
r"""Retrieval: a user tower over the items seen before, an item tower, one table for both.

Trains with a sampled negative item for each positive one, then writes the vectors of all
users and items for the nearest-neighbour index. Shows `shared_embedding_columns` with a sequence,
`combiner=None`, plain SGD, and tables that a CPU reads with `use_tpu=False`.

    python examples/synthetic_data.py sessions /tmp/sessions
    tpu-estimator-embedding run examples/two_tower.py --sessions=/tmp/sessions/sessions.npz \
        --model_dir=/tmp/sessions/model --output=/tmp/sessions/vectors.npz
"""

import time

import numpy as np
import tensorflow as tf
from absl import app, flags

tpu_estimator = tf.compat.v1.estimator.tpu
FLAGS = flags.FLAGS

flags.DEFINE_string("tpu", "", "TPU worker address.")
flags.DEFINE_string("sessions", None, "npz with `history` (-1 pads) and `positive`.")
flags.DEFINE_string("model_dir", None, "Checkpoints.")
flags.DEFINE_string("output", None, "npz for the vectors.")
flags.DEFINE_integer("num_items", 200, "Items.")
flags.DEFINE_integer("dim", 16, "Of the vectors.")
flags.DEFINE_integer("max_history", 5, "Items of a session that are used.")
flags.DEFINE_integer("batch_size", 512, "Sessions in a step.")
flags.DEFINE_integer("steps", 300, "Steps.")


def item_columns():
    """History, positive and negative items, in this order, all of one table."""
    items = [
        tf.feature_column.sequence_categorical_column_with_identity("history", FLAGS.num_items),
        tf.feature_column.categorical_column_with_identity("positive", FLAGS.num_items),
        tf.feature_column.categorical_column_with_identity("negative", FLAGS.num_items),
    ]
    return tf.compat.v1.tpu.experimental.shared_embedding_columns(
        items, dimension=FLAGS.dim, combiner=None,
        initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.1),
        shared_embedding_collection_name="items",
        max_sequence_lengths=[FLAGS.max_history, 0, 0])


def with_negatives(features):
    features["negative"] = tf.random.uniform(
        tf.shape(features["positive"]), maxval=FLAGS.num_items, dtype=tf.int64)
    return features


def to_sparse(features):
    padded = features["history"]
    where = tf.where(tf.greater_equal(padded, 0))
    features["history"] = tf.SparseTensor(
        where, tf.gather_nd(padded, where), tf.shape(padded, out_type=tf.int64))
    return features


def make_input_fn(sessions, training):
    def input_fn(params):
        ds = tf.data.Dataset.from_tensor_slices(sessions)
        if training:
            ds = ds.shuffle(20000).repeat()
        ds = ds.batch(params["batch_size"], drop_remainder=training)
        return ds.map(with_negatives).map(to_sparse).prefetch(2)

    return input_fn


def user_tower(features, history_column):
    """Averages the items of the history and turns them into a user vector."""
    sequence, lengths = tf.keras.experimental.SequenceFeatures(
        [history_column], name="history")(features)
    mask = tf.sequence_mask(lengths, tf.shape(sequence)[1], dtype=tf.float32)
    total = tf.reduce_sum(sequence * mask[:, :, tf.newaxis], axis=1)
    mean = total / tf.maximum(tf.reduce_sum(mask, axis=1, keepdims=True), 1.0)
    return tf.compat.v1.layers.dense(
        mean, FLAGS.dim, use_bias=False, name="user_projection",
        kernel_initializer=tf.compat.v1.orthogonal_initializer())


def score(user, item):
    return tf.reduce_sum(user * item, axis=1)


def metric_fn(positive_scores, negative_scores):
    return {"ranked_right": tf.compat.v1.metrics.mean(
        tf.cast(positive_scores > negative_scores, tf.float32))}


def model_fn(features, labels, mode, params):
    del labels
    history, positive, negative = params["item_columns"]
    item = tf.keras.layers.DenseFeatures([positive], name="positive")(features)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"item": item}
        if not params["items_only"]:
            predictions["user"] = user_tower(features, history)
        return tpu_estimator.TPUEstimatorSpec(mode, predictions=predictions)

    user = user_tower(features, history)
    other = tf.keras.layers.DenseFeatures([negative], name="negative")(features)
    scores = [score(user, item), score(user, other)]
    loss = tf.reduce_mean(tf.nn.softplus(scores[1] - scores[0]))
    if mode == tf.estimator.ModeKeys.EVAL:
        return tpu_estimator.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(metric_fn, scores))

    step = tf.compat.v1.train.get_or_create_global_step()
    rate = tf.compat.v1.train.exponential_decay(0.05, step, 100, 0.9, staircase=True)
    optimizer = tf.compat.v1.train.MomentumOptimizer(rate, momentum=0.9)
    if params["use_tpu"]:
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(optimizer)
    return tpu_estimator.TPUEstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, global_step=step))


def build_estimator(columns, use_tpu):
    config = tpu_estimator.RunConfig(
        master=FLAGS.tpu, model_dir=FLAGS.model_dir, tf_random_seed=7,
        save_checkpoints_steps=FLAGS.steps, log_step_count_steps=100,
        tpu_config=tpu_estimator.TPUConfig(FLAGS.steps, per_host_input_for_training=True))
    spec = tpu_estimator.experimental.EmbeddingConfigSpec(
        columns, tf.compat.v1.tpu.experimental.StochasticGradientDescentParameters(20.0))
    return tpu_estimator.TPUEstimator(
        model_fn, config=config, use_tpu=use_tpu,
        params={"item_columns": columns, "items_only": not use_tpu},
        train_batch_size=FLAGS.batch_size, eval_batch_size=FLAGS.batch_size,
        predict_batch_size=64, embedding_config_spec=spec if use_tpu else None)


def item_input_fn(params):
    ds = tf.data.Dataset.range(FLAGS.num_items).map(lambda item: {"positive": item})
    return ds.batch(params["batch_size"])


def stack(predictions, key):
    return np.stack([prediction[key] for prediction in predictions])


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"Unknown arguments {argv[1:]}")
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    with np.load(FLAGS.sessions) as file:
        sessions = {name: file[name].astype(np.int64) for name in ("history", "positive")}
    num_eval = len(sessions["positive"]) // 10
    held_out = {name: values[:num_eval] for name, values in sessions.items()}
    sessions = {name: values[num_eval:] for name, values in sessions.items()}

    columns = item_columns()
    estimator = build_estimator(columns, use_tpu=True)
    start = time.time()
    estimator.train(make_input_fn(sessions, True), steps=FLAGS.steps)
    tf.compat.v1.logging.info("Trained for %.1f s", time.time() - start)
    metrics = estimator.evaluate(
        make_input_fn(held_out, False), steps=num_eval // FLAGS.batch_size, name="held_out")
    print("ranked right:", metrics["ranked_right"])

    users = stack(estimator.predict(make_input_fn(held_out, False)), "user")
    # Items are few: the CPU reads them from the checkpoint.
    items = stack(build_estimator(columns, use_tpu=False).predict(item_input_fn), "item")
    np.savez(FLAGS.output, users=users, items=items)


if __name__ == "__main__":
    flags.mark_flag_as_required("sessions")
    flags.mark_flag_as_required("model_dir")
    app.run(main)
