# SPDX-License-Identifier: Apache-2.0
"""Metric functions of the Estimator, whose tf.metrics need a graph and a session."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.types import Structure, Tensor


def mean(losses: Iterable[float]) -> float:
    """Returns the mean as `tf.metrics.mean` computes it, from a float32 sum in this order."""
    total, count = np.float32(0), np.float32(0)
    for loss in losses:
        total, count = total + np.float32(loss), count + np.float32(1)
    return float(total / count)


class StreamingMetrics:
    """Computes `eval_metrics` over the batches of an evaluation.

    Args:
        metric_fn: returns name -> (value, update), as `eval_metrics` has it.
        example: its arguments for one batch, a dictionary or a list of arrays.
    """

    def __init__(self, metric_fn: Callable[..., Mapping[str, tuple[Tensor, Tensor]]],
                 example: Structure) -> None:
        with tf.Graph().as_default():
            self._tensors = tf.nest.map_structure(lambda value: tf.compat.v1.placeholder(
                value.dtype, [None, *value.shape[1:]] if np.ndim(value) else []), example)
            results = (metric_fn(**self._tensors) if isinstance(example, dict)
                       else metric_fn(*self._tensors))
            self._values = {name: value for name, (value, _) in results.items()}
            self._updates = [update for _, update in results.values()]
            self._session = tf.compat.v1.Session()
            self._session.run([tf.compat.v1.global_variables_initializer(),
                               tf.compat.v1.local_variables_initializer(),
                               tf.compat.v1.tables_initializer()])

    def update(self, arguments: Structure) -> None:
        """Adds a batch."""
        self._session.run(self._updates, dict(zip(
            tf.nest.flatten(self._tensors), tf.nest.flatten(arguments), strict=True)))

    def result(self) -> dict[str, Any]:
        """Returns name -> value, and ends."""
        with self._session:
            values: dict[str, Any] = self._session.run(self._values)
        return values
