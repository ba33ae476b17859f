# SPDX-License-Identifier: Apache-2.0
"""A program that drives the TPU by hand: it feeds, trains and collects in three graphs.

A batch is `{"ids": {feature: [batch]}, "x": [batch, 2], "y": [batch]}`. The model adds
all activations, and a dense layer, to a prediction; the loss is the mean of its squared error.
"""

import threading

import numpy as np
import tensorflow as tf
from tensorflow.python.tpu import tpu_feed, training_loop
from tensorflow.python.tpu.ops import tpu_ops

from tpu_estimator_embedding.compat.modules import tpu_embedding, tpu_embedding_gradient

v1 = tf.compat.v1

RATE = 0.05  # of the dense layer
DENSE = np.array([0.5, -0.25], np.float32)
FEATURES = {"title": "words", "text": "words", "shop": "shops"}


class Threads:
    """Threads whose first error is raised when all have ended."""

    def __init__(self, *functions):
        self._errors = []
        self._threads = [threading.Thread(target=self._run, args=[function], daemon=True)
                         for function in functions]

    def _run(self, function):
        try:
            function()
        except Exception as error:  # raised in `join`
            self._errors.append(error)

    def start(self):
        for thread in self._threads:
            thread.start()

    def join(self, seconds=60):
        for thread in self._threads:
            thread.join(seconds)
            assert not thread.is_alive()
        if self._errors:
            raise self._errors[0]


