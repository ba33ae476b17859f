# SPDX-License-Identifier: Apache-2.0
"""Momentum over gradients that an Adagrad accumulator has scaled."""

import dataclasses
from collections.abc import Mapping

from tpu_estimator_embedding.optimizers.record import OptimizerRecord, Range, Slot, same
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.types import SlotRows, Tensor


@dataclasses.dataclass(frozen=True)
class AdagradMomentum(UpdateRule):
    """Adagrad with momentum.

        a = a + g²                   if β₂ = 1, else
        a = β₂ a + (1 - β₂) g²
        s = g (a + ε)^(-1/exponent)
        m = μ m + s
        w = w - η m                  or, with Nesterov momentum,
        w = w - η (μ m + s)

    w: weights, g: summed gradient, a: slot `accumulators`, m: slot `momenta`,
    η: learning rate.

    Attributes:
        momentum: μ.
        use_nesterov: whether to use Nesterov momentum.
        exponent: root of the accumulator, above 0; Adagrad's is 2.
        beta2: β₂; 1 sums squared gradients, below 1 averages them.
        epsilon: ε, above 0, because the accumulator starts at 0.

    Source: comments of TensorFlow's `optimization_parameters.proto` and the expected
    values in the tests of its TPU embedding; Adagrad as in J. Duchi, E. Hazan, Y. Singer,
    JMLR 12 (2011).

    >>> import tensorflow as tf
    >>> row, slots = AdagradMomentum(momentum=0.5).update(
    ...     tf.constant([[2.0]]), tf.constant([[1.0]]),
    ...     {"accumulators": tf.constant([[12.0]]), "momenta": tf.constant([[1.0]])},
    ...     learning_rate=0.5, step=0)
    >>> float(row[0, 0]), float(slots["momenta"][0, 0])
    (0.5, 1.0)
    """

    record = OptimizerRecord(
        "AdagradMomentumParameters", "adagrad_momentum",
        same("momentum", "use_nesterov", "exponent", "beta2", "epsilon"),
        (Slot("accumulators", "AdagradMomentum/Accumulator", "accumulator"),
         Slot("momenta", "AdagradMomentum/Momentum", "momenta")), v2_attributes={},
        ranges={"epsilon": Range.ABOVE_0, "exponent": Range.ABOVE_0},
        sentences={"epsilon": "Adagrad momentum: epsilon must be positive.",
                   "exponent": "Adagrad momentum: Precondition exponent must >0."})

    momentum: float = 0.0
    use_nesterov: bool = False
    exponent: float = 2
    beta2: float = 1
    epsilon: float = 1e-10

    @property
    def hyperparameters(self) -> Mapping[str, float]:
        return {"momentum": self.momentum, "power": -1.0 / self.exponent, "kept": self.beta2,
                "added": 1.0 if self.beta2 == 1 else 1.0 - self.beta2, "epsilon": self.epsilon,
                "use_nesterov": self.use_nesterov}

    def update(self, gradient: Tensor, row: Tensor, slots: SlotRows, learning_rate: Tensor,
               step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        import tensorflow as tf  # not above: names of slots are read without it
        kept, added = (1.0, 1.0) if self.beta2 == 1 else (self.beta2, 1.0 - self.beta2)
        accumulator = kept * slots["accumulators"] + added * tf.square(gradient)
        scaled = gradient * tf.pow(accumulator + self.epsilon, -1.0 / self.exponent)
        momentum = self.momentum * slots["momenta"] + scaled
        direction = self.momentum * momentum + scaled if self.use_nesterov else momentum
        row = row - learning_rate * direction
        return row, {"accumulators": accumulator, "momenta": momentum}
