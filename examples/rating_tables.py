# SPDX-License-Identifier: Apache-2.0
r"""Predicts ratings: tables and features in dictionaries, an optimizer for each table.

Shows `TableConfig`, `FeatureConfig`, a sequence feature, weights, learning rates that are
functions of the step, a gradient multiplier, `mod`, pipelining, and a host call that writes
losses and learning rates, because summaries cannot be written from a TPU. Activations arrive in
`features` under the names of the features.

    python examples/synthetic_data.py ratings /tmp/ratings
    tpu-estimator-embedding run examples/rating_tables.py --ratings=/tmp/ratings/ratings.npz \
        --model_dir=/tmp/ratings/model --num_shards=2 --train_steps=400
"""

import os

import numpy as np
import tensorflow.compat.v1 as tf
import tensorflow.compat.v2 as tf2
from absl import app, flags
from tensorflow.python.tpu import tpu_embedding

tf.disable_v2_behavior()

FLAGS = flags.FLAGS
flags.DEFINE_string("tpu", None, "TPU.")
flags.DEFINE_string("ratings", None, "npz of ratings.", required=True)
flags.DEFINE_string("model_dir", None, "Where to save.", required=True)
flags.DEFINE_integer("train_steps", 600, "Steps.")
flags.DEFINE_integer("batch_size", 512, "Ratings in a step.")
flags.DEFINE_integer("num_shards", None, "TPU cores.")
flags.DEFINE_integer("summary_steps", 50, "How often the host call writes.")
flags.DEFINE_float("learning_rate", 0.05, "Of the tables that set none.")

DIM = 8
USERS, MOVIES, TAGS = 400, 300, 40
HISTORY_LENGTH = 4


def learning_rate_of_tags(step):
    """Halves every 200 steps."""
    decays = tf.cast(step // 200, tf.float32)
    return 0.1 * tf.pow(0.5, decays)


def gradient_multiplier(step):
    """Grows to 1 in the first 50 steps."""
    return tf.minimum(1.0, (tf.cast(step, tf.float32) + 1.0) / 50.0)


def embedding_config_spec():
    normal = tf.truncated_normal_initializer(stddev=0.3)
    tables = {
        "users": tpu_embedding.TableConfig(
            USERS, DIM, initializer=normal, combiner="sum",
            optimization_parameters=tpu_embedding.FtrlParameters(
                0.3, l2_regularization_strength=0.0, clip_weight_min=-3.0, clip_weight_max=3.0)),
        "movies": tpu_embedding.TableConfig(
            MOVIES, DIM, initializer=normal, combiner="mean", learning_rate=0.02,
            optimization_parameters=tpu_embedding.AdamParameters(0.02, lazy_adam=True)),
        "tags": tpu_embedding.TableConfig(
            TAGS, 1, initializer=tf.zeros_initializer(), combiner="sum",
            learning_rate_fn=learning_rate_of_tags),
        "biases": tpu_embedding.TableConfig(
            MOVIES, 1, initializer=tf.zeros_initializer(), combiner=None),
    }
    features = {
        "user": tpu_embedding.FeatureConfig("users"),
        "movie": tpu_embedding.FeatureConfig("movies"),
        "watched": tpu_embedding.FeatureConfig("movies", max_sequence_length=HISTORY_LENGTH),
        "tags": tpu_embedding.FeatureConfig("tags", weight_key="tag_weights"),
        "movie_for_bias": tpu_embedding.FeatureConfig("biases"),
    }
    return tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        feature_to_config_dict=features,
        table_to_config_dict=tables,
        optimization_parameters=tpu_embedding.AdagradParameters(FLAGS.learning_rate),
        partition_strategy="mod",
        pipeline_execution_with_tensor_core=True,
        experimental_gradient_multiplier_fn=gradient_multiplier)


def one_hot_ids(ids):
    """A SparseTensor with one id in each row."""
    rows = tf.range(tf.size(ids, out_type=tf.int64))
    return tf.SparseTensor(tf.stack([rows, tf.zeros_like(rows)], axis=1), ids,
                           tf.stack([tf.size(ids, out_type=tf.int64), 1]))