class HandDriven:
    """The program, with `cores` cores.

    Args:
        tables: table name -> `[rows, dim]` initial values.
        parameters: `*Parameters` of the tables.
        loop: "queue" passes the queue to a training loop, "body" dequeues in its body, "nested"
            does so in a loop within it, "while" in a `tf.while_loop`, "none" runs single steps.
        dummies: whether gradients are those of dummy variables.
        linear: whether the loss is the mean of the errors, and gradients of activations are sent
            as constants, which depend on no activation.
        sends_after: what gradients are sent after: "activations" and "train" for control
            dependencies, None.
        tables_last: whether the tables are created, and named, after the loops that use them.
        session_config: of the session that trains.
    """

    def __init__(self, tables, parameters, cores, batch_size, *, loop="body",
                 dummies=False, linear=False, sends_after=None, tables_last=False,
                 session_config=None, **options):
        self.cores, self.batch_size = cores, batch_size
        self.share = batch_size // cores
        self.dummies, self.loop = dummies, loop
        self.linear, self.sends_after = linear, sends_after
        self.engine = tpu_embedding.TPUEmbedding(
            {name: tpu_embedding.TableConfig(
                *values.shape, initializer=v1.constant_initializer(values), combiner="sum")
             for name, values in tables.items()},
            {name: tpu_embedding.FeatureConfig(table) for name, table in FEATURES.items()},
            batch_size, tpu_embedding.TRAINING, optimization_parameters=parameters,
            device_config=tpu_embedding.DeviceConfig(
                options.pop("num_hosts", 1), cores, "/job:localhost"), **options)
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.steps = v1.placeholder(tf.int32, [])
            if not tables_last:
                self.variables = self.engine.create_variables_and_ops()
            self.weights = v1.get_variable("dense", initializer=DENSE, use_resource=True)
            self.global_step = v1.train.get_or_create_global_step()
            if dummies:
                self.dummy_variables, initializer = (
                    tpu_embedding_gradient.create_dummy_table_variables(self.engine))
            self.trained = self.shard(self.train_step)
            self.evaluated = self.shard(self.evaluation_step)
            if tables_last:
                self.variables = self.engine.create_variables_and_ops(
                    {name: f"tower/{name}" for name in tables})
            self.retrieve = self.variables.retrieve_ops()
            self.session = v1.Session(config=session_config)
            self.session.run(v1.global_variables_initializer())
            if dummies:
                self.session.run(initializer)
            self.session.run(self.variables.load_ops())

    def shard(self, step):
        queue = self.new_queue()

        def fed_step(loss=None):
            return step(*queue.generate_dequeue_op())

        def repeated(loss=0.0):
            return training_loop.repeat(self.steps, fed_step, [loss])

        return v1.tpu.shard({
            "body": repeated,
            "queue": lambda: training_loop.repeat(
                self.steps, lambda loss, x, y: step(x, y), [0.0], queue),
            "nested": lambda: training_loop.repeat(1, repeated, [0.0]),
            "while": lambda: tf.while_loop(
                lambda number, loss: number < self.steps,
                lambda number, loss: (number + 1, fed_step()), [0, 0.0],
                parallel_iterations=1)[1],
            "none": fed_step}[self.loop], num_shards=self.cores)

    def new_queue(self):
        queue = tpu_feed.InfeedQueue(
            tuple_types=[tf.float32, tf.float32],
            tuple_shapes=[[self.batch_size, 2], [self.batch_size]])
        queue.set_number_of_shards(self.cores)
        return queue

    def model(self, x, y):
        activations = self.engine.get_activations()
        if self.dummies:
            activations = tpu_embedding_gradient.hook_dummy_table_variables_to_activations(
                self.engine, activations, self.dummy_variables)
        prediction = tf.add_n([tf.reduce_sum(value, 1) for value in activations.values()])
        prediction += tf.linalg.matvec(x, self.weights)
        errors = prediction - y
        return activations, prediction, tf.reduce_mean(
            errors if self.linear else tf.square(errors))

    def train_step(self, x, y):
        activations, prediction, loss = self.model(x, y)
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(RATE))
        if self.dummies:
            train = optimizer.minimize(loss, self.global_step)
            gradients = tpu_embedding_gradient.get_gradients_through_dummy_table_variables(
                self.engine)
        else:
            gradients = tpu_embedding_gradient.get_gradients_through_compute_gradients(
                optimizer, loss, activations)
            train = optimizer.minimize(loss, self.global_step, [self.weights])
        if self.linear:
            gradients = {feature: tf.fill(value.shape, 1 / self.batch_size)
                         for feature, value in activations.items()}
        with tf.control_dependencies({None: [], "activations": activations.values(),
                                      "train": [train]}[self.sends_after]):
            send = self.engine.generate_send_gradients_op(gradients, self.global_step)
        outfeed = tpu_ops.outfeed_enqueue_tuple([prediction])
        with tf.control_dependencies([train, send, outfeed]):
            return tf.identity(loss)

    def evaluation_step(self, x, y):
        _, prediction, loss = self.model(x, y)
        with tf.control_dependencies([tpu_ops.outfeed_enqueue(prediction)]):
            return tf.identity(loss)

    def train(self, batches):
        return self.run(self.trained, batches, None)

    def evaluate(self, batches):
        return self.run(self.evaluated, batches, "inference")

    def run(self, losses, batches, mode_override):
        """Returns `[cores]` last losses and `[steps, batch]` predictions."""
        runs = len(batches) if self.loop == "none" else 1
        predictions = []
        threads = Threads(lambda: self.feed(batches, mode_override),
                          lambda: predictions.extend(self.collect(len(batches))))
        threads.start()
        try:
            for _ in range(runs):
                [values] = self.session.run(losses, {self.steps: len(batches)},
                                            v1.RunOptions(timeout_in_ms=60_000))
        finally:
            threads.join()
        return values, np.array(predictions)

    def feed(self, batches, mode_override):
        with tf.Graph().as_default():
            ids = {name: v1.placeholder(tf.int64, [self.batch_size]) for name in FEATURES}
            x, y = v1.placeholder(tf.float32, [self.batch_size, 2]), v1.placeholder(
                tf.float32, [self.batch_size])
            infeed = self.new_queue().split_inputs_and_generate_enqueue_ops(
                [x, y], placement_function=lambda core: "",
                tpu_ordinal_function=lambda core: core)
            enqueue = self.enqueue_ids(ids, mode_override)
            with v1.Session(config=v1.ConfigProto(isolate_session_state=True)) as session:
                for batch in batches:
                    session.run([infeed, enqueue], {
                        x: batch["x"], y: batch["y"],
                        **{ids[name]: values for name, values in batch["ids"].items()}})

    def enqueue_ids(self, ids, mode_override):
        shares = {name: tf.split(values, self.cores) for name, values in ids.items()}
        rows = tf.range(self.share, dtype=tf.int64)
        places = tf.stack([rows, tf.zeros_like(rows)], 1)
        return self.engine.generate_enqueue_ops([
            {name: tpu_embedding.EnqueueData(of_cores[core], places)
             for name, of_cores in shares.items()} for core in range(self.cores)], mode_override)

    def collect(self, steps):
        with tf.Graph().as_default(), v1.Session() as session:
            outputs = [tpu_ops.outfeed_dequeue_tuple([tf.float32], [[self.share]], core)
                       for core in range(self.cores)]
            for _ in range(steps):
                yield np.concatenate([values for (values,) in session.run(outputs)])

    def tables(self):
        """Retrieves the tables; returns table name -> its parts."""
        self.session.run(self.retrieve)
        return self.session.run(self.variables.embedding_variables_by_table)
