# SPDX-License-Identifier: Apache-2.0
"""The optimizer of the dense variables: one of `tf.compat.v1.train`, or one of Keras 2."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.types import Tensor

Gradient: TypeAlias = Tensor | tf.IndexedSlices

_POWER = re.compile(r"(^|/)beta[12]_power(_\d+)?$")  # of Adam


class NamedVariables(tf.Module):
    """Variables by their names, as checkpoints have them."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[str, tf.Variable] = {}

    def add(self, variables: Sequence[tf.Variable]) -> None:
        """Adds variables, if they are new.

        Raises:
            ValueError: another variable has the name of one.
        """
        for variable in variables:
            name = name_of(variable)
            if name not in self.by_name:
                self.by_name[name] = variable
            elif self.by_name[name] is not variable:
                raise ValueError(f"Two variables of the optimizer have the name {name!r}, and a "
                                 "checkpoint can hold only one: give the variables distinct names.")


class DenseOptimizer:
    """Applies gradients to dense variables, with one rate for all in each step.

    Args:
        make_optimizer: takes the learning rate and params; returns the optimizer.
        learning_rate: takes the global step and params; returns the learning rate of the step.
        params: of the program.
        slots: for an optimizer of Keras, attribute with the slots of all variables -> suffix of
            the legacy optimizer's slots in a checkpoint of the Estimator.

    Attributes:
        saved: what a checkpoint contains of it.
    """

    def __init__(self, make_optimizer: Callable[..., Any], learning_rate: Callable[..., Tensor],
                 params: Mapping[str, object], slots: Mapping[str, str]) -> None:
        self._params, self._learning_rate, self._slots = params, learning_rate, dict(slots)
        rate = tf.Variable(0.0, trainable=False)
        self._optimizer = make_optimizer(rate, params)
        self._is_legacy = isinstance(self._optimizer, tf.compat.v1.train.Optimizer)
        self._rate = rate if self._is_legacy else self._optimizer.learning_rate
        self.saved: Any = NamedVariables() if self._is_legacy else self._optimizer
        self._trained: list[tf.Variable] = []  # which have a gradient, and so slots

    def build(self, variables: list[tf.Variable]) -> None:
        """Makes the slots of variables, outside of the function that is traced."""
        self._trained = variables
        with tf.init_scope():
            if not self._is_legacy:
                self._optimizer.build(variables)
                return
            with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(),
                                             auxiliary_name_scope=False):
                self._optimizer._create_slots(variables)
            self.saved.add(self._optimizer.variables())

    def apply(self, gradients: Sequence[Gradient], variables: Sequence[tf.Variable],
              global_step: tf.Variable) -> None:
        """Updates variables with the rate of a step, and then counts the step.

        As in the Estimator, variables without a gradient have no slots.
        """
        self._rate.assign(self._learning_rate(global_step, self._params))
        pairs = list(zip(gradients, variables, strict=True))
        self.build([variable for gradient, variable in pairs if gradient is not None])
        if self._is_legacy:
            self._optimizer.apply_gradients(pairs, global_step=global_step)
        else:
            self._optimizer.apply_gradients(pairs)
            global_step.assign_add(1)

    def variables(self) -> list[tf.Variable]:
        """Returns the slots of the legacy optimizer; none of one of Keras, which names no slots."""
        return list(self._optimizer.variables()) if self._is_legacy else []

    def derives(self, name: str) -> bool:
        """Whether an optimizer of Keras computes from the step what the legacy one stored."""
        return not self._is_legacy and _POWER.search(name) is not None

    def restore_estimator_slots(self, values: Callable[[str], np.ndarray], step: int) -> None:
        """Gives an optimizer of Keras what the legacy one had learned.

        Args:
            values: those in a checkpoint of the Estimator, by name.
            step: the global step of the checkpoint.
        """
        if self._is_legacy:
            return
        self._optimizer.iterations.assign(step)
        rate = self._learning_rate(tf.constant(step, tf.int64), self._params)
        for attribute, suffix in self._slots.items():
            # SGD of Keras keeps v ← μ v − η g, tf.train's MomentumOptimizer v ← μ v + g.
            scale = -rate if attribute == "momentums" else 1.0
            found = getattr(self._optimizer, attribute)
            if found:  # RMSprop without momentum has no momentums
                for variable, slot in zip(self._trained, found, strict=True):
                    slot.assign(scale * values(f"{name_of(variable)}/{suffix}"))


def is_slot(name: str, variables: Sequence[tf.Variable]) -> bool:
    """Whether a name in a checkpoint is that of a slot of variables, or of a power of Adam."""
    return _POWER.search(name) is not None or any(
        name.startswith(f"{name_of(variable)}/") for variable in variables)


def name_of(variable: tf.Variable) -> str:
    """Returns the name of a variable in checkpoints of TPUEstimator."""
    return str(variable.name).rpartition(":")[0] or str(variable.name)
