# SPDX-License-Identifier: Apache-2.0
r"""Click-through rates by a DLRM that drives the TPU by hand: without an Estimator, in threads.

A thread with its own graph and session feeds numbers and small categories by the infeed, and
the ids of large tables by integer batches. The main thread runs loops of training and evaluation
steps on all cores; another thread takes predictions from the outfeed and computes the AUC. A
learning rate with warm-up and polynomial decay is that of the dense part and of the tables. Each
round ends with a checkpoint, from which the next start goes on.

    python examples/synthetic_data.py impressions /tmp/impressions
    tpu-estimator-embedding run --cores 2 examples/hand_driven_dlrm.py \
        --data_dir=/tmp/impressions --model_dir=/tmp/impressions/model
"""

import concurrent.futures
import json
import os
import threading

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags, logging
from tensorflow.python.tpu import (
    device_assignment,
    tpu_embedding,
    tpu_embedding_gradient,
    tpu_feed,
    training_loop,
)
from tensorflow.python.tpu.ops import tpu_ops

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Where train.npz and eval.npz are.", required=True)
flags.DEFINE_string("model_dir", None, "Where checkpoints go.", required=True)
flags.DEFINE_string("master", "", "The TPU.")
flags.DEFINE_integer("batch_size", 512, "Samples of a step on all cores.")
flags.DEFINE_integer("train_steps", 300, "Steps of training.")
flags.DEFINE_integer("steps_per_round", 100, "Steps between evaluations; each has a checkpoint.")
flags.DEFINE_integer("dim", 16, "Width of embeddings.")
flags.DEFINE_integer("small_table", 200, "Tables of at most so many rows belong to the dense part.")
flags.DEFINE_list("bottom_mlp", ["64", "16"], "Layers for the numbers; the last is as wide as dim.")
flags.DEFINE_list("top_mlp", ["64", "32"], "Layers for the interactions, before the log odds.")
flags.DEFINE_float("learning_rate", 0.05, "After the warm-up.")
flags.DEFINE_integer("warmup_steps", 30, "Steps of the linear warm-up.")
flags.DEFINE_integer("decay_start", 150, "Step at which the polynomial decay starts.")
flags.DEFINE_bool("bfloat16_sums", True, "Add dense gradients of the cores as bfloat16.")


class Impressions:
    """The samples of a file, in batches."""

    def __init__(self, path):
        with np.load(path) as file:
            self.sizes = file["sizes"].tolist()
            self._numbers = np.log(file["numbers"])
            self._categories, self._clicked = file["categories"], file["clicked"]
        self.num_batches = len(self._clicked) // FLAGS.batch_size
        self.small = [kind for kind, size in enumerate(self.sizes) if size <= FLAGS.small_table]
        self.large = [kind for kind, size in enumerate(self.sizes) if size > FLAGS.small_table]

    def batch(self, step):
        """Returns what goes to the infeed, and the ids of each large table."""
        start = step % self.num_batches * FLAGS.batch_size
        rows = slice(start, start + FLAGS.batch_size)
        categories = self._categories[rows]
        return ([self._numbers[rows], categories[:, self.small], self._clicked[rows]],
                [categories[:, kind] for kind in self.large])


def learning_rate(step):
    step = tf.cast(step, tf.float32)
    warmup = FLAGS.learning_rate * (step + 1) / FLAGS.warmup_steps
    decayed = tf.train.polynomial_decay(
        FLAGS.learning_rate, tf.maximum(step - FLAGS.decay_start, 0),
        max(1, FLAGS.train_steps - FLAGS.decay_start), FLAGS.learning_rate / 10, power=2)
    return tf.where(step < FLAGS.warmup_steps, warmup, decayed)


def table_name(kind):
    return f"category_{kind:02}"  # integer batches list tables in the order of names


def build_tables(data):
    tables = {table_name(kind): tpu_embedding.TableConfig(
        data.sizes[kind], FLAGS.dim, combiner=None, learning_rate_fn=learning_rate,
        initializer=tf.random_uniform_initializer(-0.05, 0.05, seed=kind))
        for kind in data.large}
    return tpu_embedding.TPUEmbedding(
        tables, {name: tpu_embedding.FeatureConfig(name) for name in tables}, FLAGS.batch_size,
        tpu_embedding.TRAINING, FLAGS.master,
        tpu_embedding.AdagradParameters(learning_rate=FLAGS.learning_rate))


def dense(values, units, name, activation=tf.nn.relu):
    with tf.variable_scope(name):
        width = values.shape.as_list()[-1]
        kernel = tf.get_variable("kernel", [width, units], initializer=tf.random_normal_initializer(
            stddev=(2 / (width + units)) ** 0.5, seed=width + units))
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
        return activation(values @ kernel + bias)


