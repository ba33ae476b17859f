# SPDX-License-Identifier: Apache-2.0
"""The base class of all `*Parameters`."""

import numbers
from typing import Any

from tpu_estimator_embedding import checks, other_api


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
        ValueError: if gradients are clipped without being accumulated.
        TypeError: if the learning rate is not a number.
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
        _check_flag(self.use_gradient_accumulation)
        clips_gradient = not (self.clip_gradient_min is None and self.clip_gradient_max is None)
        checks.check(
            self.use_gradient_accumulation or not clips_gradient, "use_gradient_accumulation",
            "True where clip_gradient_min or clip_gradient_max is given",
            self.use_gradient_accumulation,
            sentence="When using gradient clipping limits, gradient  accumulation must be enabled.")


def is_optimization_parameters(value: Any) -> bool:
    """Whether `value` is one of the `*Parameters`, of this package or of TensorFlow's.

    TensorFlow 2.15 has classes of the same names and attributes. A program has instances of
    those if it imported them before `install()` replaced them.
    """
    return any(base.__name__ == _OptimizationParameters.__name__ for base in type(value).__mro__)


_NO_PARAMETERS = "`optimization_parameters` must inherit from `_OptimizationParameters`."


def check_optimization_parameters(argument: str, value: Any, *,
                                  sentence: str = _NO_PARAMETERS) -> None:
    """Raises ValueError unless `value` is one of the `*Parameters`."""
    checks.check(is_optimization_parameters(value), argument,
                 "one of the *Parameters, such as AdagradParameters", value,
                 other_api.estimator_import(value), sentence=sentence)


def check_learning_rate(value: Any) -> None:
    """Raises TypeError unless `value` is a number."""
    checks.check_type(
        numbers.Real, "learning_rate", "a number", value,
        "Pass a function of the global step as learning_rate_fn of TableConfig or of "
        "embedding_column for a rate that changes.")


def check_at_least_0(argument: str, value: float) -> None:
    """Raises ValueError if `value` is negative or not a number."""
    checks.check(value >= 0, argument, "at least 0", value,
                 sentence=f"{argument} must be greater than or equal to 0.")


def check_above_0(argument: str, value: float, *, sentence: str) -> None:
    """Raises ValueError unless `value` is positive."""
    checks.check(value > 0, argument, "above 0", value, sentence=sentence)


def check_decay_rate(argument: str, value: float) -> None:
    """Raises ValueError unless `value` is in [0, 1)."""
    checks.check(0 <= value < 1, argument, "in [0, 1)", value,
                 sentence=f"{argument} must be between 0. and 1.")


def _check_flag(value: Any) -> None:
    # The releases up to 2.4 had no such argument for gradient descent, and a weight limit
    # stood in its place: a number there is a call written for one of them.
    checks.check(
        not isinstance(value, float) and value in (True, False), "use_gradient_accumulation",
        "True or False", value, "Pass clip_weight_min and clip_weight_max by keyword.")
