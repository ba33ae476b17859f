# SPDX-License-Identifier: Apache-2.0
"""Follow the regularized leader."""

import dataclasses
from collections.abc import Mapping

from tpu_estimator_embedding.optimizers.record import PENALTIES, OptimizerRecord, Range, Slot, same
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.types import SlotRows, Tensor


@dataclasses.dataclass(frozen=True)
class FTRL(UpdateRule):
    """Follow the regularized leader, proximal.

        a' = a + g²
        Δ  = a'^-p - a^-p
        z  = z + g - Δ w / η
        w  = (clip(z, -l1, l1) - z) / ((a'^-p + β) / η + 2 l2)

    or, with multiply_linear_by_learning_rate, which allows a learning rate of 0,

        z  = z + η g - Δ w
        w  = (clip(z, -η l1, η l1) - z) / (a'^-p + β + 2 η l2)

    w: weights, g: summed gradient, a: slot `accumulators`, z: slot `linears`, η: learning
    rate, above 0 in the first form. Where the denominator is 0, that is for an accumulator, β
    and l2 of 0, w is 0, so an accumulator may start at 0.

    Attributes:
        learning_rate_power: p, at most 0; the rate falls as a^p, 0 keeps it fixed.
        initial_accumulator_value: value every `accumulators` starts with, at least 0.
        l1_regularization_strength: l1, at least 0.
        l2_regularization_strength: l2, at least 0.
        multiply_linear_by_learning_rate: selects between the two forms.
        beta: β.

    Source: H. B. McMahan et al., "Ad Click Prediction: a View from the Trenches",
    KDD 2013; 2 l2 as in `tf.compat.v1.train.FtrlOptimizer`.

    >>> import tensorflow as tf
    >>> row, slots = FTRL(l1_regularization_strength=1.0).update(
    ...     tf.constant([[4.0]]), tf.constant([[0.5]]),
    ...     {"accumulators": tf.constant([[9.0]]), "linears": tf.constant([[-1.0]])},
    ...     learning_rate=0.5, step=0)
    >>> float(row[0, 0]), float(slots["accumulators"][0, 0]), float(slots["linears"][0, 0])
    (0.0, 25.0, 1.0)
    """

    record = OptimizerRecord(
        "FtrlParameters", "ftrl",
        {**same("beta", "allow_zero_accumulator"), **PENALTIES, "lr_power": "learning_rate_power",
         "multiply_linear_by_lr": "multiply_linear_by_learning_rate"},
        (Slot("accumulators", "Ftrl", "accumulator", "initial_accumulator_value",
              has_dense_namesake=True, keras="accumulator"),
         Slot("linears", "Ftrl_1", "linear", has_dense_namesake=True, keras="linear")),
        v2_attributes={},
        ranges={"learning_rate_power": Range.AT_MOST_0, **dict.fromkeys(
            ["initial_accumulator_value", *PENALTIES.values()], Range.AT_LEAST_0)})

    learning_rate_power: float = -0.5
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    multiply_linear_by_learning_rate: bool = False
    beta: float = 0.0

    @property
    def hyperparameters(self) -> Mapping[str, float]:
        return {"power": -self.learning_rate_power, "l1": self.l1_regularization_strength,
                "l2": self.l2_regularization_strength, "beta": self.beta,
                "multiply_linear_by_learning_rate": self.multiply_linear_by_learning_rate}

    @property
    def divides_by_learning_rate(self) -> bool:
        return not self.multiply_linear_by_learning_rate

    def update(self, gradient: Tensor, row: Tensor, slots: SlotRows, learning_rate: Tensor,
               step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        import tensorflow as tf  # not above: names of slots are read without it
        l1: Tensor | float = self.l1_regularization_strength
        l2 = self.l2_regularization_strength
        accumulator = slots["accumulators"] + tf.square(gradient)
        power = self._power(accumulator)
        shift = (power - self._power(slots["accumulators"])) * row
        if self.multiply_linear_by_learning_rate:
            linear = slots["linears"] + learning_rate * gradient - shift
            l1 = learning_rate * l1
            scale = power + self.beta + 2.0 * learning_rate * l2
        else:
            linear = slots["linears"] + gradient - shift / learning_rate
            scale = (power + self.beta) / learning_rate + 2.0 * l2
        row = tf.math.divide_no_nan(tf.clip_by_value(linear, -l1, l1) - linear, scale)
        return row, {"accumulators": accumulator, "linears": linear}

    def _power(self, accumulator: Tensor) -> Tensor:
        import tensorflow as tf
        if self.learning_rate_power == -0.5:
            return tf.sqrt(accumulator)  # the default exponent; several times faster than pow
        return tf.pow(accumulator, -self.learning_rate_power)
