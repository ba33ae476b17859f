# SPDX-License-Identifier: Apache-2.0
r"""Predicts clicks on ads from TFRecords: feature columns, one of them weighted, on 8 shards.

Shows `tf.tpu.experimental.embedding_column`, `EmbeddingConfigSpec(feature_columns=...)` with
`AdamParameters`, PER_HOST_V2 input, and training that continues from a checkpoint.

    python examples/synthetic_data.py clicks /tmp/clicks
    tpu-estimator-embedding run examples/click_through_rate.py --data_dir=/tmp/clicks \
        --model_dir=/tmp/clicks/model --train_steps=120 --eval_steps=4

Reads TFRecords `train-*.tfrecord` and `eval-*.tfrecord`.
"""

import json
import os

import tensorflow.compat.v1 as tf
from absl import app, flags, logging

tf.disable_v2_behavior()

flags.DEFINE_string("tpu", None, "Name of the Cloud TPU, or its grpc:// address.")
flags.DEFINE_string("tpu_zone", None, "GCE zone of the TPU.")
flags.DEFINE_string("gcp_project", None, "Project of the TPU.")
flags.DEFINE_bool("use_tpu", True, "False to run on CPU or GPU.")
flags.DEFINE_integer("num_shards", 8, "Number of TPU cores.")
flags.DEFINE_integer("iterations_per_loop", 100, "Steps between returns to the host.")
flags.DEFINE_string("data_dir", None, "Where the records are.")
flags.DEFINE_string("model_dir", None, "Where checkpoints go.")
flags.DEFINE_enum("mode", "train_and_eval", ["train", "eval", "train_and_eval"], "What to do.")
flags.DEFINE_integer("train_steps", 1000, "Steps in all.")
flags.DEFINE_integer("eval_steps", 10, "Batches of an evaluation.")
flags.DEFINE_integer("train_batch_size", 1024, "Global batch size.")
flags.DEFINE_integer("eval_batch_size", 1024, "Global batch size.")
flags.DEFINE_float("learning_rate", 0.01, "Of the dense layers, at the start.")
flags.DEFINE_float("embedding_learning_rate", 0.1, "Of the tables.")
flags.mark_flags_as_required(["data_dir", "model_dir"])

FLAGS = flags.FLAGS

NUM_USERS = 2000
NUM_ADS = 300
NUM_WORDS = 500
EMBEDDING_DIM = 8

FEATURE_SPEC = {
    "user_id": tf.io.VarLenFeature(tf.int64),
    "ad_id": tf.io.VarLenFeature(tf.int64),
    "query_words": tf.io.VarLenFeature(tf.int64),
    "query_scores": tf.io.VarLenFeature(tf.float32),
    "bid": tf.io.FixedLenFeature([1], tf.float32, default_value=[0.0]),
}
LABEL_SPEC = {"clicked": tf.io.FixedLenFeature([1], tf.int64)}


def create_feature_columns():
    identity = tf.feature_column.categorical_column_with_identity
    words = tf.feature_column.weighted_categorical_column(
        identity("query_words", NUM_WORDS), "query_scores")
    sparse = [identity("user_id", NUM_USERS), identity("ad_id", NUM_ADS), words]
    initializer = tf.random_uniform_initializer(-0.05, 0.05)
    return [tf.tpu.experimental.embedding_column(
        column, EMBEDDING_DIM, combiner="sum", initializer=initializer) for column in sparse]


def make_input_fn(pattern, is_training):
    """Returns an input_fn that reads this host's share of the files."""

    def parse(serialized):
        features = tf.io.parse_example(serialized, {**FEATURE_SPEC, **LABEL_SPEC})
        label = tf.cast(features.pop("clicked"), tf.float32)
        return features, label

    def input_fn(params):
        files = tf.data.Dataset.list_files(pattern, shuffle=False)
        if is_training and "context" in params:
            _, host, num_hosts, _ = params["context"].current_input_fn_deployment()
            files = files.shard(num_hosts, host)
        dataset = files
        if is_training:
            dataset = dataset.shuffle(16).repeat()
        dataset = dataset.apply(tf.data.experimental.parallel_interleave(
            tf.data.TFRecordDataset, cycle_length=4, sloppy=is_training))
        if is_training:
            dataset = dataset.shuffle(10000)
        dataset = dataset.batch(params["batch_size"], drop_remainder=True)
        dataset = dataset.map(parse, num_parallel_calls=tf.data.experimental.AUTOTUNE)
        return dataset.prefetch(tf.data.experimental.AUTOTUNE)

    return input_fn


