# SPDX-License-Identifier: Apache-2.0
"""The update of a looked-up row in one step: clip, decay, rule, clip.

    g    = clip(g, clip_gradient_min, clip_gradient_max)
    w    = w - weight_decay_factor * w * (learning_rate if multiplied else 1)
    w, s = rule.update(g, w, s, learning_rate, step)
    w    = clip(w, clip_weight_min, clip_weight_max)

g is the gradient after the gradient multiplier, summed over everything that looked the
row up in the step. Source: comments of TensorFlow's
`optimization_parameters.proto` ("decoupled" weight decay, limits applied on each
backward pass).
"""

import dataclasses

from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.types import LearningRate, SlotRows, Tensor

Limits = tuple[float | None, float | None]


@dataclasses.dataclass(frozen=True)
class RowOptimizer:
    """A rule with the settings that every rule shares.

    Attributes:
        rule: the optimizer's arithmetic.
        learning_rate: a float, or a function of the global step.
        use_gradient_accumulation: whether a row gets one update per step, from the sum
            over all replicas, instead of one per replica.
        gradient_limits: (min, max) of the summed gradient; None means no limit.
        weight_limits: (min, max) of the weights after the update.
        weight_decay_factor: share of the weight subtracted before the update; 0 means no decay.
        multiply_weight_decay_by_learning_rate: scales the decay by the learning rate.
    """

    rule: UpdateRule
    learning_rate: LearningRate
    use_gradient_accumulation: bool = True
    gradient_limits: Limits = (None, None)
    weight_limits: Limits = (None, None)
    weight_decay_factor: float = 0.0
    multiply_weight_decay_by_learning_rate: bool = False

    def update(self, gradient: Tensor, row: Tensor, slots: SlotRows, learning_rate: Tensor,
               step: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns `(row, slots)` after one step; shapes as in `UpdateRule.update`."""
        gradient = clip(gradient, self.gradient_limits)
        row = self._decay(row, learning_rate)
        row, slots = self.rule.update(gradient, row, slots, learning_rate, step)
        return clip(row, self.weight_limits), slots

    def _decay(self, row: Tensor, learning_rate: Tensor) -> Tensor:
        if not self.weight_decay_factor:
            return row
        scale = learning_rate if self.multiply_weight_decay_by_learning_rate else 1.0
        return row - self.weight_decay_factor * scale * row

    def __str__(self) -> str:
        rate = self.learning_rate
        text = getattr(rate, "__name__", "a function") if callable(rate) else f"{rate:g}"
        return f"{type(self.rule).__name__}({text})"


def clip(values: Tensor, limits: Limits) -> Tensor:
    """Returns `values` clipped to the limits that are not None."""
    import tensorflow as tf  # not above: names of slots are read without it
    low, high = limits
    if low is not None:
        values = tf.maximum(values, low)
    return values if high is None else tf.minimum(values, high)
