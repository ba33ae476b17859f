# SPDX-License-Identifier: Apache-2.0
"""A table of one column that learns how often each id is looked up."""

import dataclasses
from collections.abc import Mapping

from tpu_estimator_embedding.optimizers.record import OptimizerRecord, Slot, same
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.types import SlotRows, Tensor


@dataclasses.dataclass(frozen=True)
class FrequencyEstimator(UpdateRule):
    """Mean number of steps between two lookups of a row; the gradient is not used.

        δ = S - L
        c = min(δ, max_delta)
        w = c                     if δ ≥ outlier_threshold · w, else
        w = (1 - τ) w + τ c
        L = S

    w: the row, about one over the probability that a step looks it up; S: global step,
    L: slot `last_hit_step`. Steps are float32, exact up to 2²⁴.

    Attributes:
        tau: τ, in (0, 1): weight of the newest distance.
        max_delta: largest distance that counts.
        outlier_threshold: a distance of this many means or more replaces the mean.

    Source: comments of TensorFlow's `optimization_parameters.proto`; X. Yi et al.,
    "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations",
    RecSys 2019, section 5.

    >>> import tensorflow as tf
    >>> row, slots = FrequencyEstimator(tau=0.25, max_delta=100.0, outlier_threshold=3.0).update(
    ...     tf.constant([[0.0]]), tf.constant([[4.0]]), {"last_hit_step": tf.constant([[10.0]])},
    ...     learning_rate=1.0, step=18)
    >>> float(row[0, 0]), float(slots["last_hit_step"][0, 0])
    (5.0, 18.0)
    """

    record = OptimizerRecord(
        "FrequencyEstimatorParameters", "frequency_estimator",
        same("tau", "max_delta", "outlier_threshold", "weight_exponent"),
        (Slot("last_hit_step", "FrequencyEstimator", "last_hit_step"),))

    tau: float
    max_delta: float
    outlier_threshold: float

    @property
    def hyperparameters(self) -> Mapping[str, float]:
        return {"tau": self.tau, "one_minus_tau": 1.0 - self.tau, "max_delta": self.max_delta,
                "outlier_threshold": self.outlier_threshold}

    def update(self, gradient: Tensor, row: Tensor, slots: SlotRows, learning_rate: Tensor,
               step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        import tensorflow as tf  # not above: names of slots are read without it
        last_hit_step = tf.fill(tf.shape(row), tf.cast(step, tf.float32))
        delta = last_hit_step - slots["last_hit_step"]
        distance = tf.minimum(delta, self.max_delta)
        mean = (1.0 - self.tau) * row + self.tau * distance
        row = tf.where(delta >= self.outlier_threshold * row, distance, mean)
        return row, {"last_hit_step": last_hit_step}
