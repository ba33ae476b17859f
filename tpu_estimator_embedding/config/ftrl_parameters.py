# SPDX-License-Identifier: Apache-2.0
"""Settings of FTRL."""

import dataclasses

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.config.common_parameters import (
    _OptimizationParameters,
    check_at_least_0,
)


@dataclasses.dataclass(eq=False)
class FtrlParameters(_OptimizationParameters):
    """Settings of follow the regularized leader; equation in `optimizers.ftrl`.

    Attributes:
        learning_rate_power: power of the accumulator that scales the rate, at most 0.
        initial_accumulator_value: value every accumulator starts with, at least 0.
        l1_regularization_strength: at least 0.
        l2_regularization_strength: at least 0.
        multiply_linear_by_learning_rate: whether the linear slot includes the learning
            rate, which allows a rate of 0.
        beta: added to the root of the accumulator.
        allow_zero_accumulator: requests arithmetic that tolerates an accumulator of 0.
            This package's always does, so the flag has no effect.
        The others are those of all optimizers.

    Raises:
        ValueError: if a value is outside its range.

    >>> FtrlParameters(0.05, initial_accumulator_value=0.0).learning_rate_power
    -0.5
    """

    learning_rate: float
    learning_rate_power: float = -0.5
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    multiply_linear_by_learning_rate: bool = False
    beta: float = 0
    allow_zero_accumulator: bool = False
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    initial_linear_value = 0.0  # not a field: TensorFlow has the attribute, not the argument

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.check(self.learning_rate_power <= 0, "learning_rate_power", "at most 0",
                     self.learning_rate_power,
                     sentence="learning_rate_power must be less than or equal to 0.")
        check_at_least_0("initial_accumulator_value", self.initial_accumulator_value)
        check_at_least_0("l1_regularization_strength", self.l1_regularization_strength)
        check_at_least_0("l2_regularization_strength", self.l2_regularization_strength)