def model(data, numbers, categories, activations):
    """Returns the log odds `[batch]`."""
    with tf.variable_scope("dense", reuse=tf.AUTO_REUSE, use_resource=True):
        for layer, units in enumerate(FLAGS.bottom_mlp):
            numbers = dense(numbers, int(units), f"bottom_{layer}")
        vectors = [numbers, *activations.values()]
        for column, kind in enumerate(data.small):
            table = tf.get_variable(
                table_name(kind), [data.sizes[kind], FLAGS.dim],
                initializer=tf.random_uniform_initializer(-0.05, 0.05, seed=kind))
            vectors.append(tf.one_hot(categories[:, column], data.sizes[kind]) @ table)
        stacked = tf.stack(vectors, axis=1)
        products = tf.reshape(tf.matmul(stacked, stacked, transpose_b=True),
                              [-1, len(vectors) ** 2])
        pairs = np.flatnonzero(np.tri(len(vectors), k=-1))
        # What the products of pairs lack: how much each vector counts by itself.
        top = tf.concat([tf.gather(products, pairs, axis=1), *vectors], axis=1)
        for layer, units in enumerate(FLAGS.top_mlp):
            top = dense(top, int(units), f"top_{layer}")
        return dense(top, 1, "log_odds", tf.identity)[:, 0]


class Dlrm:
    """The graph that runs on the TPU, and its session."""

    def __init__(self, data, tables, assignment):
        self._data, self._tables, self._assignment = data, tables, assignment
        self._cores = tables.num_cores
        self._graph = tf.Graph()
        with self._graph.as_default():
            tf.set_random_seed(1)
            self._variables = tables.create_variables_and_ops()
            self._step = tf.train.get_or_create_global_step()
            self._num_steps = tf.placeholder(tf.int32, [])
            self._train = self._on_all_cores(self._train_step)
            self._evaluate = self._on_all_cores(self._evaluation_step)
            self._load, self._retrieve = self._variables.load_ops(), self._variables.retrieve_ops()
            self._saver = tf.train.Saver(max_to_keep=3)
            self._session = tf.Session(FLAGS.master)
            self._start()

    def _start(self):
        checkpoint = tf.train.latest_checkpoint(FLAGS.model_dir)
        if checkpoint:
            self._saver.restore(self._session, checkpoint)
        else:
            self._session.run(tf.global_variables_initializer())
        self._session.run(self._load)
        logging.info("Starts at step %d", self.step)

    @property
    def step(self):
        return int(self._session.run(self._step))

    def _on_all_cores(self, step):
        def loop():
            return training_loop.repeat(
                self._num_steps,
                lambda total: total + step(*infeed_of(self._data, self._cores)
                                           .generate_dequeue_op()),
                [tf.constant(0.0)])

        [totals] = tf.tpu.shard(loop, num_shards=self._cores, device_assignment=self._assignment)
        return tf.reduce_mean(totals)

    def _loss(self, numbers, categories, clicked):
        activations = self._tables.get_activations()
        log_odds = model(self._data, numbers, categories, activations)
        return activations, log_odds, tf.reduce_mean(
            tf.nn.sigmoid_cross_entropy_with_logits(labels=clicked, logits=log_odds))

    def _train_step(self, *fed):
        activations, _, loss = self._loss(*fed)
        step = tf.identity(self._step)
        sgd = tf.train.MomentumOptimizer(learning_rate(step), 0.9)
        optimizer = tf.tpu.CrossShardOptimizer(sgd)
        gradients = tpu_embedding_gradient.get_gradients_through_compute_gradients(
            optimizer, loss, activations)
        of_weights = optimizer.compute_gradients(loss, tf.trainable_variables("dense"))
        if FLAGS.bfloat16_sums:
            of_weights = [(tf.cast(tpu_ops.cross_replica_sum(tf.cast(gradient, tf.bfloat16)),
                                   tf.float32), weight) for gradient, weight in of_weights]
            optimizer = sgd
        send = self._tables.generate_send_gradients_op(gradients, step)
        with tf.control_dependencies([step]):
            train = optimizer.apply_gradients(of_weights, self._step)
        with tf.control_dependencies([train, send]):
            return tf.identity(loss)

    def _evaluation_step(self, numbers, categories, clicked):
        _, log_odds, loss = self._loss(numbers, categories, clicked)
        with tf.control_dependencies([tpu_ops.outfeed_enqueue_tuple([log_odds, clicked])]):
            return tf.identity(loss)

    def train(self, steps):
        """Returns the mean loss of the steps."""
        return self._session.run(self._train, {self._num_steps: steps}) / steps

    def evaluate(self, steps):
        return self._session.run(self._evaluate, {self._num_steps: steps}) / steps

    def save(self):
        self._session.run(self._retrieve)
        with self._graph.as_default():
            self._saver.save(self._session, os.path.join(FLAGS.model_dir, "model.ckpt"), self.step)


