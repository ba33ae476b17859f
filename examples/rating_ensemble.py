# SPDX-License-Identifier: Apache-2.0
r"""Predicts ratings with an ensemble whose sub-networks train in parallel and independently.

Shows how a library for ensembles drives TPUEstimator: several sub-networks, each with its own
columns, loss and optimizer; dummy variables of the tables in every `var_list`, through which a
TPU gets the gradients of activations; mixture weights that are trained at the same time; and a
model_fn that wraps itself for inference on a TPU when it is exported.

    python examples/synthetic_data.py ratings /tmp/ratings
    tpu-estimator-embedding run examples/rating_ensemble.py --ratings=/tmp/ratings/ratings.npz \
        --model_dir=/tmp/ratings/ensemble --export_dir=/tmp/ratings/export
"""

import abc
import json

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags
from tensorflow.python.tpu import tpu_estimator

tf.disable_v2_behavior()

FLAGS = flags.FLAGS
flags.DEFINE_string("ratings", None, "npz of ratings.", required=True)
flags.DEFINE_string("model_dir", None, "Where to save.", required=True)
flags.DEFINE_string("export_dir", None, "Where to export.", required=True)
flags.DEFINE_string("tpu", None, "TPU.")
flags.DEFINE_integer("num_shards", 2, "TPU cores.")
flags.DEFINE_integer("train_steps", 400, "Steps.")
flags.DEFINE_integer("batch_size", 512, "Ratings in a step.")

USERS, MOVIES, TAGS, NUM_EVAL = 400, 300, 40, 4096
DUMMIES = "tpu_embedding_dummy_table_variables"  # the collection that a TPUEstimator fills


class Subnetwork(abc.ABC):
    """A separate model, with embedding columns that no other one has."""

    def __init__(self, name):
        self.name = name
        self.columns = self.make_columns()

    @abc.abstractmethod
    def make_columns(self):
        """Returns embedding columns; their features are named after the sub-network."""

    @abc.abstractmethod
    def rate(self, features):
        """Returns the ratings `[batch]`."""

    def column(self, feature, size, dimension, weights=None, **options):
        ids = tf.feature_column.categorical_column_with_identity(f"{self.name}_{feature}", size)
        if weights:
            ids = tf.feature_column.weighted_categorical_column(ids, f"{self.name}_{weights}")
        return tf.tpu.experimental.embedding_column(ids, dimension, **options)

    def activations(self, features):
        return [tf.feature_column.input_layer(features, [column]) for column in self.columns]

    def train_op(self, labels, ratings):
        """Trains what is in the scope of the sub-network, and its tables through the dummies."""
        own = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope=f"{self.name}/")
        optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.02))
        return optimizer.minimize(tf.losses.mean_squared_error(labels, ratings),
                                  var_list=own + tf.get_collection(DUMMIES))


class Biases(Subnetwork):
    def make_columns(self):
        zeros = tf.zeros_initializer()
        return [self.column("user", USERS, 1, initializer=zeros),
                self.column("movie", MOVIES, 1, initializer=zeros)]

    def rate(self, features):
        mean = tf.get_variable("mean", initializer=3.0)
        return mean + tf.add_n(self.activations(features))[:, 0]


class Factors(Subnetwork):
    def make_columns(self):
        normal = tf.truncated_normal_initializer(stddev=0.3)
        return [self.column("user", USERS, 4, initializer=normal),
                self.column("movie", MOVIES, 4, initializer=normal)]

    def rate(self, features):
        user, movie = self.activations(features)
        return tf.layers.dense(user * movie, 1, bias_initializer=tf.constant_initializer(3.0))[:, 0]


class WeightedTags(Subnetwork):
    def make_columns(self):
        return [self.column("tags", TAGS, 8, weights="weights", combiner="sum")]

    def rate(self, features):
        [tags] = self.activations(features)
        net = tf.layers.dense(tags, 16, tf.nn.relu)
        return tf.layers.dense(net, 1, bias_initializer=tf.constant_initializer(3.0))[:, 0]


SUBNETWORKS = (Biases("biases"), Factors("factors"), WeightedTags("tags"))


def mix(ratings):
    """Returns the ensemble's ratings: a weighted sum, of which only the weights learn."""
    with tf.variable_scope("ensemble"):
        weights = tf.get_variable("weights", [len(ratings)],
                                  initializer=tf.constant_initializer(1 / len(ratings)))
        bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
        parts = tf.stop_gradient(tf.stack(ratings, axis=1))
        return tf.reduce_sum(parts * weights, axis=1) + bias


