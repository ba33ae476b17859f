# SPDX-License-Identifier: Apache-2.0
"""Adagrad."""

import dataclasses

import tensorflow as tf

from tpu_estimator_embedding.optimizers.update_rule import UpdateRule


@dataclasses.dataclass(frozen=True)
class Adagrad(UpdateRule):
    """Adagrad without an epsilon.

        a = a + g²
        w = w - η g / √a

    w: weights, g: summed gradient, a: slot `accumulators`, η: learning rate.

    Attributes:
        initial_accumulator: value every `accumulators` starts with, above 0.

    Source: J. Duchi, E. Hazan, Y. Singer, "Adaptive Subgradient Methods for Online
    Learning and Stochastic Optimization", JMLR 12 (2011).

    >>> row, slots = Adagrad().update(
    ...     tf.constant([[2.0]]), tf.constant([[1.0]]), {"accumulators": tf.constant([[5.0]])},
    ...     learning_rate=0.5, step=0)
    >>> float(row[0, 0]), float(slots["accumulators"][0, 0])
    (0.6666666269302368, 9.0)
    """

    initial_accumulator: float = 0.1

    @property
    def slot_initial_values(self):
        return {"accumulators": self.initial_accumulator}

    def update(self, gradient, row, slots, learning_rate, step):
        accumulator = slots["accumulators"] + tf.square(gradient)
        row = row - learning_rate * gradient / tf.sqrt(accumulator)
        return row, {"accumulators": accumulator}
