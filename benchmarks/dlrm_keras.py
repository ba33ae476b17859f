# SPDX-License-Identifier: Apache-2.0
"""The DLRM of Keras 2, with its embedding layers and its `fit`."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks.dlrm import (
    INITIAL_ACCUMULATOR,
    LEARNING_RATE,
    Batch,
    Settings,
    initial_table,
    initial_weights,
)
from benchmarks.dlrm_model import log_odds


class _Dlrm(tf_keras.Model):
    """The model; a batch is numbers `[batch, 13]` and ids `[26, batch]`."""

    def __init__(self, settings: Settings):
        super().__init__()
        self.tables = [tf_keras.layers.Embedding(
            size, settings.dim, tf_keras.initializers.Constant(initial_table(size, settings.dim)))
            for size in settings.sizes]
        self.layer_weights = [tf.Variable(values) for values in initial_weights(settings)]

    def call(self, inputs: Any) -> Any:
        numbers, ids = inputs
        vectors = [table(ids[number]) for number, table in enumerate(self.tables)]
        return log_odds(numbers, vectors, self.layer_weights)


class _Clock(tf_keras.callbacks.Callback):
    """The time at which each step ended."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.times.append(time.perf_counter())


def train(settings: Settings, training: Sequence[Batch],
          evaluation: Sequence[Batch]) -> tuple[float, np.ndarray]:
    """Returns seconds after the first loop, and the log odds of the evaluation."""
    model, clock = _Dlrm(settings), _Clock()
    model.compile(
        tf_keras.optimizers.Adagrad(LEARNING_RATE, initial_accumulator_value=INITIAL_ACCUMULATOR),
        tf_keras.losses.BinaryCrossentropy(from_logits=True))
    numbers, ids, labels = (tf.TensorSpec(value.shape, value.dtype) for value in training[0])
    dataset = tf.data.Dataset.from_generator(
        lambda: (((numbers, ids), labels) for numbers, ids, labels in training),
        output_signature=((numbers, ids), labels)).prefetch(8)
    model.fit(dataset, verbose=0, callbacks=[clock])
    seconds = clock.times[-1] - clock.times[settings.loop - 1]
    predict = tf.function(model.call)
    return seconds, np.concatenate(
        [predict(tuple(map(tf.constant, batch[:2]))).numpy() for batch in evaluation])
