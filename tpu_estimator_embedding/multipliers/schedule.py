# SPDX-License-Identifier: Apache-2.0
"""Gradient multipliers: printable, composable functions of the global step."""

import abc
import dataclasses
import math
import numbers
from types import ModuleType
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.types import Tensor

# Steps or multipliers, float64 of NumPy or of TensorFlow.
Values: TypeAlias = np.ndarray | Tensor


class Schedule(abc.ABC):
    """A gradient multiplier m(t), a pure function of the global step t.

    The step may be a tensor, in a graph, in a `tf.function` or eagerly; the result is then a
    float32 tensor of the same shape. For an int or an array it is a NumPy float32, as plots need.
    Both compute in float64, which distinguishes steps up to 2⁵³.

    Attributes:
        word: the name of the schedule in the short text format.
    """

    word: ClassVar[str]

    def __call__(self, step: Any) -> Any:
        """Returns m(step)."""
        if isinstance(step, int | np.integer | np.ndarray):
            return np.asarray(self.value(np.asarray(step, np.float64), np), np.float32)[()]
        import tensorflow as tf  # not above: the command line reads schedules without it
        return tf.cast(self.value(tf.cast(step, tf.float64), tf), tf.float32)

    @abc.abstractmethod
    def value(self, step: Values, xp: ModuleType) -> Values:
        """Returns m(step), where `step` is float64 of `xp`, which is numpy or tensorflow."""

    def then(self, step: int, schedule: "Schedule | float") -> "Then":
        """Returns a schedule that follows this one until `step`, and then another one.

        The other one counts its steps from `step`: in `s.then(500, cosine(0, 1000))` the decay
        starts at global step 500 and ends at 1500.
        """
        return Then(self, step, to_schedule(schedule))

    def __mul__(self, other: "Schedule | float") -> "Product":
        return Product((*_factors(self), *_factors(to_schedule(other))))

    def __rmul__(self, other: "Schedule | float") -> "Product":
        return to_schedule(other) * self

    def __str__(self) -> str:
        return repr(self)

    @property
    def text(self) -> str:
        """The short text format, which `multipliers.parse` reads back."""
        return ":".join([self.word, *map(number_text, self.arguments)])

    @property
    def arguments(self) -> tuple[float, ...]:
        """The numbers of the text format: the fields, without trailing ones left at defaults."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # subclasses are dataclasses
        values = [getattr(self, field.name) for field in fields]
        while values and values[-1] == fields[len(values) - 1].default:
            values.pop()
        return tuple(values)


@dataclasses.dataclass(frozen=True, repr=False)
class Constant(Schedule):
    """The same multiplier at every step: m(t) = c.

    Attributes:
        multiplier: c.

    >>> Constant(0.5), Constant(0.5).text, float(Constant(0.5)(7))
    (constant(0.5), '0.5', 0.5)
    """

    word = "constant"
    multiplier: float

    def __post_init__(self) -> None:
        check_number("multiplier", self.multiplier)

    def value(self, step: Values, xp: ModuleType) -> Values:
        return xp.zeros_like(step) + self.multiplier

    def __repr__(self) -> str:
        return f"constant({number_text(self.multiplier)})"

    @property
    def text(self) -> str:
        return number_text(self.multiplier)


@dataclasses.dataclass(frozen=True, repr=False)
class Product(Schedule):
    """The product of schedules, created by `*`: m(t) = Π mᵢ(t).

    Attributes:
        factors: two or more schedules, none of them a product.

    >>> Constant(0.1) * Constant(0.5)
    constant(0.1) * constant(0.5)
    """

    factors: tuple[Schedule, ...]

    def value(self, step: Values, xp: ModuleType) -> Any:
        return math.prod(factor.value(step, xp) for factor in self.factors)

    def __repr__(self) -> str:
        return " * ".join(map(repr, self.factors))

    @property
    def text(self) -> str:
        return "*".join(f"({factor.text})" if isinstance(factor, Then) else factor.text
                        for factor in self.factors)


@dataclasses.dataclass(frozen=True, repr=False)
class Then(Schedule):
    """One schedule until a step, then another: m(t) = a(t) for t < s, else b(t - s).

    Attributes:
        first: a.
        step: s, at least 1.
        second: b, which counts its steps from s.

    >>> Constant(0).then(500, Constant(1))
    constant(0).then(500, constant(1))
    """

    first: Schedule
    step: int
    second: Schedule

    def __post_init__(self) -> None:
        checks.check_positive_int("step", self.step)

    def value(self, step: Values, xp: ModuleType) -> Values:
        # tf.where evaluates both schedules; the maximum keeps the second one's step at 0 or more.
        later = xp.maximum(step - self.step, xp.zeros_like(step))
        return xp.where(step < self.step, self.first.value(step, xp), self.second.value(later, xp))

    def __repr__(self) -> str:
        first = f"({self.first!r})" if isinstance(self.first, Product) else repr(self.first)
        return f"{first}.then({self.step}, {self.second!r})"

    @property
    def text(self) -> str:
        second = self.second.text
        if isinstance(self.second, Then):
            second = f"({second})"
        return f"{self.first.text},then:{self.step}:{second}"


def to_schedule(value: Schedule | float) -> Schedule:
    """Returns a schedule unchanged, and a number as a constant schedule.

    Raises:
        TypeError: if `value` is neither.
    """
    if isinstance(value, Schedule):
        return value
    checks.check_type(numbers.Real, "multiplier", "a number or a schedule", value,
                      "tpu_estimator_embedding.multipliers has the schedules.")
    return Constant(value)


def check_number(argument: str, value: Any) -> None:
    """Raises TypeError or ValueError unless `value` is a finite number."""
    checks.check_type(numbers.Real, argument, "a number", value)
    checks.check(math.isfinite(value), argument, "finite", value)


def number_text(value: float) -> str:
    """Returns the shortest decimal that reads back as `value`.

    >>> number_text(1.0), number_text(0.1), number_text(10_000_000), number_text(1e-05)
    ('1', '0.1', '10000000', '1e-05')
    """
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _factors(schedule: Schedule) -> tuple[Schedule, ...]:
    return schedule.factors if isinstance(schedule, Product) else (schedule,)
