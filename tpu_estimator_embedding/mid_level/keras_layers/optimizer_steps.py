# SPDX-License-Identifier: Apache-2.0
"""Optimizers that update the tables of layers when they are given the gradients of carriers.

A carrier is the trainable variable of a layer, see `pending_updates`. `patches.patch_table` wraps
the methods with which optimizers apply gradients with the functions here. They update the tables
first, and then give the optimizer's own method zeros as the gradient of every carrier, so that its
norms, clipping and number of steps are those of the other variables.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from tpu_estimator_embedding.mid_level.execution.table_variables import outside_strategies
from tpu_estimator_embedding.ops.autograph import not_converted
from tpu_estimator_embedding.patches import patch, patch_table
from tpu_estimator_embedding.patches.patch import Patch
from tpu_estimator_embedding.types import Tensor

_TABLES = "tpu_embedding_tables"  # attribute of a carrier
_IS_SAVED = "tpu_embedding_is_saved"  # attribute of what stands for a carrier in files


class UpdatedTables(Protocol):
    """The tables of a carrier."""

    def apply_gradients(self, coefficients: Tensor, is_due: Tensor | None = None,
                        steps: int = 1) -> None: ...


def mark(carrier: Any, tables: UpdatedTables) -> None:
    """Makes a variable, and the tf.Variable that it wraps in Keras 3, the carrier of tables."""
    setattr(carrier, _TABLES, tables)
    if not isinstance(carrier, tf.Variable):
        setattr(carrier.value, _TABLES, tables)


def saved_carrier(name: str) -> tf.Variable:
    """Returns what stands for a carrier, or for a slot of one, in files; it takes any length."""
    with outside_strategies():
        carrier = tf.Variable([0.0], shape=[None], trainable=False, name=name)
    setattr(carrier, _IS_SAVED, True)
    return carrier


def adding_slot(original: Callable[..., tf.Variable]) -> Callable[..., tf.Variable]:
    """Returns the `add_slot` of a legacy optimizer that calls another one.

    A SavedModel has the slots of carriers, and Keras makes them when it loads one. It would give
    them a fixed length and the strategy of the model.
    """
    @functools.wraps(original)
    def add_slot(optimizer: Any, var: tf.Variable, slot_name: str, *args: Any,
                 **kwargs: Any) -> tf.Variable:
        if hasattr(var, _IS_SAVED):
            return saved_carrier(slot_name)
        return original(optimizer, var, slot_name, *args, **kwargs)

    return add_slot


def applying_in_keras_3(original: Callable[..., None]) -> Callable[..., None]:
    """Returns the `apply` of an optimizer of Keras 3 that calls another one."""
    @functools.wraps(original)
    def apply(optimizer: Any, grads: Sequence[Tensor | None],
              trainable_variables: Iterable[Any] | None = None) -> None:
        variables = optimizer._trainable_variables
        if trainable_variables is not None:
            variables = trainable_variables = list(trainable_variables)
        steps, scale = optimizer.gradient_accumulation_steps, optimizer.loss_scale_factor

        def update(tables: UpdatedTables, gradient: Tensor) -> None:
            gradient = gradient if scale is None else gradient / scale
            if steps:
                tables.apply_gradients(gradient, (optimizer._iterations + 1) % steps == 0, steps)
            else:
                tables.apply_gradients(gradient)

        original(optimizer, _without_carriers(list(grads), variables, update), trainable_variables)

    return not_converted(apply)


def applying_gradients(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the `apply_gradients` of any other optimizer that calls another one."""
    @functools.wraps(original)
    def apply_gradients(optimizer: Any, grads_and_vars: Iterable[tuple[Tensor | None, Any]],
                        *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        gradients = _without_carriers([gradient for gradient, _ in pairs], variables,
                                      lambda tables, gradient: tables.apply_gradients(gradient))
        return original(optimizer, list(zip(gradients, variables, strict=True)), *args, **kwargs)

    return not_converted(apply_gradients)


def _without_carriers(gradients: list[Tensor | None], variables: Sequence[Any],
                      update: Callable[[UpdatedTables, Tensor], None]) -> list[Tensor | None]:
    """Updates tables; returns the gradients, with zeros for carriers."""
    # Keras itself checks that there are as many of both.
    for index, (gradient, variable) in enumerate(zip(gradients, variables, strict=False)):
        tables = getattr(variable, _TABLES, None)
        if tables is not None and gradient is not None:
            update(tables, gradient)
            with _graph_of(gradient):
                gradients[index] = tf.zeros_like(gradient)
    return gradients


def _graph_of(gradient: Tensor) -> contextlib.AbstractContextManager[object]:
    """Returns a context whose ops are in the graph of a gradient, not of a branch that applies it.

    Keras sums gradients over replicas by a custom gradient, whose outputs must be in one graph.
    """
    if not tf.is_symbolic_tensor(gradient) or gradient.graph is tf.compat.v1.get_default_graph():
        return contextlib.nullcontext()
    context: contextlib.AbstractContextManager[object] = gradient.graph.as_default()
    return context


def patch_optimizers(layer: type) -> None:
    """Makes the optimizers of a Keras, and of tf.compat.v1, update tables.

    Calls change nothing until `uninstall`. Optimizers that are given no carrier work as before.

    Args:
        layer: the class Layer of the Keras.
    """
    for row in _rows(layer):
        patch.apply(row)


@functools.cache
def _rows(layer: type) -> tuple[Patch, ...]:
    """Returns the rows of the table of patches for the Keras of a layer."""
    if layer.__module__.startswith("keras.src.layers"):  # of Keras 3
        return *patch_table.V1_OPTIMIZERS, *patch_table.KERAS_3_OPTIMIZERS
    package = layer.__module__.partition(".")[0]
    return *patch_table.V1_OPTIMIZERS, *(row for row in patch_table.KERAS_2_OPTIMIZERS
                                         if row.module.startswith(f"{package}."))
