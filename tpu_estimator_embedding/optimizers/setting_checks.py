# SPDX-License-Identifier: Apache-2.0
"""Checks of an optimizer's settings that both APIs make, whatever the optimizer."""

import dataclasses
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, cast

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.optimizers.record import OptimizerRecord, Range

# Returns the message for a setting: its name, its range, its value and TensorFlow's sentence.
Complain = Callable[[str, Range, object, str], str]

_LARGEST = (2 - 2 ** -23) * 2.0 ** 127  # of float32


def check_settings(settings: object) -> None:
    """Checks the numbers and flags of a dataclass against the annotations of its fields.

    Raises:
        ValueError: a number is NaN or, other than a limit, not finite in float32, a flag is
            neither True nor False, or a lower limit of the weights is above the upper one.
        TypeError: a setting is not a number.
    """
    for field in dataclasses.fields(cast(Any, settings)):
        _check_value(field, getattr(settings, field.name))
    check_limits("clip_weight", *(getattr(settings, f"clip_weight_{end}")
                                  for end in ("min", "max")))


def check_ranges(record: OptimizerRecord, settings: object, complain: Complain, *,
                 spelled: Mapping[str, str] | None = None) -> None:
    """Checks the settings of an optimizer against the ranges in its record.

    Args:
        record: of the optimizer.
        settings: have an attribute for each field of the rule.
        complain: returns the message for a value outside of its range.
        spelled: field of the rule -> attribute of the settings, where they differ.

    Raises:
        ValueError: a setting is outside of its range.
    """
    for field, allowed in record.ranges.items():
        name = (spelled or {}).get(field, field)
        value = getattr(settings, name)
        if not allowed.contains(value):
            raise ValueError(complain(name, allowed, value, record.sentences.get(field, "")))


def check_accumulates_unless_lazy(settings: Any, sentence: str) -> None:
    """Raises ValueError, which begins with `sentence`, for Adam that does neither."""
    checks.check(settings.use_gradient_accumulation or settings.lazy_adam,
                 "use_gradient_accumulation", "True where lazy_adam is False",
                 settings.use_gradient_accumulation, sentence=sentence)


def check_limits(name: str, least: float | None, most: float | None) -> None:
    """Raises ValueError if the lower one of two limits is above the upper one."""
    checks.check(least is None or most is None or least <= most, f"{name}_min",
                 f"at most {name}_max", (least, most))
    checks.check(least is None or least < math.inf, f"{name}_min", "below infinity", least)
    checks.check(most is None or most > -math.inf, f"{name}_max", "above -infinity", most)


def check_finite_rate(value: Any, rule: str, fix: str = "") -> None:
    """Raises TypeError with the rule unless a learning rate is a number, ValueError if infinite."""
    checks.check_type(numbers.Real, "learning_rate", rule, value, fix)
    check_finite_number("learning_rate", value)


def check_number(name: str, value: Any) -> None:
    """Raises TypeError unless `value` is a number, ValueError if it is NaN."""
    checks.check_type(numbers.Real, name, "a number", value)
    checks.check(not math.isnan(value), name, "a number", value)


def check_finite_number(name: str, value: Any) -> None:
    """Raises TypeError unless `value` is a number, ValueError if float32 cannot have it."""
    checks.check_type(numbers.Real, name, "a number", value)
    checks.check(math.isfinite(value), name, "finite", value)
    checks.check(abs(value) <= _LARGEST, name,
                 f"at most {_LARGEST:.7g} in magnitude, the range of float32", value)


def check_flag(name: str, value: object, fix: str = "") -> None:
    """Raises ValueError unless `value` is True, False or None, which counts as False.

    Other values have a truth value, too: that of the text "False" is True.
    """
    checks.check(value is None or _is_flag(value), name, "True or False", value, fix)


def _check_value(field: dataclasses.Field[object], value: Any) -> None:
    if field.type not in (float, bool, float | None, bool | None):
        return  # of a program's subclass, or with its own check
    if value is None and field.type in (float | None, bool | None):
        return
    if field.type not in (bool, bool | None):
        is_limit = field.name.startswith("clip_")  # an infinite one limits nothing
        check_number(field.name, value)
        if not is_limit:
            check_finite_number(field.name, value)
    elif field.name == "use_gradient_accumulation":
        # The releases up to 2.4 had no such argument for gradient descent, and a weight limit
        # stood in its place: a number there is a call written for one of them.
        checks.check(_is_flag(value), field.name, "True or False", value,
                     "Pass clip_weight_min and clip_weight_max by keyword.")
    else:
        checks.check(_is_flag(value), field.name, "True or False", value)


def _is_flag(value: object) -> bool:
    # By name, because this module must not import NumPy: builds and `--help` import it without.
    is_bool_of_numpy = type(value).__name__ in ("bool_", "bool")
    return (isinstance(value, numbers.Integral) or is_bool_of_numpy) and value in (True, False)
