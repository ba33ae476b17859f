# SPDX-License-Identifier: Apache-2.0
"""Adam without bias correction."""

import dataclasses
from collections.abc import Mapping

from tpu_estimator_embedding.optimizers.record import Negated, OptimizerRecord, Range, Slot, same
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.types import SlotRows, Tensor


@dataclasses.dataclass(frozen=True)
class Adam(UpdateRule):
    """Adam as on the TPU: without bias correction, hence without a step count.

        m = β₁ m + (1 - β₁) g
        v = β₂ v + (1 - β₂) g²
        w = w - η m / √(v + ε²)     or, with sum_inside_sqrt=False,
        w = w - η m / (√v + ε)

    w: weights, g: summed gradient, m: slot `momenta`, v: slot `velocities`, η: learning
    rate. A learning rate of η √(1 - β₂ᵗ) / (1 - β₁ᵗ) at step t = 1, 2, … together with
    sum_inside_sqrt=False gives `tf.compat.v1.train.AdamOptimizer`.

    Attributes:
        beta1: β₁, in [0, 1).
        beta2: β₂, in [0, 1).
        epsilon: ε, above 0.
        lazy_adam: whether rows that a step did not look up stay unchanged. Otherwise their
            moments decay and they are updated as with a gradient of 0.
        sum_inside_sqrt: selects between the two forms.

    Source: D. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015,
    section 2 ("epsilon hat"); forms as in TensorFlow's `optimization_parameters.proto`.

    >>> import tensorflow as tf
    >>> row, slots = Adam(beta1=0.5, beta2=0.75, epsilon=1.0, sum_inside_sqrt=False).update(
    ...     tf.constant([[2.0]]), tf.constant([[1.0]]),
    ...     {"momenta": tf.constant([[2.0]]), "velocities": tf.constant([[4.0]])},
    ...     learning_rate=0.75, step=0)
    >>> float(row[0, 0]), float(slots["momenta"][0, 0]), float(slots["velocities"][0, 0])
    (0.5, 2.0, 4.0)
    """

    record = OptimizerRecord(
        "AdamParameters", "adam",
        {**same("beta1", "beta2", "epsilon"), "use_sum_inside_sqrt": "sum_inside_sqrt",
         "use_non_lazy_adam": Negated("lazy_adam")},
        (Slot("momenta", "Adam/m", "m", keras="momentum"),
         Slot("velocities", "Adam/v", "v", keras="velocity")),
        v2_attributes={"beta1": "beta_1", "beta2": "beta_2"},
        ranges={"beta1": Range.DECAY_RATE, "beta2": Range.DECAY_RATE, "epsilon": Range.ABOVE_0},
        sentences={"epsilon": "epsilon must be positive."})

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    lazy_adam: bool = True
    sum_inside_sqrt: bool = True

    @property
    def hyperparameters(self) -> Mapping[str, float]:
        return {"beta1": self.beta1, "one_minus_beta1": 1.0 - self.beta1,
                "beta2": self.beta2, "one_minus_beta2": 1.0 - self.beta2,
                "epsilon": self.epsilon ** 2 if self.sum_inside_sqrt else self.epsilon,
                "sum_inside_sqrt": self.sum_inside_sqrt}

    @property
    def updates_untouched_rows(self) -> bool:
        return not self.lazy_adam

    def update(self, gradient: Tensor, row: Tensor, slots: SlotRows, learning_rate: Tensor,
               step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        import tensorflow as tf  # not above: names of slots are read without it
        momentum = self.beta1 * slots["momenta"] + (1.0 - self.beta1) * gradient
        velocity = self.beta2 * slots["velocities"] + (1.0 - self.beta2) * tf.square(gradient)
        if self.sum_inside_sqrt:
            scale = tf.sqrt(velocity + self.epsilon ** 2)
        else:
            scale = tf.sqrt(velocity) + self.epsilon
        row = row - learning_rate * momentum / scale
        return row, {"momenta": momentum, "velocities": velocity}
