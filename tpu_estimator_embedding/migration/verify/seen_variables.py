# SPDX-License-Identifier: Apache-2.0
"""All variables that a running TF2 program makes, with the values that it starts from."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf


class SeenVariables:
    """Variables in the order in which they are made.

    Attributes:
        all: the variables.
    """

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._starts: dict[int, np.ndarray] = {}

    @contextlib.contextmanager
    def seeing(self) -> Iterator[None]:
        """Notes the variables that are made, in functions, too."""
        def create(make: Any, **arguments: Any) -> Any:
            variable = make(**arguments)
            self.all.append(variable)
            if tf.executing_eagerly():
                self._note(variable)
            return variable

        with tf.variable_creator_scope(create):
            yield

    def note_starts(self) -> None:
        """Notes the values of now as those that training starts from."""
        for variable in self.all:
            self._note(variable)

    def start(self, variable: Any) -> np.ndarray | None:
        """Returns the value that a variable starts from; None if a step made it."""
        return self._starts.get(id(variable))

    def named(self, name: str, shape: tuple[int, ...]) -> list[Any]:
        """Returns the variables of a name and shape."""
        return [variable for variable in self.all
                if name_of(variable) == name and tuple(variable.shape) == shape]

    def _note(self, variable: Any) -> None:
        with contextlib.suppress(tf.errors.OpError, NotImplementedError, AttributeError):
            self._starts[id(variable)] = variable.numpy()


def name_of(variable: Any) -> str:
    """Returns the name of a variable as a checkpoint of TPUEstimator has it."""
    return str(variable.name).rpartition(":")[0] or str(variable.name)
