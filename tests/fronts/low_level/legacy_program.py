# SPDX-License-Identifier: Apache-2.0
"""A program of the kind that drove a TPU's embedding engine by hand, and an oracle beside it.

Everything that a program can do in its own order is an option: when variables are created,
how gradients are got, in how many sessions' runs a step happens.
"""

import numpy as np
import tensorflow as tf

from tests.batches import many_ids, one_id_each, with_holes
from tests.runners import assert_same_state, encode, state_of
from tests.spec import oracle
from tests.spec.optimizer_cases import CASES
from tpu_estimator_embedding.compat.modules import tpu_embedding, tpu_embedding_gradient

COMBINERS = {"words": "mean", "shops": "sum", "users": None}
DIMENSIONS = {"words": 4, "shops": 3, "users": 2}
VOCABULARIES = {"words": 11, "shops": 7, "users": 5}

FEATURES = [oracle.Feature("clicked", "words"), oracle.Feature("history", "words", 3),
            oracle.Feature("shown", "words"), oracle.Feature("shop", "shops"),
            oracle.Feature("user", "users")]
KINDS = {"clicked": "sparse", "history": "sparse", "shown": "sparse", "shop": "flat sparse",
         "user": "dense"}
RAGGED_KINDS = {name: "dense" if name == "user" else "ragged" for name in KINDS}
WEIGHTED = ("shown", "shop")

CLASSES = {"SGD": "StochasticGradientDescentParameters", "FTRL": "FtrlParameters"}
SLOT_FIELDS = {"accumulators": "accumulator", "momenta": "m", "velocities": "v",
               "linears": "linear"}


def parameters(optimizer: oracle.Optimizer):
    """The `*Parameters` of an optimizer; a rate that is a function stands in the table."""
    rate = 1.0 if callable(optimizer.learning_rate) else optimizer.learning_rate
    name = CLASSES.get(optimizer.kind, f"{optimizer.kind}Parameters")
    return getattr(tpu_embedding, name)(
        rate, **optimizer.hyperparameters, use_gradient_accumulation=optimizer.accumulate,
        clip_gradient_min=optimizer.gradient_limits[0],
        clip_gradient_max=optimizer.gradient_limits[1],
        clip_weight_min=optimizer.weight_limits[0], clip_weight_max=optimizer.weight_limits[1],
        weight_decay_factor=optimizer.decay,
        multiply_weight_decay_factor_by_learning_rate=(
            optimizer.multiply_decay_by_learning_rate))


def random_tables(rng, optimizers):
    """Tables of the oracle: table name -> optimizer, or one for all."""
    return [oracle.Table(name, rng.uniform(-1, 1, [VOCABULARIES[name], DIMENSIONS[name]]),
                         COMBINERS[name], optimizers[name] if isinstance(optimizers, dict)
                         else optimizers) for name in sorted(COMBINERS)]


def random_batch(rng, batch_size):
    """A batch of every feature, with duplicates, empty samples, weights and holes."""
    words = VOCABULARIES["words"]
    return {"clicked": many_ids(rng, batch_size, words, padded=True),
            "history": with_holes(rng, many_ids(rng, batch_size, words), last_position=5),
            "shown": many_ids(rng, batch_size, words, weighted=True),
            "shop": many_ids(rng, batch_size, VOCABULARIES["shops"], weighted=True),
            "user": one_id_each(rng, batch_size, VOCABULARIES["users"])}


def without_holes(batch):
    """The same ids at the first positions, which is all that ragged data can say."""
    return {name: [[entry._replace(position=k) for k, entry in enumerate(entries)]
                   for entries in samples] for name, samples in batch.items()}


