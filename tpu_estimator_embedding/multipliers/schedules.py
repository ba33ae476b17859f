# SPDX-License-Identifier: Apache-2.0
"""The schedules: how the gradient multiplier changes with the global step."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from types import ModuleType

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.multipliers.schedule import Schedule, Values, check_number, number_text


@dataclasses.dataclass(frozen=True, repr=False)
class LinearWarmup(Schedule):
    """Changes linearly, then stays constant.

        m(t) = start + (end - start) min(t / steps, 1)

    Attributes:
        steps: steps until `end`, at least 1.
        start: multiplier at step 0.
        end: multiplier from step `steps` on.

    Source: P. Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour",
    arXiv:1706.02677 (2017), gradual warmup.

    >>> LinearWarmup(1000), LinearWarmup(1000).text, float(LinearWarmup(1000)(250))
    (linear_warmup(0→1, 1000 steps), 'warmup:1000', 0.25)
    """

    word = "warmup"
    steps: int
    start: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        checks.check_positive_int("steps", self.steps)
        check_number("start", self.start)
        check_number("end", self.end)

    def value(self, step: Values, xp: ModuleType) -> Values:
        return self.start + (self.end - self.start) * _share(step, self.steps, xp)

    def __repr__(self) -> str:
        return f"linear_warmup({_arrow(self.start, self.end)}, {self.steps} steps)"


@dataclasses.dataclass(frozen=True, repr=False)
class Cosine(Schedule):
    """Falls along half a cosine, then stays constant.

        m(t) = end + (start - end) (1 + cos(π min(t / steps, 1))) / 2

    Attributes:
        end: multiplier from step `steps` on.
        steps: steps until `end`, at least 1.
        start: multiplier at step 0.

    Source: I. Loshchilov, F. Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts",
    ICLR (2017), without the restarts.

    >>> Cosine(0.1, 10000), Cosine(0.1, 10000).text, float(Cosine(0, 100)(50))
    (cosine(1→0.1, 10000 steps), 'cosine:0.1:10000', 0.5)
    """

    word = "cosine"
    end: float
    steps: int
    start: float = 1.0

    def __post_init__(self) -> None:
        check_number("end", self.end)
        checks.check_positive_int("steps", self.steps)
        check_number("start", self.start)

    def value(self, step: Values, xp: ModuleType) -> Values:
        wave = 0.5 * (1.0 + xp.cos(math.pi * _share(step, self.steps, xp)))
        return self.end + (self.start - self.end) * wave

    def __repr__(self) -> str:
        return f"cosine({_arrow(self.start, self.end)}, {self.steps} steps)"


@dataclasses.dataclass(frozen=True, repr=False)
class ExponentialDecay(Schedule):
    """Decays by a constant factor every `steps` steps.

        m(t) = start · rate^(t / steps)

    Attributes:
        rate: factor for `steps` steps, above 0.
        steps: at least 1.
        start: multiplier at step 0.

    >>> ExponentialDecay(0.5, 1000), ExponentialDecay(0.5, 1000).text
    (exponential_decay(×0.5 every 1000 steps, from 1), 'exponential:0.5:1000')
    >>> float(ExponentialDecay(0.5, 1000)(2000))
    0.25
    """

    word = "exponential"
    rate: float
    steps: int
    start: float = 1.0

    def __post_init__(self) -> None:
        check_number("rate", self.rate)
        checks.check(self.rate > 0, "rate", "above 0", self.rate)
        checks.check_positive_int("steps", self.steps)
        check_number("start", self.start)

    def value(self, step: Values, xp: ModuleType) -> Values:
        return self.start * xp.exp(math.log(self.rate) * (step / self.steps))

    def __repr__(self) -> str:
        return (f"exponential_decay(×{number_text(self.rate)} every {self.steps} steps, "
                f"from {number_text(self.start)})")


@dataclasses.dataclass(frozen=True, repr=False)
class Piecewise(Schedule):
    """A step function.

        m(t) = values[i] for boundaries[i - 1] <= t < boundaries[i]

    A value holds from its boundary on, as everywhere in this package;
    `tf.keras.optimizers.schedules.PiecewiseConstantDecay` starts it one step later.

    Attributes:
        boundaries: increasing steps, the first one at least 1.
        values: multipliers, one more than boundaries.

    >>> Piecewise([1000, 5000], [1, 0.1, 0.01])
    piecewise(1, from step 1000: 0.1, from step 5000: 0.01)
    >>> Piecewise([1000, 5000], [1, 0.1, 0.01]).text
    'piecewise:1:1000:0.1:5000:0.01'
    """

    word = "piecewise"
    boundaries: tuple[int, ...]
    values: tuple[float, ...]

    def __init__(self, boundaries: Sequence[int], values: Sequence[float]) -> None:
        checks.check_type(Iterable, "boundaries", "a list of steps", boundaries)
        checks.check_type(Iterable, "values", "a list of multipliers", values)
        object.__setattr__(self, "boundaries", tuple(boundaries))
        object.__setattr__(self, "values", tuple(values))
        for boundary in self.boundaries:
            checks.check_positive_int("boundaries", boundary)
        checks.check(all(a < b for a, b in zip(self.boundaries, self.boundaries[1:], strict=False)),
                     "boundaries", "increasing steps", list(boundaries))
        for value in self.values:
            check_number("values", value)
        checks.check(len(self.values) == len(self.boundaries) + 1, "values",
                     f"one more than the {len(self.boundaries)} boundaries", list(values))

    @classmethod
    def from_arguments(cls, *arguments: float) -> "Piecewise":
        """Returns the schedule of value, boundary, value, boundary, …, value."""
        return cls(arguments[1::2], arguments[::2])  # type: ignore[arg-type]  # checked there

    @property
    def arguments(self) -> tuple[float, ...]:
        later = zip(self.boundaries, self.values[1:], strict=True)
        return (self.values[0], *(number for pair in later for number in pair))

    def value(self, step: Values, xp: ModuleType) -> Values:
        result = xp.zeros_like(step) + self.values[0]
        for boundary, value in zip(self.boundaries, self.values[1:], strict=True):
            result = xp.where(step < boundary, result, xp.zeros_like(step) + value)
        return result

    def __repr__(self) -> str:
        later = (f"from step {boundary}: {number_text(value)}" for boundary, value
                 in zip(self.boundaries, self.values[1:], strict=True))
        return f"piecewise({', '.join([number_text(self.values[0]), *later])})"


@dataclasses.dataclass(frozen=True, repr=False)
class FreezeUntil(Schedule):
    """Freezes tables before a step: m(t) = 0 for t < step, else 1.

    Attributes:
        step: the first step that trains, at least 1.

    >>> schedule = FreezeUntil(500)
    >>> schedule, schedule.text, float(schedule(499)), float(schedule(500))
    (freeze_until(step 500), 'freeze_until:500', 0.0, 1.0)
    """

    word = "freeze_until"
    step: int

    def __post_init__(self) -> None:
        checks.check_positive_int("step", self.step)

    def value(self, step: Values, xp: ModuleType) -> Values:
        return xp.where(step < self.step, xp.zeros_like(step), xp.ones_like(step))

    def __repr__(self) -> str:
        return f"freeze_until(step {self.step})"


@dataclasses.dataclass(frozen=True, repr=False)
class FreezeAfter(Schedule):
    """Freezes tables from a step on: m(t) = 1 for t < step, else 0.

    Attributes:
        step: the first step that does not train, at least 1.

    >>> schedule = FreezeAfter(500)
    >>> schedule, schedule.text, float(schedule(499)), float(schedule(500))
    (freeze_after(step 500), 'freeze_after:500', 1.0, 0.0)
    """

    word = "freeze_after"
    step: int

    def __post_init__(self) -> None:
        checks.check_positive_int("step", self.step)

    def value(self, step: Values, xp: ModuleType) -> Values:
        return xp.where(step < self.step, xp.ones_like(step), xp.zeros_like(step))

    def __repr__(self) -> str:
        return f"freeze_after(step {self.step})"


@dataclasses.dataclass(frozen=True, repr=False)
class Cyclic(Schedule):
    """A triangle wave.

        m(t) = low + (high - low) (1 - |2 frac(t / steps) - 1|)

    Attributes:
        steps: steps of one cycle, at least 2.
        low: multiplier at the start of a cycle.
        high: multiplier in the middle of it.

    Source: L. N. Smith, "Cyclical Learning Rates for Training Neural Networks", WACV (2017),
    the triangular policy.

    >>> Cyclic(1000), Cyclic(1000, 0.1).text, float(Cyclic(1000)(1250))
    (cyclic(0↔1, 1000 steps), 'cyclic:1000:0.1', 0.5)
    """

    word = "cyclic"
    steps: int
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        checks.check_positive_int("steps", self.steps)
        checks.check(self.steps >= 2, "steps", "an int of at least 2", self.steps)
        check_number("low", self.low)
        check_number("high", self.high)

    def value(self, step: Values, xp: ModuleType) -> Values:
        cycles = step / self.steps
        from_middle = abs(2.0 * (cycles - xp.floor(cycles)) - 1.0)
        return self.low + (self.high - self.low) * (1.0 - from_middle)

    def __repr__(self) -> str:
        return (f"cyclic({number_text(self.low)}↔{number_text(self.high)}, "
                f"{self.steps} steps)")


def _share(step: Values, steps: int, xp: ModuleType) -> Values:
    return xp.minimum(step / steps, xp.ones_like(step))


def _arrow(start: float, end: float) -> str:
    return f"{number_text(start)}→{number_text(end)}"
