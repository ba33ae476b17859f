# SPDX-License-Identifier: Apache-2.0
"""A linear model with every kind of feature, whose gradients are known.

    z = sum over features <activation, direction> + x · kernel,  loss = sum (z - y)² / 2

so that the gradient of an activation is (z - y) · direction, and the oracle can take the
steps of a whole program.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tests.batches import many_ids, one_id_each, with_holes
from tests.fronts.estimator.counting import TPUEstimatorSpec
from tests.spec import oracle

PADDING = -99
KERNEL_LEARNING_RATE = 0.01
X_SIZE = 2


class Table(NamedTuple):
    rows: int
    dim: int
    combiner: str | None


class Feature(NamedTuple):
    """`weights` is the key of the weights, `length` the maximal length of a sequence."""

    table: str
    kind: str = "sparse"
    length: int = 0
    weights: str | None = None


TABLES = {"A": Table(11, 3, "mean"), "R": Table(7, 2, "sum"), "D": Table(8, 2, "sqrtn"),
          "S": Table(9, 4, "sqrtn"), "W": Table(10, 3, "mean"), "Q": Table(8, 2, "sum"),
          "O": Table(6, 2, None)}
FEATURES = {"a": Feature("A"), "r": Feature("R", "ragged"), "d": Feature("D", "dense"),
            "b": Feature("S"), "c": Feature("S"), "w": Feature("W", weights="ww"),
            "s": Feature("Q", length=3), "o": Feature("O", "single")}


def random_samples(rng, name, batch_size):
    feature, rows = FEATURES[name], TABLES[FEATURES[name].table].rows
    if feature.kind == "single":
        return one_id_each(rng, batch_size, rows)
    if feature.kind == "dense":  # 0 is padding
        samples = many_ids(rng, batch_size, rows - 1)
        return [[entry._replace(id=entry.id + 1) for entry in entries] for entries in samples]
    samples = many_ids(rng, batch_size, rows, weighted=bool(feature.weights))
    return with_holes(rng, samples, 5) if feature.length else samples


class Data(NamedTuple):
    """Batches as the oracle takes them, with the dense features and labels of each."""

    batches: list
    xs: list
    ys: list

    def head(self, num_batches):
        return Data(*(part[:num_batches] for part in self))

    def tail(self, num_batches):
        return Data(*(part[num_batches:] for part in self))


def random_data(names, batch_sizes, seed=0):
    rng = np.random.default_rng(seed)
    return Data(
        [{name: random_samples(rng, name, size) for name in names} for size in batch_sizes],
        [rng.uniform(-1, 1, [size, X_SIZE]).astype(np.float32) for size in batch_sizes],
        [rng.uniform(-1, 1, [size]).astype(np.float32) for size in batch_sizes])


def to_dataset(data, batch_size):
    """Returns a dataset of `(features, labels)`; only the last batch may be smaller."""
    arrays = {"x": np.concatenate(data.xs)}
    for name in data.batches[0]:
        samples = [sample for batch in data.batches for sample in batch[name]]
        arrays[name] = _padded(samples, "id", PADDING, np.int64)
        if FEATURES[name].weights:
            arrays[FEATURES[name].weights] = _padded(samples, "weight", 0, np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((arrays, np.concatenate(data.ys)))
    return dataset.batch(batch_size).map(lambda arrays, y: (to_features(arrays), y))


def _padded(samples, field, padding, dtype):
    width = 1 + max(entry.position for entries in samples for entry in entries)
    array = np.full([len(samples), width], padding, dtype)
    for row, entries in enumerate(samples):
        for entry in entries:
            array[row, entry.position] = getattr(entry, field)
    return array


def to_features(arrays):
    features = {"x": arrays["x"]}
    for name in FEATURES.keys() & arrays.keys():
        features[name] = _to_ids(FEATURES[name].kind, arrays[name])
        if weights := FEATURES[name].weights:
            features[weights] = _to_sparse(arrays[weights], arrays[name])
    return features


def _to_ids(kind, ids):
    if kind == "single":
        return ids[:, 0]
    if kind == "dense":
        return tf.where(tf.equal(ids, PADDING), tf.zeros_like(ids), ids)
    sparse = _to_sparse(ids, ids)
    return tf.RaggedTensor.from_sparse(sparse) if kind == "ragged" else sparse


def _to_sparse(values, ids):
    places = tf.where(tf.not_equal(ids, PADDING))
    return tf.SparseTensor(places, tf.gather_nd(values, places), tf.shape(ids, tf.int64))


def direction(name):
    """`[dim]`, or `[length, dim]` for a sequence."""
    feature, dim = FEATURES[name], TABLES[FEATURES[name].table].dim
    shape = [feature.length, dim] if feature.length else [dim]
    return np.sin(1.0 + np.arange(np.prod(shape)) + ord(name)).reshape(shape)


def z_of(activations, x, kernel):
    total = tf.linalg.matvec(x, kernel)
    for name, activation in activations.items():
        product = activation * direction(name).astype(np.float32)
        total += tf.reduce_sum(product, axis=list(range(1, product.shape.rank)))
    return total


def new_model_fn(activations_of):
    """Returns a model_fn; `activations_of(features)` gives activations by feature name."""
    def model_fn(features, labels, mode, params):
        kernel = tf.compat.v1.get_variable(
            "kernel", [X_SIZE], initializer=tf.compat.v1.ones_initializer())
        z = z_of(activations_of(features), features["x"], kernel)
        if mode == "infer":
            return TPUEstimatorSpec(mode, predictions={"z": z})
        loss = tf.reduce_sum(tf.square(z - labels)) / 2
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(KERNEL_LEARNING_RATE)
        return TPUEstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(
            loss, global_step=tf.compat.v1.train.get_global_step()))
    return model_fn


class LinearOracle:
    """The same model in NumPy.

    Args:
        names: of the features.
        values: table name -> its initial rows.
        optimizer: of all tables.
    """

    def __init__(self, names, values, optimizer):
        self.tables = oracle.Oracle(
            [oracle.Table(name, rows, TABLES[name].combiner, optimizer)
             for name, rows in values.items()],
            [oracle.Feature(name, FEATURES[name].table, FEATURES[name].length)
             for name in names])
        self.kernel = np.ones(X_SIZE)

    def z(self, activations, x):
        products = [activation * direction(name) for name, activation in activations.items()]
        return x @ self.kernel + sum(
            product.sum(axis=tuple(range(1, product.ndim))) for product in products)

    def predict(self, data):
        return np.concatenate([self.z(self.tables.activations(batch), x)
                               for batch, x in zip(data.batches, data.xs, strict=True)])

    def train(self, data):
        def gradients_of(step, activations):
            residual = self.z(activations, data.xs[step]) - data.ys[step]
            self.kernel = self.kernel - KERNEL_LEARNING_RATE * data.xs[step].T @ residual
            return {name: np.multiply.outer(residual, direction(name)) for name in activations}

        oracle.train(self.tables, data.batches, gradients_of)
