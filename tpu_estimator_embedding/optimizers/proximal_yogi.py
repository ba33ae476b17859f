# SPDX-License-Identifier: Apache-2.0
"""Yogi with l1 and l2 regularization."""

import dataclasses
from collections.abc import Mapping

from tpu_estimator_embedding.optimizers.record import PENALTIES, OptimizerRecord, Range, Slot, same
from tpu_estimator_embedding.optimizers.soft_threshold import soft_threshold
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.types import SlotRows, Tensor


@dataclasses.dataclass(frozen=True)
class ProximalYogi(UpdateRule):
    """Yogi without bias correction, followed by a proximal step.

        v = v - (1 - β₂) sign(v - g²) g²
        m = β₁ m + (1 - β₁) g
        η = lr / (√v + ε)
        w = soft_threshold(w - η m, η, l1, l2)

    w: weights, g: summed gradient, v: slot `v`, m: slot `m`, lr: learning rate. The TPU's
    own form is publicly documented only as similar to Yogi with proximal regularization.

    Attributes:
        beta1: β₁, in [0, 1).
        beta2: β₂, in [0, 1).
        epsilon: ε, above 0.
        l1_regularization_strength: l1, at least 0.
        l2_regularization_strength: l2, at least 0.
        initial_accumulator_value: value every `v` starts with, at least 0.

    Source: M. Zaheer, S. Reddi, D. Sachan, S. Kale, S. Kumar, "Adaptive Methods for
    Nonconvex Optimization", NeurIPS 2018.

    >>> import tensorflow as tf
    >>> row, slots = ProximalYogi(beta1=0.5, beta2=0.0, epsilon=1.0).update(
    ...     tf.constant([[1.0]]), tf.constant([[1.0]]),
    ...     {"v": tf.constant([[10.0]]), "m": tf.constant([[3.0]])}, learning_rate=1.0, step=0)
    >>> float(row[0, 0]), float(slots["v"][0, 0]), float(slots["m"][0, 0])
    (0.5, 9.0, 2.0)
    """

    record = OptimizerRecord(
        "ProximalYogiParameters", "proximal_yogi",
        {**same("beta1", "beta2", "epsilon"), **PENALTIES},
        (Slot("v", "ProximalYogi", "v", "initial_accumulator_value"),
         Slot("m", "ProximalYogi_1", "m")),
        ranges={"beta1": Range.DECAY_RATE, "beta2": Range.DECAY_RATE, "epsilon": Range.ABOVE_0,
                **dict.fromkeys([*PENALTIES.values(), "initial_accumulator_value"],
                                Range.AT_LEAST_0)},
        sentences={"epsilon": "epsilon must be positive."})

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-3
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    initial_accumulator_value: float = 1e-6

    @property
    def hyperparameters(self) -> Mapping[str, float]:
        return {"beta1": self.beta1, "one_minus_beta1": 1.0 - self.beta1,
                "one_minus_beta2": 1.0 - self.beta2, "epsilon": self.epsilon,
                "l1": self.l1_regularization_strength, "l2": self.l2_regularization_strength}

    def update(self, gradient: Tensor, row: Tensor, slots: SlotRows, learning_rate: Tensor,
               step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        import tensorflow as tf  # not above: names of slots are read without it
        square = tf.square(gradient)
        velocity = slots["v"] - (1.0 - self.beta2) * tf.sign(slots["v"] - square) * square
        momentum = self.beta1 * slots["m"] + (1.0 - self.beta1) * gradient
        rate = learning_rate / (tf.sqrt(velocity) + self.epsilon)
        row = soft_threshold(row - rate * momentum, rate, self.l1_regularization_strength,
                             self.l2_regularization_strength)
        return row, {"v": velocity, "m": momentum}
