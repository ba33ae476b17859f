# SPDX-License-Identifier: Apache-2.0
"""The base class of the optimizers of the TF2 API."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.optimizers.record import Range
from tpu_estimator_embedding.optimizers.registry import rule_of, rules_of_tf2
from tpu_estimator_embedding.optimizers.setting_checks import (
    check_finite_rate,
    check_number,
    check_ranges,
    check_settings,
)
from tpu_estimator_embedding.types import Tensor

# The maximum absolute value of a gradient, or its minimum and maximum.
ClipValue = float | tuple[float | None, float | None]


class TableOptimizer(Protocol):
    """What this package uses of its optimizers and of `tf.tpu.experimental.embedding`'s."""

    @property
    def learning_rate(self) -> float | Callable[[], float | Tensor]: ...

    @property
    def use_gradient_accumulation(self) -> bool: ...

    @property
    def clip_gradient_min(self) -> float | None: ...

    @property
    def clip_gradient_max(self) -> float | None: ...

    @property
    def clip_weight_min(self) -> float | None: ...

    @property
    def clip_weight_max(self) -> float | None: ...

    @property
    def weight_decay_factor(self) -> float | None: ...

    @property
    def multiply_weight_decay_factor_by_learning_rate(self) -> bool | None: ...


@dataclasses.dataclass(unsafe_hash=True)
class _Optimizer:
    """Settings that every optimizer has, with the names of `tf.tpu.experimental.embedding`.

    Each subclass lists all its fields, because TensorFlow's order mixes them. Two objects are
    equal if they have the same class and equal settings.

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
        slot_variable_creation_fn: called with the variable of a table, the names of its
            slots and their initializers; returns slot name -> variable. None creates them.
        clipvalue: limit of the absolute value of the summed gradient of a row, or a tuple
            (min, max); either may be None.
        low_dimensional_packing_status: whether a TPU packs several rows of 1, 2 or 4
            columns into one line of memory. It does not affect results.

    Raises:
        ValueError: if a value is outside its range, or gradients are clipped without being
            accumulated.
        TypeError: if the learning rate is neither a number nor callable.
    """

    def __post_init__(self) -> None:
        settings: Any = self
        if not callable(settings.learning_rate):
            check_finite_rate(settings.learning_rate, "a number or a function without arguments")
        check_settings(self)
        checks.check(settings.use_gradient_accumulation or settings.clipvalue is None,
                     "clipvalue", "None if use_gradient_accumulation is False",
                     settings.clipvalue, sentence="When `use_gradient_accumulation` is False, "
                     "gradient clipping cannot be used and `clipvalue` should be left as None.")
        _check_clipvalue(settings.clipvalue)
        create = getattr(self, "slot_variable_creation_fn", None)
        checks.check_with_sentence(
            create is None or callable(create), "Argument `slot_variable_creation_fn` must be "
            f"either None or a callable. Received: {create}")
        rule = rule_of(type(self), rules_of_tf2())
        if rule is not None:
            check_ranges(rule.record, self, _complaint, spelled=rule.tf2_attributes())

    @property
    def clip_gradient_min(self) -> float | None:
        """Lower limit of the summed gradient; None means no limit."""
        return self._clip_limits[0]

    @property
    def clip_gradient_max(self) -> float | None:
        """Upper limit of the summed gradient; None means no limit."""
        return self._clip_limits[1]

    @property
    def _clip_limits(self) -> tuple[float | None, float | None]:
        clipvalue = getattr(self, "clipvalue", None)
        if clipvalue is None or isinstance(clipvalue, tuple):
            return clipvalue or (None, None)
        return (-clipvalue, clipvalue)


def is_optimizer(value: object) -> bool:
    """Whether `value` is an optimizer of the TF2 API, from this package or TensorFlow."""
    return any(base.__name__ == _Optimizer.__name__ for base in type(value).__mro__)


def no_positive_float(setting: str, value: object) -> str:
    """Returns TensorFlow's sentence for a setting that is not above 0."""
    return f"Argument `{setting}` must be a positive float. Received: {value}"


def _complaint(setting: str, allowed: Range, value: object, sentence: str) -> str:
    if allowed is Range.DECAY_RATE:
        return f"Argument `{setting}` must be >= 0 and < 1. Received: {value}."
    if setting == "initial_accumulator_value":
        return no_positive_float(setting, value)
    return checks.complaint(setting, allowed.value, value, sentence=sentence)


def _check_clipvalue(clipvalue: Any) -> None:
    if isinstance(clipvalue, tuple):
        checks.check(len(clipvalue) == 2, "clipvalue", "a number, (min, max) or None", clipvalue)
        for limit in clipvalue:
            if limit is not None:
                check_number("clipvalue", limit)
        checks.check(None in clipvalue or clipvalue[0] <= clipvalue[1], "clipvalue",
                     "a number, or (min, max) with min at most max", clipvalue)
    elif clipvalue is not None:
        check_number("clipvalue", clipvalue)
        checks.check(clipvalue >= 0, "clipvalue", "at least 0", clipvalue,
                     "The limits are -clipvalue and clipvalue.")
