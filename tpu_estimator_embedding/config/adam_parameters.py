# SPDX-License-Identifier: Apache-2.0
"""Settings of Adam and of Yogi."""

import dataclasses

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.config.common_parameters import (
    _OptimizationParameters,
    check_above_0,
    check_at_least_0,
    check_decay_rate,
)
from tpu_estimator_embedding.config.former_keywords import former_keywords


@former_keywords(pipeline_execution_with_tensor_core="passed to EmbeddingConfigSpec instead")
@dataclasses.dataclass(eq=False)
class AdamParameters(_OptimizationParameters):
    """Settings of Adam without bias correction; equation in `optimizers.adam`.

    Attributes:
        beta1: decay rate of the first moment, in [0, 1).
        beta2: decay rate of the second moment, in [0, 1).
        epsilon: added to the denominator, above 0.
        lazy_adam: whether rows that a step did not look up stay unchanged.
        sum_inside_sqrt: whether epsilon is squared and added under the root.
        The others are those of all optimizers.

    Raises:
        ValueError: if a value is outside its range, or neither lazy_adam nor
            use_gradient_accumulation is set.

    >>> AdamParameters(0.001, epsilon=1e-6).beta2
    0.999
    """

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-08
    lazy_adam: bool = True
    sum_inside_sqrt: bool = True
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay_rate("beta1", self.beta1)
        check_decay_rate("beta2", self.beta2)
        check_above_0("epsilon", self.epsilon, sentence="epsilon must be positive.")
        checks.check(self.use_gradient_accumulation or self.lazy_adam,
                     "use_gradient_accumulation", "True where lazy_adam is False",
                     self.use_gradient_accumulation, sentence=
                     "When disabling Lazy Adam, gradient accumulation must be used.")


@dataclasses.dataclass(eq=False)
class ProximalYogiParameters(_OptimizationParameters):
    """Settings of Yogi with regularization; equation in `optimizers.proximal_yogi`.

    Attributes:
        beta1: decay rate of the first moment, in [0, 1).
        beta2: decay rate of the second moment, in [0, 1).
        epsilon: added to the denominator, above 0.
        l1_regularization_strength: at least 0.
        l2_regularization_strength: at least 0.
        initial_accumulator_value: value every second moment starts with, at least 0.
        The others are those of all optimizers.

    Raises:
        ValueError: if a value is outside its range.

    >>> ProximalYogiParameters().learning_rate
    0.01
    """

    learning_rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-3
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    initial_accumulator_value: float = 1e-6
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay_rate("beta1", self.beta1)
        check_decay_rate("beta2", self.beta2)
        check_above_0("epsilon", self.epsilon, sentence="epsilon must be positive.")
        check_at_least_0("l1_regularization_strength", self.l1_regularization_strength)
        check_at_least_0("l2_regularization_strength", self.l2_regularization_strength)
        check_at_least_0("initial_accumulator_value", self.initial_accumulator_value)