class LegacyProgram:
    """A graph with the model of every core, and a session that runs it.

    Args:
        tables: of the oracle, which the engine's tables start from.
        batch_size: samples of all cores together.
        num_cores, num_hosts: as in DeviceConfig.
        dummies: whether gradients come through dummy variables.
        variables_first: whether variables are created before activations are asked for.
        mode, options: of the engine.
        kinds: feature name -> kind of its enqueued data.
        mode_override: of enqueue ops.
    """

    def __init__(self, tables, batch_size, *, num_cores=1, num_hosts=1, dummies=False,
                 variables_first=False, mode=tpu_embedding.TRAINING, kinds=None,
                 mode_override=None, **options):
        self.tables, self.num_cores, self.num_hosts = tables, num_cores, num_hosts
        self.kinds, self.dummies = kinds or KINDS, dummies
        self.strategy = options.get("partition_strategy", "div")
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.engine = self._engine(batch_size, mode, options)
            self.step = tf.compat.v1.train.create_global_step()
            if variables_first:
                self.variables = self.engine.create_variables_and_ops()
            self.enqueue = self._enqueue(mode_override)
            self._models(mode)
            if not variables_first:
                self.variables = self.engine.create_variables_and_ops()
            self._start()

    def _engine(self, batch_size, mode, options):
        is_training = mode == tpu_embedding.TRAINING
        return tpu_embedding.TPUEmbedding(
            {table.name: tpu_embedding.TableConfig(
                *table.values.shape, tf.compat.v1.zeros_initializer(), table.combiner,
                learning_rate_fn=self._rate(table) if is_training else None,
                optimization_parameters=parameters(table.optimizer) if is_training else None)
             for table in self.tables},
            {feature.name: tpu_embedding.FeatureConfig(feature.table, feature.length)
             for feature in FEATURES}, batch_size, mode,
            device_config=tpu_embedding.DeviceConfig(
                self.num_hosts, self.num_cores, "/job:localhost"), **options)

    @staticmethod
    def _rate(table):
        rate = table.optimizer.learning_rate
        return rate if callable(rate) else None

    def _enqueue(self, mode_override):
        self._placeholders, datas = [], []
        for _ in range(self.num_cores):
            self._placeholders.append({})
            datas.append({name: self._data(name, kind) for name, kind in self.kinds.items()})
        is_ragged = "ragged" in self.kinds.values()
        return self.engine.generate_enqueue_ops(datas, mode_override, is_ragged)

    def _data(self, name, kind):
        ids = tf.compat.v1.placeholder(tf.int64, [None])
        places = {"dense": None, "sparse": [None, 2]}.get(kind, [None])
        places = places and tf.compat.v1.placeholder(tf.int64, places)
        weights = tf.compat.v1.placeholder(tf.float32, [None]) if name in WEIGHTED else None
        self._placeholders[-1][name] = (ids, places, weights)
        is_ragged = "ragged" in self.kinds.values()
        kind = tpu_embedding.RaggedEnqueueData if is_ragged else tpu_embedding.EnqueueData
        return kind(ids, places, weights)

    def _models(self, mode):
        self.activations, self.gradients, self.sends, self.losses = [], [], [], []
        self.optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        self.dummy_init = tf.no_op()
        if self.dummies:
            self.dummy_variables, self.dummy_init = (
                tpu_embedding_gradient.create_dummy_table_variables(self.engine))
        for core in range(self.num_cores):
            activations = self.engine.get_activations()
            self.activations.append(activations)
            if mode == tpu_embedding.TRAINING:
                self._train(activations, counts=core == self.num_cores - 1)

    def _train(self, activations, counts):
        if self.dummies:
            activations = tpu_embedding_gradient.hook_dummy_table_variables_to_activations(
                self.engine, activations, self.dummy_variables)
        loss = self._tower(activations)
        train = self.optimizer.minimize(loss, self.step if counts else None)
        if self.dummies:
            gradients = tpu_embedding_gradient.get_gradients_through_dummy_table_variables(
                self.engine)
        else:
            gradients = tpu_embedding_gradient.get_gradients_through_compute_gradients(
                self.optimizer, loss, activations)
        send = self.engine.generate_send_gradients_op(gradients, self.step)
        self.gradients.append(gradients)
        self.sends.append(tf.group(send, train))
        self.losses.append(loss)

    def _tower(self, activations):
        with tf.compat.v1.variable_scope("tower", reuse=tf.compat.v1.AUTO_REUSE):
            flat = tf.concat([tf.reshape(activation, [activation.shape[0], -1])
                              for activation in activations.values()], 1)
            kernel = tf.compat.v1.get_variable(
                "kernel", [flat.shape[1], 2], use_resource=True,
                initializer=tf.compat.v1.random_uniform_initializer(-1, 1, seed=7))
            return tf.reduce_sum(tf.sin(3 * flat @ kernel))

    def _start(self):
        self.session = tf.compat.v1.Session(graph=self.graph)
        self.session.run([tf.compat.v1.global_variables_initializer(), self.dummy_init])
        self.write()
        self.session.run(self.variables.load_ops())

    def parts(self):
        """(table, slot) -> variables, the slots in the words of the oracle."""
        result = {}
        for table in self.tables:
            result[table.name, None] = self.variables.embedding_variables_by_table[table.name]
            slots = self.variables.slot_variables_by_table[table.name]
            for slot in table.slots if slots else ():
                result[table.name, slot] = getattr(slots, SLOT_FIELDS[slot])
        return result

    def write(self):
        """Sets the tables, and slots where there are any, to those of the oracle."""
        state = state_of(self.tables, self.num_hosts, self.strategy)
        with self.graph.as_default():
            for key, parts in self.parts().items():
                for part, value in zip(parts, state[key], strict=True):
                    self.session.run(part.assign(value, read_value=False))

    def feeds(self, batch):
        """What enqueues a batch: each core's share of the samples in turn."""
        result = {}
        for core, placeholders in enumerate(self._placeholders):
            for name, triple in placeholders.items():
                share = len(batch[name]) // self.num_cores
                samples = batch[name][core * share:(core + 1) * share]
                arrays = encode(samples, self.kinds[name], weighted=name in WEIGHTED)
                result.update({placeholder: array for placeholder, array in zip(
                    triple, arrays, strict=True) if placeholder is not None})
        return result

    def train(self, batch, run_once=True):
        """Runs a step; returns activations and gradients of all cores, as one batch."""
        if not run_once:
            self.session.run(self.enqueue, self.feeds(batch))
        activations, gradients, *_ = self.session.run(
            [self.activations, self.gradients, self.sends,
             self.enqueue if run_once else []], self.feeds(batch) if run_once else {})
        return joined(activations), joined(gradients)

    def lookup(self, batch):
        """Returns the activations of all cores, as one batch."""
        return joined(self.session.run(
            [self.activations, self.enqueue], self.feeds(batch))[0])

    def assert_state_is_the_oracles(self, rtol, atol):
        """Compares tables and slots."""
        expected = state_of(self.tables, self.num_hosts, self.strategy)
        actual = self.session.run(self.parts())
        assert_same_state(actual, {key: expected[key] for key in actual}, rtol, atol)


def joined(cores):
    return {name: np.concatenate([core[name] for core in cores]) for name in cores[0]}


def assert_activations(actual, expected, rtol, atol):
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        assert actual[name].shape == values.shape
        np.testing.assert_allclose(actual[name], values, rtol, atol, err_msg=name)


def train_beside_oracle(program, reference, batches, *, rtol, atol, run_once=True):
    """Trains both; compares activations, tables and slots in every step."""
    for step, batch in enumerate(batches):
        expected = reference.activations(batch)
        activations, gradients = program.train(batch, run_once)
        assert_activations(activations, expected, rtol, atol)
        reference.apply(batch, gradients, step)
        program.assert_state_is_the_oracles(rtol, atol)


SGD, ADAGRAD, ADAM = CASES["SGD"], CASES["Adagrad"], CASES["Adam"]
