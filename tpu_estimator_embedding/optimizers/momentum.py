# SPDX-License-Identifier: Apache-2.0
"""Gradient descent with momentum."""

import dataclasses
from collections.abc import Mapping

from tpu_estimator_embedding.optimizers.record import OptimizerRecord, Slot, same
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.types import SlotRows, Tensor


@dataclasses.dataclass(frozen=True)
class Momentum(UpdateRule):
    """Gradient descent with momentum.

        m = μ m + g
        w = w - η m              or, with Nesterov momentum,
        w = w - η (g + μ m)

    w: weights, g: summed gradient, m: slot `momenta`, η: learning rate.

    Attributes:
        momentum: μ.
        use_nesterov: whether to use Nesterov momentum.

    Source: I. Sutskever, J. Martens, G. Dahl, G. Hinton, "On the importance of
    initialization and momentum in deep learning", ICML 2013.

    >>> import tensorflow as tf
    >>> row, slots = Momentum(momentum=0.5, use_nesterov=True).update(
    ...     tf.constant([[2.0]]), tf.constant([[1.0]]), {"momenta": tf.constant([[4.0]])},
    ...     learning_rate=0.25, step=0)
    >>> float(row[0, 0]), float(slots["momenta"][0, 0])
    (0.0, 4.0)
    """

    record = OptimizerRecord(
        "MomentumParameters", "momentum", same("momentum", "use_nesterov"),
        (Slot("momenta", "Momentum", "momenta", has_dense_namesake=True),))

    momentum: float = 0.0
    use_nesterov: bool = False

    @property
    def hyperparameters(self) -> Mapping[str, float]:
        return {"momentum": self.momentum, "use_nesterov": self.use_nesterov}

    def update(self, gradient: Tensor, row: Tensor, slots: SlotRows, learning_rate: Tensor,
               step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        momentum = self.momentum * slots["momenta"] + gradient
        direction = gradient + self.momentum * momentum if self.use_nesterov else momentum
        return row - learning_rate * direction, {"momenta": momentum}
