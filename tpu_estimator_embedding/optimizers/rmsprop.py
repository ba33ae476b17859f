# SPDX-License-Identifier: Apache-2.0
"""RMSProp with momentum."""

import dataclasses
from collections.abc import Mapping

from tpu_estimator_embedding.optimizers.record import OptimizerRecord, Slot, same
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.types import SlotRows, Tensor


@dataclasses.dataclass(frozen=True)
class RMSProp(UpdateRule):
    """RMSProp with momentum.

        s = s + (1 - ρ)(g² - s)
        m = μ m + η g / √(s + ε)
        w = w - m

    w: weights, g: summed gradient, s: slot `ms`, the mean square, m: slot `mom`, the
    momentum, η: learning rate. The mean square starts at 0, not at 1 as in
    `tf.compat.v1.train.RMSPropOptimizer`.

    Attributes:
        rho: ρ, decay rate of the mean square.
        momentum: μ.
        epsilon: ε.

    Source: T. Tieleman, G. Hinton, "Lecture 6.5: RMSProp", Coursera: Neural Networks for
    Machine Learning (2012).

    >>> import tensorflow as tf
    >>> row, slots = RMSProp(rho=0.5, momentum=0.5, epsilon=0.0).update(
    ...     tf.constant([[2.0]]), tf.constant([[1.0]]),
    ...     {"ms": tf.constant([[4.0]]), "mom": tf.constant([[0.5]])}, learning_rate=0.25, step=0)
    >>> float(row[0, 0]), float(slots["ms"][0, 0]), float(slots["mom"][0, 0])
    (0.5, 4.0, 0.5)
    """

    record = OptimizerRecord(
        "RMSPropParameters", "rms_prop", same("rho", "momentum", "epsilon"),
        (Slot("ms", "RMSProp/ms", "ms"), Slot("mom", "RMSProp/mom", "mom")))

    rho: float
    momentum: float
    epsilon: float

    @property
    def hyperparameters(self) -> Mapping[str, float]:
        return {"one_minus_rho": 1.0 - self.rho, "momentum": self.momentum,
                "epsilon": self.epsilon}

    def update(self, gradient: Tensor, row: Tensor, slots: SlotRows, learning_rate: Tensor,
               step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        import tensorflow as tf  # not above: names of slots are read without it
        mean_square = slots["ms"] + (1.0 - self.rho) * (tf.square(gradient) - slots["ms"])
        rate = learning_rate / tf.sqrt(mean_square + self.epsilon)
        momentum = self.momentum * slots["mom"] + rate * gradient
        return row - momentum, {"ms": mean_square, "mom": momentum}