def model_fn(features, labels, mode, config, params):
    modes = tf.estimator.ModeKeys
    if mode == modes.PREDICT and params["use_tpu"]:
        return tpu_estimator.model_fn_inference_on_tpu(
            model_fn, features, labels, config, {**params, "use_tpu": False})
    ratings = {}
    for subnetwork in SUBNETWORKS:
        with tf.variable_scope(subnetwork.name):
            ratings[subnetwork.name] = subnetwork.rate(features)
    ratings["ensemble"] = mix(list(ratings.values()))
    if mode == modes.PREDICT:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, predictions=ratings, export_outputs={
            "serving_default": tf.estimator.export.PredictOutput(ratings)})
    loss = tf.losses.mean_squared_error(labels, ratings["ensemble"])
    if mode == modes.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=(
            rmse_of_each, {"labels": labels, **ratings}))
    train_ops = [subnetwork.train_op(labels, ratings[subnetwork.name])
                 for subnetwork in SUBNETWORKS]
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.02))
    train_ops.append(optimizer.minimize(
        loss, tf.train.get_global_step(),
        var_list=tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope="ensemble/")))
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=tf.group(*train_ops))


def rmse_of_each(labels, **ratings):
    return {name: tf.metrics.root_mean_squared_error(labels, rating)
            for name, rating in ratings.items()}


def with_copies(user, movie, tags, weights):
    """Returns the features of each sub-network under its own names."""
    return {"biases_user": user, "factors_user": user, "biases_movie": movie,
            "factors_movie": movie, "tags_tags": tags, "tags_weights": weights}


def create_input_fn(part, repeat):
    with np.load(FLAGS.ratings) as file:
        rows = {name: file[name][part] for name in ("user", "movie", "tags", "tag_weights",
                                                    "rating")}

    def parse(rows):
        tags, weights = (with_places(rows["tags"] >= 0, rows[name])
                         for name in ("tags", "tag_weights"))
        user, movie = (with_places(tf.ones_like(ids, tf.bool), ids)
                       for ids in (rows["user"][:, tf.newaxis], rows["movie"][:, tf.newaxis]))
        return with_copies(user, movie, tags, weights), rows["rating"]

    def with_places(is_given, values):
        where = tf.where(is_given)
        return tf.SparseTensor(where, tf.gather_nd(values, where),
                               tf.shape(values, out_type=tf.int64))

    def input_fn(params):
        dataset = tf.data.Dataset.from_tensor_slices(rows)
        if repeat:
            dataset = dataset.shuffle(10000, seed=0).repeat()
        return dataset.batch(params["batch_size"], drop_remainder=True).map(parse).prefetch(2)

    return input_fn


def receive():
    """Takes the rows of a client: sparse placeholders under the names of the features."""
    user, movie, tags = (tf.sparse_placeholder(tf.int64, [None, None], name)
                         for name in ("user", "movie", "tags"))
    weights = tf.sparse_placeholder(tf.float32, [None, None], "weights")
    return tf.estimator.export.ServingInputReceiver(
        with_copies(user, movie, tags, weights),
        {"user": user, "movie": movie, "tags": tags, "weights": weights})


def main(unused_argv):
    columns = [column for subnetwork in SUBNETWORKS for column in subnetwork.columns]
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, use_tpu=True, config=tf.estimator.tpu.RunConfig(
            cluster=tf.distribute.cluster_resolver.TPUClusterResolver(FLAGS.tpu),
            model_dir=FLAGS.model_dir, tf_random_seed=1,
            tpu_config=tf.estimator.tpu.TPUConfig(
                iterations_per_loop=100, num_shards=FLAGS.num_shards)),
        train_batch_size=FLAGS.batch_size, eval_batch_size=FLAGS.batch_size,
        predict_batch_size=FLAGS.batch_size,
        embedding_config_spec=tf.estimator.tpu.experimental.EmbeddingConfigSpec(
            feature_columns=columns,
            optimization_parameters=tf.tpu.experimental.AdagradParameters(0.5)),
        export_saved_model_api_version=tpu_estimator.ExportSavedModelApiVersion.V2)
    estimator.train(create_input_fn(slice(NUM_EVAL, None), repeat=True),
                    max_steps=FLAGS.train_steps)
    metrics = estimator.evaluate(create_input_fn(slice(NUM_EVAL), repeat=False),
                                 steps=NUM_EVAL // FLAGS.batch_size)
    names = [subnetwork.name for subnetwork in SUBNETWORKS]
    print(json.dumps({name: float(metrics[name]) for name in [*names, "ensemble"]}))
    estimator.export_saved_model(FLAGS.export_dir, receive)


if __name__ == "__main__":
    app.run(main)
