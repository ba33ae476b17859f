# SPDX-License-Identifier: Apache-2.0
"""The TF2 classes of this package: lookups and updates with given gradients, without a model."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks.baselines.graph_inputs import (
    feature,
    flat_dataset,
    limit_threads,
    table_name,
)
from benchmarks.baselines.stepping import timed_steps
from benchmarks.batches import Batch, make_gradients
from benchmarks.workloads import (
    INITIAL_ACCUMULATOR,
    INITIAL_VALUE,
    LEARNING_RATE,
    Workload,
)
from tpu_estimator_embedding import mid_level
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class

_STEPS_PER_EXECUTION = 5
Features = Mapping[str, Any]  # feature name -> tensor


class Baseline:
    """One of the classes, in a `tf.function` or in `fit`."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], kind: str,
                 threads: int = 0):
        limit_threads(threads)
        self._configs = _features(workload)
        optimizer = mid_level.Adagrad(LEARNING_RATE, INITIAL_ACCUMULATOR)
        self._embedding = _CLASSES[kind](self._configs, optimizer)
        gradients = {feature(table): tf.Variable(gradient, trainable=False)
                     for table, gradient in enumerate(make_gradients(workload))}
        self._run = (_fit if kind == "layer" else _call)(self._embedding, gradients, batches)
        self.description = load.description()

    def run(self, first: int, count: int) -> float:
        """Runs `count` steps; returns their duration in seconds."""
        return self._run(first, count)

    def tables(self) -> list[np.ndarray]:
        """Returns the tables, in the order of the workload."""
        return [self._embedding.embedding_tables[self._configs[name].table].numpy()
                for name in sorted(self._configs)]

    def close(self) -> None:
        """Frees the tables."""
        self._embedding = self._run = None


def _features(workload: Workload) -> dict[str, mid_level.FeatureConfig]:
    return {feature(table): mid_level.FeatureConfig(
        mid_level.TableConfig(
            workload.rows, workload.dim, tf.constant_initializer(INITIAL_VALUE),
            combiner=workload.combiner(table), name=table_name(table)),
        output_shape=[workload.batch_size]) for table in range(workload.num_tables)}


def _to_features(inputs: Sequence[tuple[tf.Tensor, tf.Tensor]]) -> Features:
    return {feature(table): tf.RaggedTensor.from_row_splits(ids, splits, validate=False)
            for table, (ids, splits) in enumerate(inputs)}


def _call(embedding: Any, gradients: Mapping[str, tf.Variable],
          batches: Sequence[Batch]) -> Callable[[int, int], float]:
    inputs = iter(flat_dataset(batches))

    @tf.function
    def train():
        features = _to_features(next(inputs))
        values = {name: gradient.read_value() for name, gradient in gradients.items()}
        if isinstance(embedding, mid_level.TPUEmbeddingV2):
            _, preserved = embedding(features)
            embedding.apply_gradients(values, preserved)
        else:
            embedding.enqueue(features)
            embedding.dequeue()
            embedding.apply_gradients(values)

    return lambda first, count: timed_steps(lambda _: train(), first, count, len(batches))


class _Model(tf_keras.Model):
    """A model with loss 0 and given gradients of the activations."""

    def __init__(self, layer: Any, gradients: Mapping[str, tf.Variable]):
        super().__init__()
        self._layer, self._gradients = layer, dict(gradients)

    def call(self, inputs, training=None):
        activations = self._layer(_to_features(inputs), training=training)

        @tf.custom_gradient
        def loss(*flat):
            return tf.zeros([]), lambda _: [self._gradients[name].read_value()
                                            for name in activations]
        self.add_loss(loss(*activations.values()))
        return activations


class _EpochClock(tf_keras.callbacks.Callback):
    """Measures the steps of one epoch in seconds, without the start of `fit`."""

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds = time.perf_counter() - self._start


def _fit(layer: Any, gradients: Mapping[str, tf.Variable],
         batches: Sequence[Batch]) -> Callable[[int, int], float]:
    model = _Model(layer, gradients)
    # Each execution costs 0.5 ms of Python code in Keras, which several steps share.
    model.compile(tf_keras.optimizers.SGD(0.0), steps_per_execution=_STEPS_PER_EXECUTION)
    dataset = flat_dataset(batches).map(lambda *inputs: (inputs,))

    def run(first: int, count: int) -> float:
        clock, steps = _EpochClock(), _whole_executions(count)
        model.fit(dataset.skip(first % len(batches)), steps_per_epoch=steps, verbose=0,
                  callbacks=[clock])
        return clock.seconds * count / steps

    return run


def _whole_executions(count: int) -> int:
    """Rounds `count` up to whole executions if it exceeds one, because partial ones are slow."""
    if count <= _STEPS_PER_EXECUTION:
        return count
    return -(-count // _STEPS_PER_EXECUTION) * _STEPS_PER_EXECUTION


_CLASSES: Mapping[str, Callable[..., Any]] = {
    "tpu_embedding": mid_level.TPUEmbedding, "tpu_embedding_v2": mid_level.TPUEmbeddingV2,
    "layer": embedding_layer_class(tf_keras)}