def padded_to_sparse(ids, values):
    where = tf.where(ids >= 0)
    return tf.SparseTensor(where, tf.gather_nd(values, where), tf.shape(ids, out_type=tf.int64))


def ratings_input_fn(params, start, stop, repeat):
    def parse(row):
        return {
            "user": one_hot_ids(row["user"]),
            "movie": one_hot_ids(row["movie"]),
            "movie_for_bias": row["movie"],
            "watched": padded_to_sparse(row["watched"], row["watched"]),
            "tags": padded_to_sparse(row["tags"], row["tags"]),
            "tag_weights": padded_to_sparse(row["tags"], row["tag_weights"]),
            "labels": row["rating"],
        }

    with np.load(FLAGS.ratings) as file:
        rows = {name: file[name][start:stop] for name in file.files}
    dataset = tf.data.Dataset.from_tensor_slices(rows)
    if repeat:
        dataset = dataset.repeat().shuffle(5000, seed=0)
    return dataset.batch(params["batch_size"], drop_remainder=True).map(parse)


def train_input_fn(params):
    return ratings_input_fn(params, 4096, None, repeat=True)


def eval_input_fn(params):
    return ratings_input_fn(params, 0, 4096, repeat=False)


def host_call_fn(global_step, loss, learning_rate):
    step = global_step[0]
    writer = tf2.summary.create_file_writer(
        os.path.join(FLAGS.model_dir, "host_call"), max_queue=FLAGS.summary_steps)
    with writer.as_default(), tf2.summary.record_if(tf.equal(step % FLAGS.summary_steps, 0)):
        tf2.summary.scalar("training/loss", loss[0], step=step)
        tf2.summary.scalar("training/learning_rate", learning_rate[0], step=step)
        return tf.summary.all_v2_summary_ops()


def predict_rating(features):
    user, movie = features["user"], features["movie"]
    watched = tf.reduce_mean(features["watched"], axis=1)
    taste = user + tf.layers.dense(watched, DIM, name="taste",
                                   kernel_initializer=tf.zeros_initializer())
    mean_rating = tf.get_variable("mean_rating", [], initializer=tf.zeros_initializer())
    return (tf.reduce_sum(taste * movie, axis=1) + mean_rating
            + tf.squeeze(features["movie_for_bias"], 1) + tf.squeeze(features["tags"], 1))


def metric_fn(labels, predictions):
    return {"rmse": tf.metrics.root_mean_squared_error(labels, predictions)}


def model_fn(features, mode, params):
    ratings = predict_rating(features)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions={"rating": ratings})
    loss = tf.losses.mean_squared_error(features["labels"], ratings)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(
                metric_fn, {"labels": features["labels"], "predictions": ratings}))
    global_step = tf.train.get_global_step()
    learning_rate = tf.train.cosine_decay(0.05, global_step, FLAGS.train_steps)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.FtrlOptimizer(learning_rate))
    grads_and_vars = optimizer.compute_gradients(loss)
    train_op = optimizer.apply_gradients(grads_and_vars, global_step=global_step)
    host_call = (host_call_fn, [tf.reshape(value, [1]) for value in (
        global_step, loss, learning_rate)])
    return tf.estimator.tpu.TPUEstimatorSpec(
        mode, loss=loss, train_op=train_op, host_call=host_call)


def main(argv):
    del argv
    tpu_config = tf.estimator.tpu.TPUConfig(
        iterations_per_loop=FLAGS.summary_steps, num_shards=FLAGS.num_shards,
        per_host_input_for_training=tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2)
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, FLAGS.model_dir,
        tf.estimator.tpu.RunConfig(
            cluster=tf.distribute.cluster_resolver.TPUClusterResolver(tpu=FLAGS.tpu),
            tpu_config=tpu_config, tf_random_seed=5, keep_checkpoint_max=1),
        train_batch_size=FLAGS.batch_size, eval_batch_size=FLAGS.batch_size,
        embedding_config_spec=embedding_config_spec())
    estimator.train(train_input_fn, max_steps=FLAGS.train_steps)
    metrics = estimator.evaluate(eval_input_fn, steps=4096 // FLAGS.batch_size)
    tf.logging.info("RMSE %.3f", metrics["rmse"])


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    app.run(main)
