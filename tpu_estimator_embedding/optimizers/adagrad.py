# SPDX-License-Identifier: Apache-2.0
"""Adagrad."""

import dataclasses

from tpu_estimator_embedding.optimizers.record import OptimizerRecord, Range, Slot
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.types import SlotRows, Tensor


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

    >>> import tensorflow as tf
    >>> row, slots = Adagrad().update(
    ...     tf.constant([[2.0]]), tf.constant([[1.0]]), {"accumulators": tf.constant([[5.0]])},
    ...     learning_rate=0.5, step=0)
    >>> float(row[0, 0]), float(slots["accumulators"][0, 0])
    (0.6666666269302368, 9.0)
    """

    record = OptimizerRecord(
        "AdagradParameters", "adagrad",
        slots=(Slot("accumulators", "Adagrad", "accumulator", "initial_accumulator",
                    has_dense_namesake=True, keras="accumulator"),),
        v2_attributes={"initial_accumulator": "initial_accumulator_value"},
        ranges={"initial_accumulator": Range.ABOVE_0},
        sentences={"initial_accumulator":
                   "Adagrad initial_accumulator must be greater than zero."})

    initial_accumulator: float = 0.1

    def update(self, gradient: Tensor, row: Tensor, slots: SlotRows, learning_rate: Tensor,
               step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        import tensorflow as tf  # not above: names of slots are read without it
        accumulator = slots["accumulators"] + tf.square(gradient)
        row = row - learning_rate * gradient / tf.sqrt(accumulator)
        return row, {"accumulators": accumulator}