def infeed_of(data, cores):
    queue = tpu_feed.InfeedQueue(
        tuple_types=[tf.float32, tf.int32, tf.float32],
        tuple_shapes=[[FLAGS.batch_size, 13], [FLAGS.batch_size, len(data.small)],
                      [FLAGS.batch_size]])
    queue.set_number_of_shards(cores)
    return queue


def feed(rounds, tables, assignment, train_data, eval_data):
    """Enqueues all batches: in each round those of training, then those of evaluation."""
    cores = tables.num_cores
    with tf.Graph().as_default():
        inputs = [tf.placeholder(tf.float32, [FLAGS.batch_size, 13]),
                  tf.placeholder(tf.int32, [FLAGS.batch_size, len(train_data.small)]),
                  tf.placeholder(tf.float32, [FLAGS.batch_size])]
        ids = [tf.placeholder(tf.int32, [FLAGS.batch_size]) for _ in train_data.large]
        infeed = infeed_of(train_data, cores).split_inputs_and_generate_enqueue_ops(
            inputs, placement_function=lambda core: assignment.host_device(replica=core),
            tpu_ordinal_function=lambda core: assignment.tpu_ordinal(replica=core))

        def enqueue_ids(mode):
            enqueue_ops = []
            for core in range(cores):
                with tf.device(assignment.host_device(replica=core)):
                    enqueue_ops.append(tpu_ops.enqueue_tpu_embedding_integer_batch(
                        [tf.split(values, cores)[core] for values in ids],
                        assignment.tpu_ordinal(replica=core), mode_override=mode))
            return enqueue_ops

        train, evaluate = enqueue_ids("unspecified"), enqueue_ids("inference")
        config = tf.ConfigProto(isolate_session_state=True)
        with tf.Session(FLAGS.master, config=config) as session:
            def run(enqueue, batch):
                values, of_tables = batch
                session.run([infeed, enqueue], dict(zip(
                    inputs + ids, values + of_tables, strict=True)))

            for steps in rounds:
                for step in steps:
                    run(train, train_data.batch(step))
                for step in range(eval_data.num_batches):
                    run(evaluate, eval_data.batch(step))


def collect(steps, cores):
    """Takes the predictions of an evaluation from the outfeed; returns their AUC."""
    with tf.Graph().as_default(), tf.Session(FLAGS.master) as session:
        share = [FLAGS.batch_size // cores]
        dequeue = [tpu_ops.outfeed_dequeue_tuple([tf.float32] * 2, [share] * 2, core)
                   for core in range(cores)]
        found = [output for _ in range(steps) for output in session.run(dequeue)]
    log_odds, clicked = (np.concatenate(values) for values in zip(*found, strict=True))
    ranks = np.argsort(np.argsort(log_odds))
    positive = clicked.sum()
    return float((ranks[clicked == 1].sum() - positive * (positive - 1) / 2)
                 / (positive * (clicked.size - positive)))


def in_background(function, *arguments):
    """Calls a function in a thread that ends with the program; returns the Future of its result."""
    future = concurrent.futures.Future()

    def call():
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=call, name=function.__name__, daemon=True).start()
    return future


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"Unknown arguments {argv[1:]}")
    train_data, eval_data = (Impressions(os.path.join(FLAGS.data_dir, f"{name}.npz"))
                             for name in ("train", "eval"))
    tables = build_tables(train_data)
    with tf.Graph().as_default(), tf.Session(FLAGS.master) as session:
        topology = session.run(tf.tpu.initialize_system(embedding_config=tables.config_proto))
    assignment = device_assignment.device_assignment(topology, num_replicas=tables.num_cores)
    dlrm = Dlrm(train_data, tables, assignment)

    rounds = [range(start, min(start + FLAGS.steps_per_round, FLAGS.train_steps))
              for start in range(dlrm.step, FLAGS.train_steps, FLAGS.steps_per_round)]
    fed = in_background(feed, rounds, tables, assignment, train_data, eval_data)
    for steps in rounds:
        loss = dlrm.train(len(steps))
        auc = in_background(collect, eval_data.num_batches, tables.num_cores)
        eval_loss = dlrm.evaluate(eval_data.num_batches)
        dlrm.save()
        print(json.dumps({"step": dlrm.step, "loss": float(loss), "auc": auc.result(),
                          "eval_loss": float(eval_loss)}), flush=True)
    fed.result()


if __name__ == "__main__":
    app.run(main)
