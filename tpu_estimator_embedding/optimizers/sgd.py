# SPDX-License-Identifier: Apache-2.0
"""Stochastic gradient descent."""

import dataclasses

from tpu_estimator_embedding.optimizers.record import OptimizerRecord
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.types import SlotRows, Tensor


@dataclasses.dataclass(frozen=True)
class SGD(UpdateRule):
    """Stochastic gradient descent.

        w = w - η g

    w: weights, g: summed gradient, η: learning rate. There are no slots.

    Source: H. Robbins, S. Monro, "A Stochastic Approximation Method", Annals of
    Mathematical Statistics 22 (1951).

    >>> import tensorflow as tf
    >>> row, slots = SGD().update(tf.constant([[2.0]]), tf.constant([[1.0]]), {},
    ...                           learning_rate=0.25, step=0)
    >>> float(row[0, 0]), slots
    (0.5, {})
    """

    record = OptimizerRecord(
        "StochasticGradientDescentParameters", "stochastic_gradient_descent", v2_attributes={})

    def update(self, gradient: Tensor, row: Tensor, slots: SlotRows, learning_rate: Tensor,
               step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return row - learning_rate * gradient, {}
