# SPDX-License-Identifier: Apache-2.0
"""What a search may choose from: a range or a list of values for every setting."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.experiments.setting import Setting, setting_of
from tpu_estimator_embedding.multipliers.schedule import number_text

FORMATS = "uniform:LOW:HIGH or log:LOW:HIGH, which is uniform in the logarithm"

_DIGITS = 4  # of a value from a range, in names of runs, tables and figures


@dataclasses.dataclass(frozen=True)
class Range:
    """All numbers between two, which are possible values too.

    Attributes:
        low: the smallest.
        high: the largest.
        is_log: whether their logarithms are equally likely, not they themselves.
    """

    low: float
    high: float
    is_log: bool

    @property
    def text(self) -> str:
        """The range as on the command line."""
        kind = "log" if self.is_log else "uniform"
        return f"{kind}:{number_text(self.low)}:{number_text(self.high)}"

    def rounded(self, value: float) -> float:
        """Returns the value with four significant digits, within the range."""
        return min(self.high, max(self.low, float(f"{value:.{_DIGITS}g}")))


@dataclasses.dataclass(frozen=True)
class Choice:
    """A few values, each as on the command line."""

    values: tuple[str, ...]

    @property
    def text(self) -> str:
        """The values as on the command line."""
        return " ".join(self.values)


# Name of a setting, as in `Setting.texts` -> what to choose from.
SearchSpace = Mapping[str, Range | Choice]


def is_range(text: str) -> bool:
    """Whether a text has the format of a range.

    >>> is_range("log:0.01:1"), is_range("warmup:1000")
    (True, False)
    """
    return text.partition(":")[0] in ("log", "uniform")


def search_space(texts: Mapping[str, Sequence[str]]) -> dict[str, Range | Choice]:
    """Returns the space of a search, from the values on the command line.

    >>> search_space({"multiplier": ["log:0.01:1"], "learning_rate": ["0.1", "0.2"]})
    {'multiplier': Range(low=0.01, high=1.0, is_log=True),
     'learning_rate': Choice(values=('0.1', '0.2'))}

    Args:
        texts: name of a setting -> one range, or values.

    Raises:
        ValueError: if a range is not valid, a value is not one of the setting, or nothing is
            left to choose.
    """
    space = {name: _of_values(name, values) for name, values in texts.items() if values}
    checks.check(any(isinstance(item, Range) or len(item.values) > 1 for item in space.values()),
                 "--search", "used with a range or several values of a setting to choose from",
                 {name: item.text for name, item in space.items()} or "none",
                 f"A range is {FORMATS}, as in `--multiplier log:0.01:10`.")
    return space


def setting_at(space: SearchSpace, chosen: Mapping[str, Any]) -> Setting:
    """Returns the setting of chosen values: numbers of ranges, and texts of choices."""
    return setting_of({
        name: number_text(item.rounded(chosen[name])) if isinstance(item, Range) else chosen[name]
        for name, item in space.items()})


def _of_values(name: str, values: Sequence[str]) -> Range | Choice:
    if not any(map(is_range, values)):
        for value in values:
            setting_of({name: value})  # which refuses what is no value
        return Choice(tuple(dict.fromkeys(values)))
    checks.check(len(values) == 1, _option(name), "one range, or values only", list(values))
    kind, *ends = values[0].split(":")
    try:
        low, high = map(float, ends)
    except ValueError:
        low = high = math.nan
    least = "above 0 and " if kind == "log" else ""
    checks.check(math.isfinite(high - low) and low < high and (low > 0 or kind == "uniform"),
                 _option(name), f"{FORMATS}, with LOW {least}below HIGH", values[0])
    for end in (low, high):
        setting_of({name: number_text(end)})
    return Range(low, high, kind == "log")


def _option(name: str) -> str:
    """The option of the command line that has the values of a setting."""
    return f"--{name.partition(':')[0].replace('_', '-')}"
