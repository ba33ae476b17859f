# SPDX-License-Identifier: Apache-2.0
"""Simulated quantization of looked-up rows."""

import dataclasses

from tpu_estimator_embedding import checks


@dataclasses.dataclass(frozen=True)
class QuantizationConfig:
    """Rounds every looked-up value to one of `num_buckets` values in [lower, upper].

    The gradient passes unchanged, and the table keeps its exact values.

    Attributes:
        num_buckets: number of values, at least 2.
        lower: smallest value.
        upper: largest value.

    Raises:
        ValueError: if a value is outside its range.

    >>> QuantizationConfig(num_buckets=256, lower=-1.0, upper=1.0)
    QuantizationConfig(num_buckets=256, lower=-1.0, upper=1.0)
    """

    num_buckets: int
    lower: float
    upper: float

    def __post_init__(self) -> None:
        checks.check(self.num_buckets >= 2, "num_buckets", "at least 2", self.num_buckets,
                     sentence=f"num_buckets is {self.num_buckets}, must be at least 2 for "
                     "simulated quantization.")
        checks.check(self.lower < self.upper, "lower", f"below upper, {self.upper!r}", self.lower)
