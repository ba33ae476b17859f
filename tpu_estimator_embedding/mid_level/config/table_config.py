# SPDX-License-Identifier: Apache-2.0
"""A table of the TF2 API."""

import dataclasses
import math
import numbers
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks, other_api
from tpu_estimator_embedding.mid_level.config.optimizer import TableOptimizer
from tpu_estimator_embedding.optimizers.setting_checks import check_finite_number
from tpu_estimator_embedding.types import Initializer

TABLE_COMBINERS = ("mean", "sum", "sqrtn")


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
        TypeError: if a value is not a number.

    >>> QuantizationConfig(num_buckets=256, lower=-1.0, upper=1.0)
    QuantizationConfig(num_buckets=256, lower=-1.0, upper=1.0)
    """

    num_buckets: int
    lower: float
    upper: float

    def __post_init__(self) -> None:
        checks.check_type(numbers.Integral, "num_buckets", "an int", self.num_buckets)
        checks.check(self.num_buckets >= 2, "num_buckets", "at least 2", self.num_buckets,
                     sentence=f"num_buckets is {self.num_buckets}, must be at least 2 for "
                     "simulated quantization.")
        check_finite_number("lower", self.lower)
        check_finite_number("upper", self.upper)
        checks.check(self.lower < self.upper, "lower", f"below upper, {self.upper!r}", self.lower)


@dataclasses.dataclass(eq=False)
class TableConfig:
    """An embedding table. Features that share the object share the table.

    As in TensorFlow, an object is equal only to itself; it is a key of `embedding_tables`.

    Attributes:
        vocabulary_size: rows; valid ids are `[0, vocabulary_size)`.
        dim: columns, the width of an activation.
        initializer: called with the shape and dtype of each part of the table; by default
            a normal distribution of deviation 1/√dim, truncated at two deviations.
        optimizer: overrides the optimizer given for all tables; None means that optimizer.
        combiner: "mean", "sum" or "sqrtn" of the ids of a sample.
        name: name of the variables of the table; None means `table_0`, `table_1`, … in the
            order in which features first use the tables.
        quantization_config: a QuantizationConfig, or None.
        layout: must be None; layouts are computed from the tables.
        dtype: tf.float32.

    Raises:
        ValueError: if a value is outside its range.
        TypeError: if `name` or `quantization_config` has another type.

    >>> table = TableConfig(vocabulary_size=1000, dim=16, combiner="sum", name="words")
    >>> table.initializer((2, 16), tf.float32).shape
    TensorShape([2, 16])
    """

    vocabulary_size: int
    dim: int
    initializer: Initializer | None = None
    optimizer: TableOptimizer | None = None
    combiner: str = "mean"
    name: str | None = None
    quantization_config: QuantizationConfig | None = None
    layout: None = None
    dtype: tf.DType = tf.float32

    def __post_init__(self) -> None:
        _check_size("`vocabulary_size`", self.vocabulary_size)
        _check_size("`dim` (embedding dimension)", self.dim)
        checks.check_with_sentence(
            self.initializer is None or callable(self.initializer),
            f"Argument `initializer` must be a callable (or None). Received: {self.initializer}")
        checks.check(not other_api.is_of_estimator_api(self.optimizer), "optimizer",
                     "an optimizer or None", self.optimizer, other_api.tf2_import(self.optimizer))
        checks.check_type((str, type(None)), "name", "a string or None", self.name)
        checks.check(self.name != "", "name", "a string that is not empty, or None", self.name)
        check_supported(self)
        if self.initializer is None:
            self.initializer = tf.compat.v1.truncated_normal_initializer(
                stddev=self._default_stddev)

    @property
    def _default_stddev(self) -> float:
        return 1 / math.sqrt(self.dim)

    def __repr__(self) -> str:
        # TensorFlow omits layout and dtype, and prints the default initializer as None.
        shown = ("vocabulary_size", "dim", "initializer", "optimizer", "combiner", "name",
                 "quantization_config")
        values = {name: getattr(self, name) for name in shown}
        if self._has_default_initializer():
            values["initializer"] = None
        return f"TableConfig({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def _has_default_initializer(self) -> bool:
        # Compares names, because TensorFlow, Keras 2 and Keras 3 have different classes of it.
        initializer: Any = self.initializer
        return (type(initializer).__name__ == "TruncatedNormal" and initializer.mean == 0.0
                and math.isclose(initializer.stddev, self._default_stddev))


def is_table_config(value: object) -> bool:
    """Whether `value` is a TableConfig of the TF2 API, from this package or TensorFlow.

    The v1 API has a class of the same name, with `dimension` instead of `dim`.
    """
    return hasattr(value, "dim") and any(
        base.__name__ == TableConfig.__name__ for base in type(value).__mro__)


def _check_size(argument: str, value: object) -> None:
    checks.check_with_sentence(
        isinstance(value, int) and not isinstance(value, bool) and value >= 1,
        f"Argument {argument} must be an int and must be >= 1. Received: {value}")


def check_supported(table: TableConfig) -> None:
    """Raises ValueError or TypeError if `table` uses a setting that is not supported."""
    label = f" of table {table.name!r}" if table.name else ""
    checks.check(
        isinstance(table.combiner, str) and table.combiner in TABLE_COMBINERS,
        f"combiner{label}", f"one of {', '.join(map(repr, TABLE_COMBINERS))}", table.combiner,
        "" if isinstance(table.combiner, str) else
        "A CustomCombiner is compiled by XLA for a SparseCore. Instead, look up the ids as a "
        "sequence and combine the activations in the model.",
        sentence=f"Argument `combiner` must be one of {TABLE_COMBINERS}.")
    quantization = getattr(table, "quantization_config", None)
    checks.check_type((QuantizationConfig, tf.tpu.experimental.embedding.QuantizationConfig,
                       type(None)), f"quantization_config{label}", "a QuantizationConfig or None",
                      quantization)
    checks.check(getattr(table, "layout", None) is None, f"layout{label}", "None",
                 getattr(table, "layout", None), "Layouts are computed from the tables.")
    checks.check(getattr(table, "dtype", tf.float32) == tf.float32, f"dtype{label}",
                 "tf.float32, the only trainable dtype", getattr(table, "dtype", None))
