# SPDX-License-Identifier: Apache-2.0
"""Settings of the frequency estimator."""

import dataclasses

from tpu_estimator_embedding.config.common_parameters import _OptimizationParameters


@dataclasses.dataclass(eq=False)
class FrequencyEstimatorParameters(_OptimizationParameters):
    """Settings of a table of one column that learns how rarely each id is looked up.

    The equation is in `optimizers.frequency_estimator`. The gradient is not used, but a
    step without one does not update: give the model `tf.stop_gradient` of the activation.
    TensorFlow requires a learning_rate_fn that returns the global step; here the step is
    always the global step.

    Attributes:
        tau: weight of the newest distance between two lookups, in (0, 1).
        max_delta: largest distance that counts.
        outlier_threshold: a distance of this many means or more replaces the mean.
        weight_exponent: exponent of the weight `(distance / max_delta) ** weight_exponent`.
            Activations are distances; a model that needs weights computes them from the
            distances. Building a plan logs this warning once.
        The others have the values that TensorFlow sets.

    >>> FrequencyEstimatorParameters(0.1, 1000.0, 5.0, 1.0).learning_rate
    1.0
    """

    tau: float
    max_delta: float
    outlier_threshold: float
    weight_exponent: float

    learning_rate = 1.0
    use_gradient_accumulation = True
    clip_weight_min = None
    clip_weight_max = None
    weight_decay_factor = None
    multiply_weight_decay_factor_by_learning_rate = None
    clip_gradient_min = None
    clip_gradient_max = None
