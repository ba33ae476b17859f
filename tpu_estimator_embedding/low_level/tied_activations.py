# SPDX-License-Identifier: Apache-2.0
"""The activations of all cores in one graph that a program ties to dummy variables."""

import itertools
from collections.abc import Iterable, Mapping

import tensorflow as tf

from tpu_estimator_embedding.ops.captured_gradients import (
    CapturedGradients,
    create_dummy,
    hide_from_searches,
)
from tpu_estimator_embedding.types import Tensor


class TiedActivations:
    """Keeps the gradients of tied activations, by core.

    The k-th call of `tie` and the k-th call of `take` belong to core k modulo the number of
    cores.

    Attributes:
        dummies: table name -> trainable variable; None until they are created. Until then,
            computing a gradient raises RuntimeError.
    """

    def __init__(self, num_cores: int):
        self._of_cores = [CapturedGradients(self._check) for _ in range(num_cores)]
        self._ties, self._takes = itertools.cycle(self._of_cores), itertools.cycle(self._of_cores)
        self.dummies: dict[str, tf.Variable] | None = None

    def create_dummies(self, tables: Iterable[str]) -> dict[str, tf.Variable]:
        """Creates the dummy variables of tables; returns table name -> variable.

        Raises:
            RuntimeError: they were created before.
        """
        if self.dummies is not None:
            raise RuntimeError(
                "`create_dummy_table_variables` must be called once in a graph, got a second "
                "call. Tie the activations of all cores to the same variables.")
        self.dummies = {table: create_dummy(table) for table in tables}
        return self.dummies

    def tie(self, activations: Mapping[str, Tensor],
            dummies: Mapping[str, tf.Variable]) -> dict[str, Tensor]:
        """Returns the activations of the next core, tied to variables that get zero gradients.

        Args:
            activations: feature name -> activation.
            dummies: feature name -> trainable variable to tie the activation to.
        """
        return next(self._ties).tie(activations, {
            feature: hide_from_searches(dummies[feature]) for feature in activations})

    def take(self) -> Mapping[str, Tensor]:
        """Returns feature name -> gradient of the next core, for the computed gradients."""
        return next(self._takes).by_feature

    def _check(self, feature: str, gradient: Tensor, is_second: bool) -> None:
        if self.dummies is None:
            raise RuntimeError(
                "`create_dummy_table_variables` must be called before gradients of activations "
                f"are computed, got a gradient of feature {feature!r} before the call. Compute "
                "gradients only where the model trains.")
        if is_second:
            raise RuntimeError(
                f"The gradient of the activation of feature {feature!r} must be computed once, "
                "got a second computation. Compute the gradients of the loss once and reuse them, "
                "or tie activations to dummy variables once for each core.")
