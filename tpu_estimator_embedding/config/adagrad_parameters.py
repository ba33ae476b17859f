# SPDX-License-Identifier: Apache-2.0
"""Settings of Adagrad and of the optimizers derived from it."""

import dataclasses

from tpu_estimator_embedding.config.common_parameters import (
    _OptimizationParameters,
    check_above_0,
    check_at_least_0,
)
from tpu_estimator_embedding.config.former_keywords import former_keywords


@former_keywords(pipeline_execution_with_tensor_core="passed to EmbeddingConfigSpec instead")
@dataclasses.dataclass(eq=False)
class AdagradParameters(_OptimizationParameters):
    """Settings of Adagrad; equation in `optimizers.adagrad`.

    Attributes:
        initial_accumulator: value every accumulator starts with, above 0.
        The others are those of all optimizers.

    Raises:
        ValueError: if a value is outside its range.

    >>> AdagradParameters(0.05).initial_accumulator
    0.1
    """

    learning_rate: float
    initial_accumulator: float = 0.1
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_above_0("initial_accumulator", self.initial_accumulator,
                      sentence="Adagrad initial_accumulator must be greater than zero.")


@dataclasses.dataclass(eq=False)
class ProximalAdagradParameters(_OptimizationParameters):
    """Settings of Adagrad with regularization; equation in `optimizers.proximal_adagrad`.

    Attributes:
        initial_accumulator: value every accumulator starts with, above 0.
        l1_regularization_strength: at least 0.
        l2_regularization_strength: at least 0.
        The others are those of all optimizers.

    Raises:
        ValueError: if a value is outside its range.

    >>> ProximalAdagradParameters(0.05, l1_regularization_strength=0.001).learning_rate
    0.05
    """

    learning_rate: float
    initial_accumulator: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_above_0("initial_accumulator", self.initial_accumulator,
                      sentence="Adagrad initial_accumulator must be positive.")
        check_at_least_0("l1_regularization_strength", self.l1_regularization_strength)
        check_at_least_0("l2_regularization_strength", self.l2_regularization_strength)


@dataclasses.dataclass(eq=False)
class AdagradMomentumParameters(_OptimizationParameters):
    """Settings of Adagrad with momentum; equation in `optimizers.adagrad_momentum`.

    Attributes:
        momentum: decay factor of the momentum.
        use_nesterov: whether to use Nesterov momentum.
        exponent: root of the accumulator, above 0; 2 is the square root.
        beta2: 1 sums squared gradients, below 1 averages them.
        epsilon: added to the accumulator, above 0.
        The others are those of all optimizers.

    Raises:
        ValueError: if a value is outside its range.

    >>> AdagradMomentumParameters(0.05, momentum=0.9).exponent
    2
    """

    learning_rate: float
    momentum: float
    use_nesterov: bool = False
    exponent: float = 2
    beta2: float = 1
    epsilon: float = 1e-10
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_above_0("epsilon", self.epsilon,
                      sentence="Adagrad momentum: epsilon must be positive.")
        check_above_0("exponent", self.exponent,
                      sentence="Adagrad momentum: Precondition exponent must >0.")
