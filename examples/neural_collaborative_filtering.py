# SPDX-License-Identifier: Apache-2.0
r"""Recommends items by neural collaborative filtering; evaluates hit rate and NDCG in rounds.

Shows input in batches that the program itself makes, one per step; rounds of training and
evaluation until the hit rate is reached; an evaluation that ranks one held-out item of each
user among sampled ones, with metrics over whole batches; PER_HOST_V2 input on 2 shards.

    python examples/synthetic_data.py interactions /tmp/interactions
    tpu-estimator-embedding run examples/neural_collaborative_filtering.py \
        --data_dir=/tmp/interactions --model_dir=/tmp/interactions/model
"""

import json
import os

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags, logging

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Where interactions.npz is.", required=True)
flags.DEFINE_string("model_dir", None, "Where checkpoints go.", required=True)
flags.DEFINE_string("tpu", "", "The TPU.")
flags.DEFINE_integer("num_shards", 2, "Cores of the TPU.")
flags.DEFINE_integer("batch_size", 512, "Samples of a training step, negatives among them.")
flags.DEFINE_integer("rounds", 8, "Rounds of training and evaluation, at most.")
flags.DEFINE_float("hit_rate_to_reach", 0.8, "Where training ends.")
flags.DEFINE_integer("negatives", 4, "Sampled items for each one that was chosen.")

NUM_ITEMS, EVAL_NEGATIVES, TOP = 200, 31, 5
GMF_DIM, MLP_DIM, LAYERS = 8, 16, (32, 16)


class Interactions:
    """Samples of users and items, in batches."""

    def __init__(self, path, seed):
        with np.load(path) as file:
            self._items = file["items"]
        self._random = np.random.default_rng(seed)
        self.num_users = len(self._items)

    def training_batches(self):
        """Returns users, items and labels, `[steps, batch]` each, for one round."""
        users, chosen = np.indices(self._items[:, 1:].shape)[0].ravel(), self._items[:, 1:].ravel()
        users = np.tile(users, 1 + FLAGS.negatives)
        sampled = self._random.integers(0, NUM_ITEMS, chosen.size * FLAGS.negatives)
        items = np.concatenate([chosen, sampled])
        labels = np.repeat([1.0, 0.0], [chosen.size, sampled.size]).astype(np.float32)
        order = self._random.permutation(users.size)[:users.size // FLAGS.batch_size
                                                     * FLAGS.batch_size]
        return [values[order].reshape(-1, FLAGS.batch_size) for values in (users, items, labels)]

    def evaluation_batches(self, batch_size):
        """Returns users and items; of every 1 + EVAL_NEGATIVES, the first item was chosen."""
        users = np.repeat(np.arange(self.num_users), 1 + EVAL_NEGATIVES)
        items = self._random.integers(0, NUM_ITEMS, [self.num_users, 1 + EVAL_NEGATIVES])
        items[:, 0] = self._items[:, 0]
        return [values.reshape(-1, batch_size) for values in (users, items.ravel())]


def train_input_fn_of(interactions):
    users, items, labels = interactions.training_batches()

    def input_fn(params):
        # A batch is for all shards; the program that made it knows its size.
        per_shard = params["batch_size"]
        dataset = tf.data.Dataset.from_tensor_slices(
            ({"user": users, "item": items}, labels))
        dataset = dataset.flat_map(lambda features, labels: tf.data.Dataset.from_tensor_slices(
            (tf.nest.map_structure(lambda ids: tf.reshape(ids, [-1, per_shard]), features),
             tf.reshape(labels, [-1, per_shard, 1]))))
        return dataset.repeat().prefetch(4)

    return input_fn, len(users)


def eval_input_fn_of(interactions, batch_size):
    users, items = interactions.evaluation_batches(batch_size)

    def input_fn(params):
        per_shard = params["batch_size"]
        return tf.data.Dataset.from_tensor_slices(
            {name: ids.reshape(-1, per_shard) for name, ids in (("user", users), ("item", items))})

    return input_fn, len(users)


def columns():
    def column(name, size, dimension):
        return tf.tpu.experimental.embedding_column(
            tf.feature_column.categorical_column_with_identity(name, size), dimension,
            combiner=None, initializer=tf.random_normal_initializer(stddev=0.05))

    dimension = GMF_DIM + MLP_DIM
    return {"user": column("user", 320, dimension), "item": column("item", NUM_ITEMS, dimension)}


def logits_of(features, params):
    user, item = (tf.feature_column.input_layer(features, [params["columns"][name]])
                  for name in ("user", "item"))
    gmf = user[:, :GMF_DIM] * item[:, :GMF_DIM]
    mlp = tf.concat([user[:, GMF_DIM:], item[:, GMF_DIM:]], axis=1)
    for size in LAYERS:
        mlp = tf.layers.dense(mlp, size, tf.nn.relu)
    return tf.layers.dense(tf.concat([gmf, mlp], axis=1), 1, name="logits")


def ranking_metrics(logits):
    """Hit rate and NDCG of the first item of each group, by its place among the others."""
    scores = tf.reshape(logits, [-1, 1 + EVAL_NEGATIVES])
    place = tf.reduce_sum(tf.cast(scores[:, 1:] >= scores[:, :1], tf.float32), axis=1)
    hit = tf.cast(place < TOP, tf.float32)
    return {"hit_rate": tf.metrics.mean(hit),
            "ndcg": tf.metrics.mean(hit * np.log(2.0) / tf.math.log(place + 2.0))}


def model_fn(features, labels, mode, params):
    logits = logits_of(features, params)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.tpu.TPUEstimatorSpec(
            mode, loss=tf.constant(0.0), eval_metrics=(ranking_metrics, [logits]))
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.005))
    return tf.estimator.tpu.TPUEstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, tf.train.get_global_step()))


def main(unused_argv):
    interactions = Interactions(os.path.join(FLAGS.data_dir, "interactions.npz"), seed=1)
    eval_batch_size = interactions.num_users * (1 + EVAL_NEGATIVES) // 5
    embedding_columns = columns()
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, params={"columns": embedding_columns}, use_tpu=True,
        config=tf.estimator.tpu.RunConfig(
            cluster=tf.distribute.cluster_resolver.TPUClusterResolver(FLAGS.tpu),
            model_dir=FLAGS.model_dir, tf_random_seed=4,
            tpu_config=tf.estimator.tpu.TPUConfig(
                iterations_per_loop=50, num_shards=FLAGS.num_shards,
                per_host_input_for_training=tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2)),
        train_batch_size=FLAGS.batch_size, eval_batch_size=eval_batch_size,
        embedding_config_spec=tf.estimator.tpu.experimental.EmbeddingConfigSpec(
            feature_columns=list(embedding_columns.values()),
            optimization_parameters=tf.tpu.experimental.AdamParameters(0.005)))

    history = []
    for cycle in range(FLAGS.rounds):
        train_input_fn, steps = train_input_fn_of(interactions)
        estimator.train(train_input_fn, steps=steps)
        eval_input_fn, eval_steps = eval_input_fn_of(interactions, eval_batch_size)
        metrics = estimator.evaluate(eval_input_fn, steps=eval_steps)
        logging.info("Round %d: hit rate %.3f, NDCG %.3f", cycle, metrics["hit_rate"],
                     metrics["ndcg"])
        history.append({name: float(metrics[name])
                        for name in ("hit_rate", "ndcg", "global_step")})
        if metrics["hit_rate"] >= FLAGS.hit_rate_to_reach:
            break
    print(json.dumps(history))


if __name__ == "__main__":
    tf.disable_v2_behavior()
    logging.set_verbosity(logging.INFO)
    app.run(main)
