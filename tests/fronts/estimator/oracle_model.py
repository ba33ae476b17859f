# SPDX-License-Identifier: Apache-2.0
"""A linear model over tables that each have an optimizer, and the same model in NumPy.

    p = sum over tables <activation, direction> + x · kernel,  loss = mean (p - y)² / 2

so that the gradient of an activation is (p - y) / batch size · direction.
"""

import copy

import numpy as np
import tensorflow as tf

from tests.batches import many_ids
from tests.fronts.estimator.counting import TPUEstimatorSpec
from tests.fronts.estimator.replica_model import cross_shard_sgd, minimize, uniform, v1
from tests.runners import to_parameters
from tests.spec import oracle
from tests.spec.oracle_optimizers import suffixes
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

ROWS, DIM, X_SIZE, KERNEL_RATE = 9, 2, 2, 0.5
COMBINERS = ["mean", "sum", "sqrtn"]


def rows_of(name):
    """A table called "small" has fewer rows than some numbers of hosts."""
    return 5 if name == "small" else ROWS


def dimension(optimizer):
    return 1 if optimizer.kind == "FrequencyEstimator" else DIM


def direction(index, size):
    return np.sin(1.0 + 3.0 * index + np.arange(size))


class Data:
    """Batches as the oracle takes them, and as an input_fn gives them."""

    def __init__(self, names, batch_sizes, seed=0):
        rng = np.random.default_rng(seed)
        self.sizes = batch_sizes
        self.batches = [{name: many_ids(rng, size, rows_of(name)) for name in names}
                        for size in batch_sizes]
        self.xs = [rng.uniform(-1, 1, [size, X_SIZE]).astype(np.float32) for size in batch_sizes]
        self.ys = [rng.uniform(-1, 1, size).astype(np.float32) for size in batch_sizes]

    def input_fn(self, params):
        arrays = {name: np.concatenate([padded(batch[name]) for batch in self.batches])
                  for name in self.batches[0]}
        arrays["x"] = np.concatenate(self.xs)
        dataset = tf.data.Dataset.from_tensor_slices((arrays, np.concatenate(self.ys)))
        return dataset.batch(params["batch_size"]).map(
            lambda arrays, y: ({name: values if name == "x" else sparse(values)
                                for name, values in arrays.items()}, y))


def padded(samples, width=4):
    ids = np.full([len(samples), width], -1, np.int64)
    for row, entries in enumerate(samples):
        ids[row, :len(entries)] = [entry.id for entry in entries]
    return ids


def sparse(ids):
    places = tf.where(ids >= 0)
    return tf.SparseTensor(places, tf.gather_nd(ids, places), tf.shape(ids, tf.int64))


class Model:
    """Tables, each with a feature of the same name.

    Args:
        optimizers: table name -> `oracle.Optimizer`. A learning rate that is a function
            must take tensors and numbers.
        multiplier: function of the step, or None.
    """

    def __init__(self, optimizers, multiplier=None):
        self.optimizers, self.multiplier = optimizers, multiplier
        self.directions = {name: direction(index, dimension(optimizer)) for index, (
            name, optimizer) in enumerate(optimizers.items())}
        self.combiners = {name: COMBINERS[index % 3] for index, name in enumerate(optimizers)}

    def spec(self, **options):
        tables = {name: TableConfig(
            rows_of(name), dimension(optimizer), uniform(seed), self.combiners[name],
            learning_rate_fn=optimizer.learning_rate if callable(optimizer.learning_rate)
            else None, optimization_parameters=to_parameters(optimizer))
            for seed, (name, optimizer) in enumerate(self.optimizers.items(), start=1)}
        return EmbeddingConfigSpec(
            table_to_config_dict=tables, experimental_gradient_multiplier_fn=self.multiplier,
            feature_to_config_dict={name: FeatureConfig(name) for name in tables}, **options)

    def model_fn(self, features, labels, mode, params):
        return self.estimator_spec({name: features[name] for name in self.directions},
                                   features["x"], labels, mode)

    def estimator_spec(self, activations, x, labels, mode):
        kernel = v1.get_variable("kernel", [X_SIZE], initializer=v1.ones_initializer())
        predictions = tf.linalg.matvec(x, kernel)
        for name, activation in activations.items():
            along = tf.constant(self.directions[name], tf.float32)
            predictions += tf.linalg.matvec(activation, along)
        if mode == "infer":
            return TPUEstimatorSpec(mode, predictions={"p": predictions})
        loss = tf.reduce_mean(tf.square(predictions - labels)) / 2
        train_op = minimize(loss, cross_shard_sgd(KERNEL_RATE)) if mode == "train" else None
        return TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    def names(self, table_names=None):
        """Returns (table, slot) -> variable; the slot of the table itself is None."""
        names = {}
        for name, optimizer in self.optimizers.items():
            variable = table_names[name] if table_names else name
            names[name, None] = variable
            for slot, suffix in suffixes(optimizer.kind).items():
                names[name, slot] = f"{variable}/{suffix}"
        return names


class ModelOracle:
    """The model in NumPy.

    Args:
        model: what to compute.
        first: (table, slot) -> values to start from, and "kernel".
        num_cores: replicas that share each batch.
        pipelined: whether activations come from the tables of two steps before.
    """

    def __init__(self, model, first, *, num_cores=1, pipelined=False):
        tables = []
        for name, optimizer in model.optimizers.items():
            table = oracle.Table(name, first[name, None], model.combiners[name], optimizer)
            table.slots = {slot: np.array(first[name, slot], np.float64) for slot in table.slots}
            tables.append(table)
        self.model, self.pipelined = model, pipelined
        self.kernel = np.array(first["kernel"], np.float64)
        self.now = oracle.Oracle(tables, [oracle.Feature(name, name) for name in model.optimizers],
                                 model.multiplier, num_cores)

    def predict(self, tables, batch, x):
        return x @ self.kernel + sum(
            activation @ self.model.directions[name]
            for name, activation in tables.activations(batch).items())

    def train(self, data, first_step=0):
        """Returns the values after every step, the state before the first one included."""
        history, states = [copy.deepcopy(self.now)], [self.state()]
        for step, (batch, x, y) in enumerate(zip(data.batches, data.xs, data.ys, strict=True)):
            seen = history[max(0, step - 1)] if self.pipelined else self.now
            residual = (self.predict(seen, batch, x) - y) / len(y)
            self.now.apply(batch, {name: np.multiply.outer(residual, along)
                                   for name, along in self.model.directions.items()},
                           first_step + step)
            self.kernel = self.kernel - KERNEL_RATE * x.T @ residual
            history.append(copy.deepcopy(self.now))
            states.append(self.state())
        return states

    def state(self):
        values = {"kernel": self.kernel.copy()}
        for name, table in self.now.tables.items():
            values[name, None] = table.values.copy()
            values.update({(name, slot): array.copy() for slot, array in table.slots.items()})
        return values


def states_of(of_step, model, table_names=None):
    """Returns what `Values` kept as `ModelOracle.train` returns it."""
    names = {**model.names(table_names), "kernel": "kernel"}
    return [{key: values[name] for key, name in names.items()} for values in of_step]


def assert_same_states(actual, expected, rtol=2e-5, atol=2e-6):
    assert len(actual) == len(expected)
    for step, (values, wanted) in enumerate(zip(actual, expected, strict=True)):
        assert values.keys() == wanted.keys()
        for key, array in wanted.items():
            np.testing.assert_allclose(values[key], array, rtol, atol,
                                       err_msg=f"{key} after step {step}")
