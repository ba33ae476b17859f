# SPDX-License-Identifier: Apache-2.0
"""A table of the v1 API."""

import collections
import math
from collections.abc import Callable
from typing import Self

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.config.former_keywords import former_keywords
from tpu_estimator_embedding.config.optimization_parameters import (
    _OptimizationParameters,
    check_learning_rate,
    check_optimization_parameters,
)
from tpu_estimator_embedding.types import COMBINERS, Initializer, Tensor


class TableConfig(collections.namedtuple("TableConfig", [
        "vocabulary_size", "dimension", "initializer", "combiner", "hot_id_replication",
        "learning_rate", "learning_rate_fn", "optimization_parameters"])):
    """An embedding table.

    Attributes:
        vocabulary_size: rows; valid ids are `[0, vocabulary_size)`.
        dimension: columns, the width of an activation.
        initializer: called with the shape and dtype of each part of the table; by default
            a normal distribution of deviation 1/√dimension, truncated at two deviations.
        combiner: "mean", "sum" or "sqrtn" of the ids of a sample; None if every sample
            has exactly one id.
        hot_id_replication: whether a TPU replicates frequently looked-up rows on several
            cores. It affects speed on a TPU only, never the results.
        learning_rate: a number that overrides that of the optimizer; 0 and None do not.
        learning_rate_fn: function of the global step, evaluated in every step, that
            overrides any other rate. Tables that share one evaluate it once.
        optimization_parameters: one of the `*Parameters`, which overrides the one given
            for all tables; None means that one.

    Raises:
        ValueError: if a value is outside its range, or both rates are given.
        TypeError: if learning_rate is not a number; if `learning_rate_key` is passed, which
            release 1.15 had instead of learning_rate_fn.

    >>> table = TableConfig(vocabulary_size=1000, dimension=16, combiner="sum")
    >>> table.vocabulary_size, table.initializer((2, 16), tf.float32).shape
    (1000, TensorShape([2, 16]))
    """

    @former_keywords(
        learning_rate_key="replaced by `learning_rate_fn`, a function of the global step")
    def __new__(cls, vocabulary_size: int, dimension: int, initializer: Initializer | None = None,
                combiner: str | None = "mean", hot_id_replication: bool = False,
                learning_rate: float | None = None,
                learning_rate_fn: Callable[[Tensor], Tensor] | None = None,
                optimization_parameters: _OptimizationParameters | None = None) -> Self:
        checks.check_positive_int("vocabulary_size", vocabulary_size,
                                  sentence="vocabulary_size must >= 1.")
        checks.check_positive_int("dimension", dimension,
                                  sentence="dimension must be a positive int.")
        checks.check_callable_or_none("initializer", initializer,
                                      sentence="initializer must be callable if specified.")
        checks.check_one_of("combiner", COMBINERS, combiner,
                            sentence='combiner must be "mean", "sum", "sqrtn" or None.')
        _check_learning_rates(learning_rate, learning_rate_fn)
        if optimization_parameters is not None:
            check_optimization_parameters("optimization_parameters", optimization_parameters)
        return super().__new__(
            cls, vocabulary_size, dimension, initializer or default_initializer(dimension),
            combiner, hot_id_replication, learning_rate, learning_rate_fn,
            optimization_parameters)


def default_initializer(dimension: int) -> Initializer:
    """Returns a normal initializer of deviation 1/√dimension, truncated at two deviations."""
    return tf.compat.v1.truncated_normal_initializer(mean=0.0, stddev=1 / math.sqrt(dimension))


def is_table_config(value: object) -> bool:
    """Whether `value` is a TableConfig, of this package or TensorFlow 2.15's.

    `tf.tpu.experimental.embedding.TableConfig` has the same name, but is a different class.
    """
    return bool(getattr(value, "_fields", None) == TableConfig._fields)


def _check_learning_rates(learning_rate: float | None,
                          learning_rate_fn: Callable[[Tensor], Tensor] | None)-> None:
    if learning_rate is not None:
        check_learning_rate(learning_rate)
        checks.check(learning_rate_fn is None, "learning_rate_fn",
                     "None where learning_rate is given", learning_rate_fn,
                     sentence="At most one of learning_rate and learning_rate_fn can be None.")
    checks.check(learning_rate_fn is None or callable(learning_rate_fn), "learning_rate_fn",
                 "a function of the global step or None", learning_rate_fn,
                 "Release 1.15 had `learning_rate_key` instead.")
    if learning_rate_fn is not None:
        checks.check_takes(["global_step"], "learning_rate_fn", learning_rate_fn)
