# SPDX-License-Identifier: Apache-2.0
r"""Ranks videos with a task class: a program that fills in what a training library asks of it.

Shows tables and features given as dictionaries by methods of a task, `mod`, FTRL and Adagrad by
table, learning rates that are functions of the step, a sequence, a gradient multiplier,
pipelining, a host call, and 8 replicas where the program leaves `num_shards` unset.

    python examples/synthetic_data.py feed /tmp/feed
    tpu-estimator-embedding run --cores 8 examples/video_ranking_task.py --data_dir=/tmp/feed \
        --model_dir=/tmp/feed/model
"""

import abc
import os

import numpy as np
import tensorflow.compat.v1 as tf
import tensorflow.compat.v2 as tf2
from absl import app, flags, logging
from tensorflow.python.tpu import tpu_embedding

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Where feed.npz is.", required=True)
flags.DEFINE_string("model_dir", None, "Where checkpoints and summaries go.", required=True)
flags.DEFINE_string("tpu", None, "The TPU.")
flags.DEFINE_integer("steps", 300, "Training steps.")
flags.DEFINE_integer("global_batch_size", 1024, "Samples of a step.")
flags.DEFINE_integer("summary_steps", 50, "How often the host call writes.")

NUM_EVAL = 8192


class Task(abc.ABC):
    """What a model is made of; `train_and_evaluate` does the rest."""

    def __init__(self, params):
        self.params = params

    @abc.abstractmethod
    def tables(self):
        """Returns name -> TableConfig."""

    @abc.abstractmethod
    def features(self):
        """Returns name -> FeatureConfig."""

    @abc.abstractmethod
    def create_input_fn(self, mode):
        """Returns an input_fn."""

    @abc.abstractmethod
    def create_model_fn(self):
        """Returns a model_fn."""

    def embedding_config_spec(self):
        return tf.estimator.tpu.experimental.EmbeddingConfigSpec(
            table_to_config_dict=self.tables(), feature_to_config_dict=self.features(),
            optimization_parameters=tf.tpu.experimental.AdagradParameters(0.05),
            partition_strategy="mod", pipeline_execution_with_tensor_core=True,
            experimental_gradient_multiplier_fn=self.gradient_multiplier)

    def gradient_multiplier(self, global_step):
        """Keeps tables still until the dense layers have a direction."""
        return tf.minimum(1.0, tf.cast(global_step, tf.float32) / self.params["warmup_steps"])


