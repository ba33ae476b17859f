# SPDX-License-Identifier: Apache-2.0
"""Calls the functions of the global step that users give: learning rates and multipliers."""

from collections.abc import Callable, Mapping

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.types import Tensor

RATE = ("result of the learning rate function",
        "Return one number from `learning_rate_fn` of the TableConfig or column, or from "
        "`learning_rate` of a TF2 optimizer.")
MULTIPLIER = ("result of the gradient multiplier",
              "Return one number from `experimental_gradient_multiplier_fn`.")


def values_at(functions: Mapping[str, Callable[[Tensor], object]], step: Tensor,
              kind: tuple[str, str]) -> dict[str, Tensor]:
    """Calls every distinct function of the step once.

    Args:
        functions: table name -> function.
        step: scalar, the global step.
        kind: RATE or MULTIPLIER, for errors.

    Returns:
        Table name -> scalar float32.

    Raises:
        ValueError: if a result is not one number.

    >>> float(values_at({"words": lambda step: 0.5 * step}, 3, RATE)["words"])
    1.5
    """
    values: dict[int, Tensor] = {}
    for name, function in functions.items():
        if id(function) not in values:
            values[id(function)] = scalar(function(step), name, kind)
    return {name: values[id(function)] for name, function in functions.items()}


def scalar(value: object, table: str, kind: tuple[str, str]) -> Tensor:
    """Returns a number as a scalar float32 tensor.

    Args:
        value: a number, or what a function of the step returned.
        table: the table that it is for.
        kind: see `values_at`.

    Raises:
        ValueError: if it is not one number, or belongs to another graph.
    """
    try:
        tensor = tf.convert_to_tensor(value)
    except (TypeError, ValueError):  # no tensor at all
        tensor = None
    except RuntimeError as error:  # made eagerly, and used in a graph
        raise ValueError(_of_another_graph(value, table, kind)) from error
    is_number = (tensor is not None and tensor.shape.rank in (0, None)
                 and (tensor.dtype.is_floating or tensor.dtype.is_integer))
    what, fix = kind
    checks.check(is_number, f"{what} of table {table!r}", "one number, a scalar", value, fix)
    graph = tf.compat.v1.get_default_graph()
    if not (tf.executing_eagerly() or graph.building_function or tensor.graph is graph):
        raise ValueError(_of_another_graph(value, table, kind))
    number = tf.cast(tensor, tf.float32)
    return number if number.shape.rank == 0 else tf.ensure_shape(number, [])


def _of_another_graph(value: object, table: str, kind: tuple[str, str]) -> str:
    return checks.complaint(f"{kind[0]} of table {table!r}", "a number, or a tensor of the graph "
                            "of the step", value, "Compute it inside the function.")
