# SPDX-License-Identifier: Apache-2.0
"""The variables of a layer, whose values include the update that pipelining has delayed.

Keras copies the variables of a layer itself, to HDF5 files and in `get_weights`, and writes into
them, in `set_weights`. Neither tells the layer.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

_ARGUMENTS = ("initial_value", "trainable", "validate_shape", "name", "dtype", "shape")


class TableVariable(resource_variable_ops.ResourceVariable):
    """A variable that completes its layer's updates before its values are read or replaced."""

    def __init__(self, *, complete: Callable[[], None], **arguments: Any) -> None:
        """Creates the variable.

        Args:
            complete: applies the delayed update, if there is one.
            arguments: of `tf.Variable`.
        """
        super().__init__(**arguments)
        self._complete = complete

    def numpy(self) -> np.ndarray:
        """Returns the values, with all updates."""
        self._complete()
        return super().numpy()

    def assign(self, *args: Any, **options: Any) -> Any:
        """Assigns values, to which a delayed update is not added later."""
        if tf.executing_eagerly():
            self._complete()
        return super().assign(*args, **options)


def creator(complete: Callable[[], None]) -> Callable[..., TableVariable]:
    """Returns a function for `tf.variable_creator_scope`."""
    def create(next_creator: Callable[..., tf.Variable], **arguments: Any) -> TableVariable:
        del next_creator
        return TableVariable(complete=complete, **{
            name: arguments[name] for name in _ARGUMENTS if name in arguments})
    return create