class VideoRanking(Task):
    """Predicts whether a user watches a video to its end."""

    DIM = 8

    def tables(self):
        def decay(step):
            return 0.5 * tf.pow(0.5, tf.cast(step, tf.float32) / self.params["half_life"])

        initializer = tf.truncated_normal_initializer(stddev=0.05)
        return {
            "user_bias": tpu_embedding.TableConfig(
                500, 1, tf.zeros_initializer(), combiner="sum",
                optimization_parameters=tpu_embedding.FtrlParameters(
                    0.2, l1_regularization_strength=1e-4)),
            "author_bias": tpu_embedding.TableConfig(
                100, 1, tf.zeros_initializer(), combiner="sum",
                optimization_parameters=tpu_embedding.FtrlParameters(0.2)),
            "authors": tpu_embedding.TableConfig(
                100, self.DIM, initializer, combiner="mean", learning_rate_fn=decay),
            "videos": tpu_embedding.TableConfig(
                1000, self.DIM, initializer, combiner="mean", learning_rate=0.1),
        }

    def features(self):
        return {
            "user": tpu_embedding.FeatureConfig("user_bias"),
            "author_bias": tpu_embedding.FeatureConfig("author_bias"),
            "author": tpu_embedding.FeatureConfig("authors"),
            "video": tpu_embedding.FeatureConfig("videos"),
            "history": tpu_embedding.FeatureConfig("authors", max_sequence_length=5),
        }

    def create_input_fn(self, mode):
        training = mode == tf.estimator.ModeKeys.TRAIN
        with np.load(os.path.join(FLAGS.data_dir, "feed.npz")) as file:
            part = slice(NUM_EVAL, None) if training else slice(NUM_EVAL)
            rows = {name: file[name][part] for name in file.files}

        def to_sparse(ids):
            where = tf.where(ids >= 0)
            return tf.SparseTensor(where, tf.gather_nd(ids, where),
                                   tf.shape(ids, out_type=tf.int64))

        def parse(rows):
            label = rows.pop("finished")
            rows["author_bias"] = rows["author"]
            features = {name: to_sparse(ids if name == "history" else ids[:, tf.newaxis])
                        for name, ids in rows.items()}
            return features, label

        def input_fn(params):
            dataset = tf.data.Dataset.from_tensor_slices(rows)
            if training:
                dataset = dataset.shuffle(20000, seed=0).repeat()
            return dataset.batch(params["batch_size"], drop_remainder=True).map(parse).prefetch(2)

        return input_fn

    def create_model_fn(self):
        def model_fn(features, labels, mode, params):
            history = features["history"]  # [batch, 5, dim], zeros where there is none
            attention = tf.nn.softmax(
                tf.reduce_sum(history * features["author"][:, tf.newaxis], axis=2), axis=1)
            taste = tf.reduce_sum(history * attention[:, :, tf.newaxis], axis=1)
            net = tf.concat([features["author"], features["video"], taste,
                             taste * features["author"]], axis=1)
            for size in self.params["layers"]:
                net = tf.layers.dense(net, size, tf.nn.relu)
            logits = (tf.layers.dense(net, 1) + features["user"] + features["author_bias"])[:, 0]
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(
                labels=labels, logits=logits))
            if mode == tf.estimator.ModeKeys.EVAL:
                return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(
                    lambda labels, logits: {"auc": tf.metrics.auc(labels, tf.sigmoid(logits))},
                    [labels, logits]))
            step = tf.train.get_global_step()
            optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdagradOptimizer(0.05))
            replicas = params["context"].num_replicas
            scalars = {"loss": loss, "replicas": tf.constant(float(replicas))}
            return tf.estimator.tpu.TPUEstimatorSpec(
                mode, loss=loss, train_op=optimizer.minimize(loss, step),
                host_call=(self.write_summaries, {
                    "step": tf.reshape(step, [1]),
                    **{name: tf.reshape(value, [1]) for name, value in scalars.items()}}))

        return model_fn

    def write_summaries(self, step, **scalars):
        """Runs on the host: every tensor has a value of each replica."""
        writer = tf2.summary.create_file_writer(os.path.join(FLAGS.model_dir, "host"))
        is_due = tf.equal(step[0] % FLAGS.summary_steps, 0)
        with writer.as_default(), tf2.summary.record_if(is_due):
            for name, value in scalars.items():
                tf2.summary.scalar(name, tf.reduce_mean(value), step=step[0])
            return tf.summary.all_v2_summary_ops()


def train_and_evaluate(task):
    estimator = tf.estimator.tpu.TPUEstimator(
        task.create_model_fn(), use_tpu=True, params=task.params,
        config=tf.estimator.tpu.RunConfig(
            cluster=tf.distribute.cluster_resolver.TPUClusterResolver(FLAGS.tpu),
            model_dir=FLAGS.model_dir, tf_random_seed=8,
            tpu_config=tf.estimator.tpu.TPUConfig(iterations_per_loop=FLAGS.summary_steps)),
        train_batch_size=FLAGS.global_batch_size, eval_batch_size=FLAGS.global_batch_size,
        embedding_config_spec=task.embedding_config_spec())
    modes = tf.estimator.ModeKeys
    estimator.train(task.create_input_fn(modes.TRAIN), max_steps=FLAGS.steps)
    metrics = estimator.evaluate(task.create_input_fn(modes.EVAL),
                                 steps=NUM_EVAL // FLAGS.global_batch_size)
    print("AUC", metrics["auc"])


def main(unused_argv):
    train_and_evaluate(VideoRanking({"layers": [32, 16], "warmup_steps": 20, "half_life": 200.0}))


if __name__ == "__main__":
    tf.disable_v2_behavior()
    logging.set_verbosity(logging.INFO)
    app.run(main)
