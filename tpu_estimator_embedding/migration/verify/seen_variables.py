# SPDX-License-Identifier: Apache-2.0
"""All variables that a running TF2 program creates, with their initial values."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import distribute_utils


class SeenVariables:
    """Variables in the order of their creation.

    Attributes:
        all: the variables.
    """

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._starts: dict[int, np.ndarray] = {}

    @contextlib.contextmanager
    def seeing(self) -> Iterator[None]:
        """Records the variables that are created, also in functions."""
        def create(make: Any, **arguments: Any) -> Any:
            variable = make(**arguments)
            self.all.append(variable)
            if tf.executing_eagerly():
                self._note(variable)
            return variable

        with tf.variable_creator_scope(create):
            yield

    def note_starts(self) -> None:
        """Records the current values as those at the start of training."""
        for variable in self.all:
            self._note(variable)

    def note_new_starts(self) -> None:
        """Notes the values of variables that had none before the step that is running.

        What it has noted of others stays: the step may have changed them by now.
        """
        for variable in self.all:
            if id(variable) not in self._starts:
                self._note(variable)

    def start(self, variable: Any) -> np.ndarray | None:
        """Returns the initial value of a variable; None if a step created it."""
        return self._starts.get(id(variable))

    def named(self, name: str, shape: tuple[int, ...]) -> list[Any]:
        """Returns the variables of a name and shape."""
        return [variable for variable in self.all
                if name_of(variable) == name and tuple(variable.shape) == shape]

    def _note(self, variable: Any) -> None:
        with contextlib.suppress(tf.errors.OpError, NotImplementedError, AttributeError):
            self._starts[id(variable)] = variable.numpy()


def whole(variable: Any) -> Any:
    """Returns the variable that one replica's is a part of, or else the variable itself."""
    return distribute_utils.value_container(variable)


def first_parts(variables: Iterable[Any]) -> list[Any]:
    """Returns the variables without those of further replicas."""
    found: dict[int, Any] = {}
    for variable in variables:
        found.setdefault(id(whole(variable)), variable)
    return list(found.values())


def name_of(variable: Any) -> str:
    """Returns the name of a variable as a checkpoint of TPUEstimator has it."""
    return str(variable.name).rpartition(":")[0] or str(variable.name)
