# SPDX-License-Identifier: Apache-2.0
"""The optimizers of the TF2 API.

The update rules of the same names document the equations, and have the defaults and ranges of the
settings.

>>> Adagrad(0.1, clipvalue=2.0).clip_gradient_min
-2.0
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.config.optimizer import (
    ClipValue,
    _Optimizer,
    no_positive_float,
)
from tpu_estimator_embedding.optimizers.adagrad import Adagrad as AdagradRule
from tpu_estimator_embedding.optimizers.adagrad_momentum import (
    AdagradMomentum as AdagradMomentumRule,
)
from tpu_estimator_embedding.optimizers.adam import Adam as AdamRule
from tpu_estimator_embedding.optimizers.ftrl import FTRL as FTRLRule
from tpu_estimator_embedding.optimizers.setting_checks import check_accumulates_unless_lazy

LearningRate = float | Callable[[], Any]

# Called with the variable of a table, slot names and initializers.
SlotVariableCreationFn = Callable[..., Mapping[str, Any]]


@dataclasses.dataclass(unsafe_hash=True)
class SGD(_Optimizer):
    """Settings of gradient descent.

    Attributes:
        learning_rate: a number, or a function without arguments that returns one. Every
            `apply_gradients` calls the function once for all tables that share it.
        use_gradient_accumulation: whether a row gets one update per step, from the sum
            over all replicas, instead of one per replica.
        clip_weight_min: lower limit of the weights after each update; None means no limit.
        clip_weight_max: upper limit of the weights after each update; None means no limit.
        weight_decay_factor: share of a weight subtracted before each update; None means no decay.
        multiply_weight_decay_factor_by_learning_rate: whether the decay is scaled by the
            learning rate.
        clipvalue: limit of the absolute value of the summed gradient of a row, or a tuple
            (min, max); either may be None.
        low_dimensional_packing_status: whether a TPU packs several rows of 1, 2 or 4
            columns into one line of memory. It does not affect results.

    Raises:
        ValueError: if a value is outside its range, or gradients are clipped without being
            accumulated.
        TypeError: if the learning rate is neither a number nor callable.

    >>> SGD().learning_rate
    0.01
    """

    learning_rate: LearningRate = 0.01
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clipvalue: ClipValue | None = None
    low_dimensional_packing_status: bool = False


@dataclasses.dataclass(unsafe_hash=True)
class Adagrad(_Optimizer):
    """Settings of Adagrad.

    Attributes:
        initial_accumulator_value: value every accumulator starts with, above 0.
        slot_variable_creation_fn: called with the variable of a table, the names of its
            slots and their initializers; returns slot name -> variable. None creates them.
        learning_rate, use_gradient_accumulation, clip_weight_min, clip_weight_max,
            weight_decay_factor, multiply_weight_decay_factor_by_learning_rate, clipvalue,
            low_dimensional_packing_status: as in SGD.

    Raises:
        ValueError: if a value is outside its range.

    >>> Adagrad(0.1) == Adagrad(0.1), Adagrad(0.1) == Adagrad(0.2)
    (True, False)
    """

    learning_rate: LearningRate = 0.001
    initial_accumulator_value: float = AdagradRule.initial_accumulator
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    slot_variable_creation_fn: SlotVariableCreationFn | None = None
    clipvalue: ClipValue | None = None
    low_dimensional_packing_status: bool = False


@dataclasses.dataclass(unsafe_hash=True)
class AdagradMomentum(_Optimizer):
    """Settings of Adagrad with momentum.

    Attributes:
        momentum: decay factor of the momentum.
        use_nesterov: whether to use Nesterov momentum.
        exponent: root of the accumulator, above 0; 2 is the square root.
        beta2: 1 sums squared gradients, below 1 averages them.
        epsilon: added to the accumulator, above 0.
        slot_variable_creation_fn: called with the variable of a table, the names of its
            slots and their initializers; returns slot name -> variable. None creates them.
        learning_rate, use_gradient_accumulation, clip_weight_min, clip_weight_max,
            weight_decay_factor, multiply_weight_decay_factor_by_learning_rate, clipvalue,
            low_dimensional_packing_status: as in SGD.

    Raises:
        ValueError: if a value is outside its range.

    >>> AdagradMomentum(0.1, momentum=0.9).exponent
    2
    """

    learning_rate: LearningRate = 0.001
    momentum: float = AdagradMomentumRule.momentum
    use_nesterov: bool = AdagradMomentumRule.use_nesterov
    exponent: float = AdagradMomentumRule.exponent
    beta2: float = AdagradMomentumRule.beta2
    epsilon: float = AdagradMomentumRule.epsilon
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    slot_variable_creation_fn: SlotVariableCreationFn | None = None
    clipvalue: ClipValue | None = None
    low_dimensional_packing_status: bool = False


@dataclasses.dataclass(unsafe_hash=True)
class FTRL(_Optimizer):
    """Settings of follow the regularized leader.

    Attributes:
        learning_rate_power: power of the accumulator that scales the rate, at most 0; 0 keeps
            the rate fixed.
        l1_regularization_strength: at least 0.
        l2_regularization_strength: at least 0.
        beta: added to the root of the accumulator.
        initial_accumulator_value: value every accumulator starts with, above 0.
        multiply_linear_by_learning_rate: whether the slot `linears` includes the learning rate,
            which allows a rate of 0.
        allow_zero_accumulator: requests arithmetic that tolerates an accumulator of 0. This
            package's always does, so the flag has no effect.
        slot_variable_creation_fn: called with the variable of a table, the names of its
            slots and their initializers; returns slot name -> variable. None creates them.
        learning_rate, use_gradient_accumulation, clip_weight_min, clip_weight_max,
            weight_decay_factor, multiply_weight_decay_factor_by_learning_rate, clipvalue,
            low_dimensional_packing_status: as in SGD.

    Raises:
        ValueError: if a value is outside its range.

    >>> FTRL(0.1, l1_regularization_strength=0.01).learning_rate_power
    -0.5
    """

    learning_rate: LearningRate = 0.001
    learning_rate_power: float = FTRLRule.learning_rate_power
    l1_regularization_strength: float = FTRLRule.l1_regularization_strength
    l2_regularization_strength: float = FTRLRule.l2_regularization_strength
    beta: float = FTRLRule.beta
    initial_accumulator_value: float = FTRLRule.initial_accumulator_value
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    slot_variable_creation_fn: SlotVariableCreationFn | None = None
    clipvalue: ClipValue | None = None
    multiply_linear_by_learning_rate: bool = FTRLRule.multiply_linear_by_learning_rate
    allow_zero_accumulator: bool = False
    low_dimensional_packing_status: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        # The record also allows the 0 that the v1 API does.
        checks.check_with_sentence(self.initial_accumulator_value > 0, no_positive_float(
            "initial_accumulator_value", self.initial_accumulator_value))


@dataclasses.dataclass(unsafe_hash=True)
class Adam(_Optimizer):
    """Settings of Adam, without bias correction.

    Attributes:
        beta_1: decay rate of the first moment, in [0, 1).
        beta_2: decay rate of the second moment, in [0, 1).
        epsilon: added to the denominator, above 0.
        lazy_adam: whether rows that a step did not look up stay unchanged.
        sum_inside_sqrt: whether epsilon is squared and added under the root.
        slot_variable_creation_fn: called with the variable of a table, the names of its
            slots and their initializers; returns slot name -> variable. None creates them.
        learning_rate, use_gradient_accumulation, clip_weight_min, clip_weight_max,
            weight_decay_factor, multiply_weight_decay_factor_by_learning_rate, clipvalue,
            low_dimensional_packing_status: as in SGD.

    Raises:
        ValueError: if a value is outside its range, or neither lazy_adam nor
            use_gradient_accumulation is set.

    >>> Adam(lazy_adam=False).beta_2
    0.999
    """

    learning_rate: LearningRate = 0.001
    beta_1: float = AdamRule.beta1
    beta_2: float = AdamRule.beta2
    epsilon: float = 1e-07
    lazy_adam: bool = AdamRule.lazy_adam
    sum_inside_sqrt: bool = AdamRule.sum_inside_sqrt
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    slot_variable_creation_fn: SlotVariableCreationFn | None = None
    clipvalue: ClipValue | None = None
    low_dimensional_packing_status: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_accumulates_unless_lazy(
            self, "When disabling lazy Adam (`lazy_adam=False`), gradient accumulation must be "
            "used.")
