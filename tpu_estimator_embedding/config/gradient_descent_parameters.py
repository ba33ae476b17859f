# SPDX-License-Identifier: Apache-2.0
"""Settings of gradient descent, with momentum or without, and of RMSProp."""

import dataclasses

from tpu_estimator_embedding.config.common_parameters import _OptimizationParameters
from tpu_estimator_embedding.config.former_keywords import former_keywords


@former_keywords(pipeline_execution_with_tensor_core="passed to EmbeddingConfigSpec instead")
@dataclasses.dataclass(eq=False)
class StochasticGradientDescentParameters(_OptimizationParameters):
    """Settings of stochastic gradient descent; equation in `optimizers.sgd`.

    Attributes are those of all optimizers. In releases up to 2.4 the second argument was
    clip_weight_min; a number in its place is an error here.

    >>> StochasticGradientDescentParameters(0.1, clip_weight_max=1.0).clip_weight_max
    1.0
    """

    learning_rate: float
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None


@dataclasses.dataclass(eq=False)
class MomentumParameters(_OptimizationParameters):
    """Settings of gradient descent with momentum; equation in `optimizers.momentum`.

    Attributes:
        momentum: share of the momentum that stays.
        use_nesterov: whether a step looks ahead along the momentum.
        The others are those of all optimizers.

    >>> MomentumParameters(0.1, momentum=0.9).use_nesterov
    False
    """

    learning_rate: float
    momentum: float
    use_nesterov: bool = False
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None


@dataclasses.dataclass(eq=False)
class RMSPropParameters(_OptimizationParameters):
    """Settings of RMSProp with momentum; equation in `optimizers.rmsprop`.

    Attributes:
        rho: share of the mean square that stays.
        momentum: share of the momentum that stays.
        epsilon: added to the mean square under the root.
        The others are those of all optimizers.

    >>> RMSPropParameters(0.1, rho=0.9, momentum=0.0, epsilon=1e-7).rho
    0.9
    """

    learning_rate: float
    rho: float
    momentum: float
    epsilon: float
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None
