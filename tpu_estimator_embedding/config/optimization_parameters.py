# SPDX-License-Identifier: Apache-2.0
"""The `*Parameters` classes: the optimizer of a table and its settings.

Names, order of arguments and defaults are those of TensorFlow 2.15; the update rules have the
defaults and ranges of their settings. Calls written for earlier releases work too, except where an
error says otherwise.

>>> AdagradParameters(0.1, clip_gradient_max=5.0, use_gradient_accumulation=False)
Traceback (most recent call last):
ValueError: When using gradient clipping limits, gradient  accumulation must be enabled. \
`use_gradient_accumulation` must be True where clip_gradient_min or clip_gradient_max is given, \
got False.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tpu_estimator_embedding import checks, other_api
from tpu_estimator_embedding.config.former_keywords import former_keywords
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adagrad_momentum import AdagradMomentum
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.ftrl import FTRL
from tpu_estimator_embedding.optimizers.momentum import Momentum
from tpu_estimator_embedding.optimizers.proximal_adagrad import ProximalAdagrad
from tpu_estimator_embedding.optimizers.proximal_yogi import ProximalYogi
from tpu_estimator_embedding.optimizers.record import Range
from tpu_estimator_embedding.optimizers.registry import records, rule_of, rules_by_parameters
from tpu_estimator_embedding.optimizers.setting_checks import (
    check_accumulates_unless_lazy,
    check_finite_rate,
    check_limits,
    check_ranges,
    check_settings,
)

_NO_PARAMETERS = "`optimization_parameters` must inherit from `_OptimizationParameters`."

# TensorFlow's sentences for values outside of a range.
_SENTENCES = {Range.AT_LEAST_0: "{} must be greater than or equal to 0.",
              Range.AT_MOST_0: "{} must be less than or equal to 0.",
              Range.DECAY_RATE: "{} must be between 0. and 1."}


class _OptimizationParameters:
    """Settings that every optimizer has, with the names of TensorFlow's v1 TPU embedding.

    The name is TensorFlow's; programs test for it. Each subclass lists all its fields,
    because TensorFlow's order mixes them. As in TensorFlow, an object is mutable and equal
    only to itself; a plan reads its values when the plan is built.

    Attributes:
        learning_rate: a number, which a rate of the table overrides.
        use_gradient_accumulation: whether a row gets one update per step, from the sum
            over all replicas, instead of one per replica.
        clip_weight_min: lower limit of the weights after each update; None means no limit.
        clip_weight_max: upper limit of the weights after each update; None means no limit.
        weight_decay_factor: share of a weight subtracted before each update; None means no decay.
        multiply_weight_decay_factor_by_learning_rate: whether the decay is scaled by the
            learning rate.
        clip_gradient_min: lower limit of the summed gradient; None means no limit.
        clip_gradient_max: upper limit of the summed gradient; None means no limit.

    Raises:
        ValueError: if gradients are clipped without being accumulated, a lower limit is above
            the upper one, a number is NaN or a flag is neither True nor False.
        TypeError: if the learning rate or another setting is not a number.
    """

    learning_rate: float
    use_gradient_accumulation: bool
    clip_weight_min: float | None
    clip_weight_max: float | None
    weight_decay_factor: float | None
    multiply_weight_decay_factor_by_learning_rate: bool | None
    clip_gradient_min: float | None
    clip_gradient_max: float | None

    def __post_init__(self) -> None:
        check_learning_rate(self.learning_rate)
        check_settings(self)
        check_limits("clip_gradient", self.clip_gradient_min, self.clip_gradient_max)
        clips_gradient = not (self.clip_gradient_min is None and self.clip_gradient_max is None)
        checks.check(
            self.use_gradient_accumulation or not clips_gradient, "use_gradient_accumulation",
            "True where clip_gradient_min or clip_gradient_max is given",
            self.use_gradient_accumulation,
            sentence="When using gradient clipping limits, gradient  accumulation must be enabled.")
        rule = rule_of(type(self), rules_by_parameters())
        if rule is not None:
            check_ranges(rule.record, self, _complaint)


def is_optimization_parameters(value: object) -> bool:
    """Whether `value` is one of the `*Parameters`, of this package or of TensorFlow's.

    TensorFlow 2.15 has classes of the same names and attributes. A program has instances of
    those if it imported them before `install()` replaced them.
    """
    return any(base.__name__ == _OptimizationParameters.__name__ for base in type(value).__mro__)


def check_optimization_parameters(argument: str, value: object, *,
                                  sentence: str = _NO_PARAMETERS) -> None:
    """Raises ValueError unless `value` is one of the `*Parameters`."""
    checks.check(is_optimization_parameters(value), argument,
                 "one of the *Parameters, such as AdagradParameters", value,
                 other_api.estimator_import(value), sentence=sentence)


def check_learning_rate(value: Any) -> None:
    """Raises TypeError unless `value` is a number, ValueError unless it is finite."""
    check_finite_rate(
        value, "a number", "Pass a function of the global step as learning_rate_fn of TableConfig "
        "or of embedding_column for a rate that changes.")


def _complaint(setting: str, allowed: Range, value: object, sentence: str) -> str:
    return checks.complaint(setting, allowed.value, value,
                            sentence=sentence or _SENTENCES[allowed].format(setting))


@dataclasses.dataclass(eq=False)
class FrequencyEstimatorParameters(_OptimizationParameters):
    """Settings of a table of one column that learns how rarely each id is looked up.

    The equation is in `optimizers.frequency_estimator`. The gradient is not used, but a
    step without one does not update: give the model `tf.stop_gradient` of the activation.
    TensorFlow requires a learning_rate_fn that returns the global step; here the step is
    always the global step. As in TensorFlow, learning_rate is 1, use_gradient_accumulation is
    True, and all limits and decays are None; they are not arguments.

    Attributes:
        tau: weight of the newest distance between two lookups, in (0, 1).
        max_delta: largest distance that counts.
        outlier_threshold: a distance of this many means or more replaces the mean.
        weight_exponent: exponent of the weight `(distance / max_delta) ** weight_exponent`.
            Activations are distances; a model that needs weights computes them from the
            distances. Building a plan logs this warning once.

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
        learning_rate, use_gradient_accumulation, clip_weight_min, clip_weight_max,
            weight_decay_factor, multiply_weight_decay_factor_by_learning_rate,
            clip_gradient_min, clip_gradient_max: as in StochasticGradientDescentParameters.

    Raises:
        ValueError: if a value is outside its range.

    >>> FtrlParameters(0.05, initial_accumulator_value=0.0).learning_rate_power
    -0.5
    """

    learning_rate: float
    learning_rate_power: float = FTRL.learning_rate_power
    initial_accumulator_value: float = FTRL.initial_accumulator_value
    l1_regularization_strength: float = FTRL.l1_regularization_strength
    l2_regularization_strength: float = FTRL.l2_regularization_strength
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    multiply_linear_by_learning_rate: bool = FTRL.multiply_linear_by_learning_rate
    beta: float = 0  # prints as TensorFlow's does
    allow_zero_accumulator: bool = False
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    initial_linear_value = 0.0  # not a field: TensorFlow has the attribute, not the argument


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
        learning_rate, use_gradient_accumulation, clip_weight_min, clip_weight_max,
            weight_decay_factor, multiply_weight_decay_factor_by_learning_rate,
            clip_gradient_min, clip_gradient_max: as in StochasticGradientDescentParameters.

    Raises:
        ValueError: if a value is outside its range, or neither lazy_adam nor
            use_gradient_accumulation is set.

    >>> AdamParameters(0.001, epsilon=1e-6).beta2
    0.999
    """

    learning_rate: float
    beta1: float = Adam.beta1
    beta2: float = Adam.beta2
    epsilon: float = Adam.epsilon
    lazy_adam: bool = Adam.lazy_adam
    sum_inside_sqrt: bool = Adam.sum_inside_sqrt
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_accumulates_unless_lazy(
            self, "When disabling Lazy Adam, gradient accumulation must be used.")


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
        learning_rate, use_gradient_accumulation, clip_weight_min, clip_weight_max,
            weight_decay_factor, multiply_weight_decay_factor_by_learning_rate,
            clip_gradient_min, clip_gradient_max: as in StochasticGradientDescentParameters.

    Raises:
        ValueError: if a value is outside its range.

    >>> ProximalYogiParameters().learning_rate
    0.01
    """

    learning_rate: float = 0.01
    beta1: float = ProximalYogi.beta1
    beta2: float = ProximalYogi.beta2
    epsilon: float = ProximalYogi.epsilon
    l1_regularization_strength: float = ProximalYogi.l1_regularization_strength
    l2_regularization_strength: float = ProximalYogi.l2_regularization_strength
    initial_accumulator_value: float = ProximalYogi.initial_accumulator_value
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None


@former_keywords(pipeline_execution_with_tensor_core="passed to EmbeddingConfigSpec instead")
@dataclasses.dataclass(eq=False)
class AdagradParameters(_OptimizationParameters):
    """Settings of Adagrad; equation in `optimizers.adagrad`.

    Attributes:
        initial_accumulator: value every accumulator starts with, above 0.
        learning_rate, use_gradient_accumulation, clip_weight_min, clip_weight_max,
            weight_decay_factor, multiply_weight_decay_factor_by_learning_rate,
            clip_gradient_min, clip_gradient_max: as in StochasticGradientDescentParameters.

    Raises:
        ValueError: if a value is outside its range.

    >>> AdagradParameters(0.05).initial_accumulator
    0.1
    """

    learning_rate: float
    initial_accumulator: float = Adagrad.initial_accumulator
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None


@dataclasses.dataclass(eq=False)
class ProximalAdagradParameters(_OptimizationParameters):
    """Settings of Adagrad with regularization; equation in `optimizers.proximal_adagrad`.

    Attributes:
        initial_accumulator: value every accumulator starts with, above 0.
        l1_regularization_strength: at least 0.
        l2_regularization_strength: at least 0.
        learning_rate, use_gradient_accumulation, clip_weight_min, clip_weight_max,
            weight_decay_factor, multiply_weight_decay_factor_by_learning_rate,
            clip_gradient_min, clip_gradient_max: as in StochasticGradientDescentParameters.

    Raises:
        ValueError: if a value is outside its range.

    >>> ProximalAdagradParameters(0.05, l1_regularization_strength=0.001).learning_rate
    0.05
    """

    learning_rate: float
    initial_accumulator: float = ProximalAdagrad.initial_accumulator
    l1_regularization_strength: float = ProximalAdagrad.l1_regularization_strength
    l2_regularization_strength: float = ProximalAdagrad.l2_regularization_strength
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None


@dataclasses.dataclass(eq=False)
class AdagradMomentumParameters(_OptimizationParameters):
    """Settings of Adagrad with momentum; equation in `optimizers.adagrad_momentum`.

    Attributes:
        momentum: decay factor of the momentum.
        use_nesterov: whether to use Nesterov momentum.
        exponent: root of the accumulator, above 0; 2 is the square root.
        beta2: 1 sums squared gradients, below 1 averages them.
        epsilon: added to the accumulator, above 0.
        learning_rate, use_gradient_accumulation, clip_weight_min, clip_weight_max,
            weight_decay_factor, multiply_weight_decay_factor_by_learning_rate,
            clip_gradient_min, clip_gradient_max: as in StochasticGradientDescentParameters.

    Raises:
        ValueError: if a value is outside its range.

    >>> AdagradMomentumParameters(0.05, momentum=0.9).exponent
    2
    """

    learning_rate: float
    momentum: float
    use_nesterov: bool = AdagradMomentum.use_nesterov
    exponent: float = AdagradMomentum.exponent
    beta2: float = AdagradMomentum.beta2
    epsilon: float = AdagradMomentum.epsilon
    use_gradient_accumulation: bool = True
    clip_weight_min: float | None = None
    clip_weight_max: float | None = None
    weight_decay_factor: float | None = None
    multiply_weight_decay_factor_by_learning_rate: bool | None = None
    clip_gradient_min: float | None = None
    clip_gradient_max: float | None = None


@former_keywords(pipeline_execution_with_tensor_core="passed to EmbeddingConfigSpec instead")
@dataclasses.dataclass(eq=False)
class StochasticGradientDescentParameters(_OptimizationParameters):
    """Settings of stochastic gradient descent; equation in `optimizers.sgd`.

    In releases up to 2.4 the second argument was clip_weight_min; a number in its place is an
    error here.

    Attributes:
        learning_rate: a number, which a rate of the table overrides.
        use_gradient_accumulation: whether a row gets one update per step, from the sum
            over all replicas, instead of one per replica.
        clip_weight_min: lower limit of the weights after each update; None means no limit.
        clip_weight_max: upper limit of the weights after each update; None means no limit.
        weight_decay_factor: share of a weight subtracted before each update; None means no decay.
        multiply_weight_decay_factor_by_learning_rate: whether the decay is scaled by the
            learning rate.
        clip_gradient_min: lower limit of the summed gradient; None means no limit.
        clip_gradient_max: upper limit of the summed gradient; None means no limit.

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
        learning_rate, use_gradient_accumulation, clip_weight_min, clip_weight_max,
            weight_decay_factor, multiply_weight_decay_factor_by_learning_rate,
            clip_gradient_min, clip_gradient_max: as in StochasticGradientDescentParameters.

    >>> MomentumParameters(0.1, momentum=0.9).use_nesterov
    False
    """

    learning_rate: float
    momentum: float
    use_nesterov: bool = Momentum.use_nesterov
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
        learning_rate, use_gradient_accumulation, clip_weight_min, clip_weight_max,
            weight_decay_factor, multiply_weight_decay_factor_by_learning_rate,
            clip_gradient_min, clip_gradient_max: as in StochasticGradientDescentParameters.

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


# Name of a class of settings -> the class, of all optimizers.
PARAMETERS: Mapping[str, type[_OptimizationParameters]] = {
    record.parameters: globals()[record.parameters] for record in records()}

__all__ = [*PARAMETERS, "_OptimizationParameters"]  # noqa: PLE0604 (strings)
