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

    The metric function sees the shapes of its arguments, as in the Estimator. Where a batch has
    another shape, it is called again with that dimension unknown, and goes on from the same values.

    Args:
        metric_fn: returns name -> (value, update), as `eval_metrics` has it.
        step: what `tf.train.get_global_step` gives in it.
    """

    def __init__(self, metric_fn: Callable[..., Mapping[str, tuple[Tensor, Tensor]]],
                 step: int) -> None:
        self._metric_fn, self._step = metric_fn, step
        self._shapes: list[tf.TensorShape] = []
        self._graph: _MetricGraph | None = None

    def update(self, arguments: Structure) -> None:
        """Adds a batch: a dictionary or a list of arrays."""
        given = [tf.TensorShape(np.shape(value)) for value in tf.nest.flatten(arguments)]
        if self._graph is None or not all(
                known.is_compatible_with(one)
                for known, one in zip(self._shapes, given, strict=True)):
            self._shapes = [known.most_specific_compatible_shape(one) for known, one in
                            zip(self._shapes or given, given, strict=True)]
            values = {} if self._graph is None else self._graph.end()
            self._graph = _MetricGraph(self._metric_fn, arguments, self._shapes, self._step, values)
        self._graph.update(arguments)

    def result(self) -> dict[str, Any]:
        """Returns name -> value, and ends."""
        assert self._graph is not None
        values = self._graph.result()
        self._graph.end()
        return values


class _MetricGraph:
    """The graph of a metric function whose arguments have certain shapes, with its session.

    Args:
        metric_fn: the function.
        example: its arguments for one batch.
        shapes: of the arguments.
        step: the global step.
        values: variable -> value to start from; without one it is initialized.
    """

    def __init__(self, metric_fn: Callable[..., Mapping[str, tuple[Tensor, Tensor]]],
                 example: Structure, shapes: list[tf.TensorShape], step: int,
                 values: Mapping[str, np.ndarray]) -> None:
        with tf.Graph().as_default():
            global_step = tf.compat.v1.train.create_global_step()
            self._placeholders = [tf.compat.v1.placeholder(value.dtype, shape) for value, shape in
                                  zip(tf.nest.flatten(example), shapes, strict=True)]
            tensors = tf.nest.pack_sequence_as(example, self._placeholders)
            results = metric_fn(**tensors) if isinstance(example, dict) else metric_fn(*tensors)
            _check_variables(global_step)
            self._values = {name: value for name, (value, _) in results.items()}
            self._updates = [update for _, update in results.values()]
            self._variables = {variable.op.name: variable
                               for variable in tf.compat.v1.local_variables()}
            self._session = tf.compat.v1.Session()
            self._session.run([tf.compat.v1.global_variables_initializer(),
                               tf.compat.v1.local_variables_initializer(),
                               tf.compat.v1.tables_initializer()])
            self._load(global_step, step)
            for name, value in values.items():
                self._load(self._variables[name], value)

    def _load(self, variable: tf.Variable, value: object) -> None:
        initializer = variable.initializer
        self._session.run(initializer, {initializer.inputs[1]: value})

    def update(self, arguments: Structure) -> None:
        """Adds a batch."""
        self._session.run(self._updates, dict(zip(
            self._placeholders, tf.nest.flatten(arguments), strict=True)))

    def result(self) -> dict[str, Any]:
        """Returns name -> value."""
        values: dict[str, Any] = self._session.run(self._values)
        return values

    def end(self) -> dict[str, np.ndarray]:
        """Closes the session; returns variable -> value."""
        with self._session:
            values: dict[str, np.ndarray] = self._session.run(self._variables)
        return values


def _check_variables(global_step: tf.Variable) -> None:
    """Raises an error where a metric function uses variables that the Estimator's model has."""
    own = [variable.op.name for variable in tf.compat.v1.global_variables()
           if variable is not global_step]
    if own:
        raise NotImplementedError(
            f"The metric function makes the variables {own}, which it shared with the model in the "
            "Estimator; here they would have initial values. Compute what it needs of them in the "
            "forward function, and pass it as an argument of eval_metrics.")