def metric_fn(labels, logits):
    probabilities = tf.sigmoid(logits)
    return {
        "auc": tf.metrics.auc(labels, probabilities, num_thresholds=1000),
        "accuracy": tf.metrics.accuracy(labels, tf.cast(logits > 0, tf.float32)),
        "calibration": tf.metrics.mean(probabilities - labels),
    }


def build_logits(features, columns, is_training):
    net = tf.feature_column.input_layer(features, columns)
    bid = tf.layers.batch_normalization(features["bid"], training=is_training)
    net = tf.concat([net, bid], axis=1)
    for units in (32, 16):
        net = tf.layers.dense(net, units, activation=tf.nn.relu)
    return tf.layers.dense(net, 1, name="logits")


def model_fn(features, labels, mode, params):
    is_training = mode == tf.estimator.ModeKeys.TRAIN
    logits = build_logits(features, params["columns"], is_training)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, predictions={"probability": tf.sigmoid(logits)})

    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))

    global_step = tf.train.get_global_step()
    learning_rate = tf.train.polynomial_decay(
        params["learning_rate"], global_step, FLAGS.train_steps, params["learning_rate"] / 10)
    optimizer = tf.train.AdamOptimizer(learning_rate)
    if params["use_tpu"]:
        optimizer = tf.tpu.CrossShardOptimizer(optimizer)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, global_step)
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def create_estimator():
    cluster = tf.distribute.cluster_resolver.TPUClusterResolver(
        FLAGS.tpu, zone=FLAGS.tpu_zone, project=FLAGS.gcp_project)
    run_config = tf.estimator.tpu.RunConfig(
        cluster=cluster,
        model_dir=FLAGS.model_dir,
        tf_random_seed=1,
        save_checkpoints_steps=FLAGS.iterations_per_loop,
        keep_checkpoint_max=3,
        session_config=tf.ConfigProto(allow_soft_placement=True, log_device_placement=False),
        tpu_config=tf.estimator.tpu.TPUConfig(
            iterations_per_loop=FLAGS.iterations_per_loop,
            num_shards=FLAGS.num_shards,
            per_host_input_for_training=tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2))
    columns = create_feature_columns()
    return tf.estimator.tpu.TPUEstimator(
        model_fn=model_fn,
        config=run_config,
        use_tpu=FLAGS.use_tpu,
        train_batch_size=FLAGS.train_batch_size,
        eval_batch_size=FLAGS.eval_batch_size,
        params={"columns": columns, "learning_rate": FLAGS.learning_rate},
        embedding_config_spec=tf.estimator.tpu.experimental.EmbeddingConfigSpec(
            feature_columns=columns,
            optimization_parameters=tf.tpu.experimental.AdamParameters(
                learning_rate=FLAGS.embedding_learning_rate)))


def main(unused_argv):
    tf.logging.set_verbosity(tf.logging.INFO)
    estimator = create_estimator()
    if "train" in FLAGS.mode:
        logging.info("Training up to step %d.", FLAGS.train_steps)
        estimator.train(make_input_fn(os.path.join(FLAGS.data_dir, "train-*.tfrecord"), True),
                        max_steps=FLAGS.train_steps)
    if "eval" in FLAGS.mode:
        results = estimator.evaluate(
            make_input_fn(os.path.join(FLAGS.data_dir, "eval-*.tfrecord"), False),
            steps=FLAGS.eval_steps)
        print(json.dumps({name: float(value) for name, value in results.items()}))


if __name__ == "__main__":
    app.run(main)
