# SPDX-License-Identifier: Apache-2.0
"""Captures the gradients of activations that are connected to dummy variables."""

import itertools
from collections.abc import Mapping

import tensorflow as tf

from tpu_estimator_embedding.ops.gradient_tap import tap_graph_gradient
from tpu_estimator_embedding.types import Tensor


class CapturedGradients:
    """Records the gradient of every activation that is connected to a dummy variable.

    The k-th call of `tie` and the k-th call of `take` belong to core k modulo the number of
    cores.

    Attributes:
        is_started: whether dummy variables exist. If not, computing a gradient raises
            RuntimeError.
    """

    def __init__(self, num_cores: int):
        self._gradients: list[dict[str, Tensor]] = [{} for _ in range(num_cores)]
        self._ties, self._takes = itertools.count(), itertools.count()
        self.is_started = False

    def tie(self, activations: Mapping[str, Tensor],
            dummies: Mapping[str, tf.Variable]) -> dict[str, Tensor]:
        """Returns the same activations, connected to dummy variables that get zero gradients.

        Args:
            activations: feature name -> activation.
            dummies: feature name -> trainable variable to connect the activation to.
        """
        core = next(self._ties) % len(self._gradients)
        return {feature: self._tie(core, feature, activation, dummies[feature])
                for feature, activation in activations.items()}

    def take(self) -> Mapping[str, Tensor]:
        """Returns feature name -> gradient of the next core, for the computed gradients."""
        return self._gradients[next(self._takes) % len(self._gradients)]

    def _tie(self, core: int, feature: str, activation: Tensor, dummy: tf.Variable) -> Tensor:
        return tap_graph_gradient(dummy, activation, lambda gradient: self._keep(
            core, feature, gradient))

    def _keep(self, core: int, feature: str, gradient: Tensor) -> None:
        if not self.is_started:
            raise RuntimeError(
                "`create_dummy_table_variables` must be called before gradients of activations "
                f"are computed, got a gradient of feature {feature!r} before the call. Compute "
                "gradients only where the model trains.")
        if feature in self._gradients[core]:
            raise RuntimeError(
                f"The gradient of the activation of feature {feature!r} must be computed once, "
                "got a second computation. Compute the gradients of the loss over all "
                "trainable variables once and reuse them, or tie activations to dummy variables "
                "once for each core.")
        self._gradients[core][feature] = gradient
