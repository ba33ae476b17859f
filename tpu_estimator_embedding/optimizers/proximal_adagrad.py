# SPDX-License-Identifier: Apache-2.0
"""Adagrad with l1 and l2 regularization."""

import dataclasses
from collections.abc import Mapping

from tpu_estimator_embedding.optimizers.record import PENALTIES, OptimizerRecord, Range, Slot
from tpu_estimator_embedding.optimizers.soft_threshold import soft_threshold
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.types import SlotRows, Tensor


@dataclasses.dataclass(frozen=True)
class ProximalAdagrad(UpdateRule):
    """Adagrad followed by a proximal step.

        a = a + g²
        η = lr / √a
        w = soft_threshold(w - η g, η, l1, l2)

    w: weights, g: summed gradient, a: slot `accumulators`, lr: learning rate.

    Attributes:
        initial_accumulator: value every `accumulators` starts with, above 0.
        l1_regularization_strength: l1, at least 0.
        l2_regularization_strength: l2, at least 0.

    Source: J. Duchi, E. Hazan, Y. Singer, "Adaptive Subgradient Methods for Online
    Learning and Stochastic Optimization", JMLR 12 (2011), section 1.3.

    >>> import tensorflow as tf
    >>> row, slots = ProximalAdagrad(l1_regularization_strength=1.0).update(
    ...     tf.constant([[2.0]]), tf.constant([[4.0]]), {"accumulators": tf.constant([[12.0]])},
    ...     learning_rate=4.0, step=0)
    >>> float(row[0, 0]), float(slots["accumulators"][0, 0])
    (1.0, 16.0)
    """

    record = OptimizerRecord(
        "ProximalAdagradParameters", "proximal_adagrad", PENALTIES,
        (Slot("accumulators", "ProximalAdagrad", "accumulator", "initial_accumulator"),),
        ranges={"initial_accumulator": Range.ABOVE_0,
                **dict.fromkeys(PENALTIES.values(), Range.AT_LEAST_0)},
        sentences={"initial_accumulator": "Adagrad initial_accumulator must be positive."})

    initial_accumulator: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0

    @property
    def hyperparameters(self) -> Mapping[str, float]:
        return {"l1": self.l1_regularization_strength, "l2": self.l2_regularization_strength}

    def update(self, gradient: Tensor, row: Tensor, slots: SlotRows, learning_rate: Tensor,
               step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        import tensorflow as tf  # not above: names of slots are read without it
        accumulator = slots["accumulators"] + tf.square(gradient)
        rate = learning_rate / tf.sqrt(accumulator)
        row = soft_threshold(row - rate * gradient, rate, self.l1_regularization_strength,
                             self.l2_regularization_strength)
        return row, {"accumulators": accumulator}
