# SPDX-License-Identifier: Apache-2.0
"""Lowers the v1 API to an `EmbeddingPlan`.

Instances of TensorFlow 2.15's own `TableConfig`, `FeatureConfig` and `*Parameters` are accepted,
too: a program has such objects if it imported the classes before `install()` replaced them.
"""

import dataclasses
import functools
import math
import numbers
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks, other_api
from tpu_estimator_embedding.config.feature_config import FeatureConfig, is_feature_config
from tpu_estimator_embedding.config.optimization_parameters import (
    _OptimizationParameters,
    check_optimization_parameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig, is_table_config
from tpu_estimator_embedding.multipliers.table_multipliers import Multipliers, TableMultipliers
from tpu_estimator_embedding.optimizers.frequency_estimator import FrequencyEstimator
from tpu_estimator_embedding.optimizers.registry import rule_of, rules_by_parameters
from tpu_estimator_embedding.optimizers.row_optimizer import Limits, RowOptimizer
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.plan.embedding_plan import (
    EmbeddingPlan,
    FeaturePlan,
    TablePlan,
    initializer_object,
)
from tpu_estimator_embedding.types import LearningRate, Tensor


def to_plan(table_to_config: Mapping[str, TableConfig],
            feature_to_config: Mapping[str, FeatureConfig],
            optimization_parameters: _OptimizationParameters | None = None, *,
            training: bool = True, partition_strategy: str = "div", num_hosts: int = 1,
            pipelined: bool = False,
            gradient_multiplier_fn: Callable[[Tensor], Tensor] | None = None,
            table_multipliers: Multipliers = None,
            clipping_limit: float | None = None) -> EmbeddingPlan:
    """Lowers tables and features to a plan.

    Args:
        table_to_config: table name -> table.
        feature_to_config: feature name -> feature.
        optimization_parameters: the `*Parameters` of the tables that do not set their own.
        training: whether tables are trained; otherwise the plan has no optimizers, and
            the arguments that concern training are checked but not used.
        partition_strategy: "div" or "mod".
        num_hosts: parts into which every table is split.
        pipelined: whether activations lack the update of the previous step.
        gradient_multiplier_fn: function of the global step that scales every gradient.
        table_multipliers: multipliers of single tables, which override that function; a
            mapping for `TableMultipliers.of`.
        clipping_limit: limit of the absolute value of the summed gradient of every row, for
            tables whose `*Parameters` have no clip_gradient_min or clip_gradient_max. Without
            gradient accumulation, that of each replica's sum.

    Raises:
        ValueError: if a config is of the wrong class, a value is outside its range, a
            feature refers to an unknown table, a table is not used, or a table is to be
            trained and has no `*Parameters`.
        TypeError: if clipping_limit is not a number.

    >>> from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
    >>> print(to_plan({"words": TableConfig(1000, 16)}, {"title": FeatureConfig("words")},
    ...               AdagradParameters(0.1)))
    Embedding plan: 1 table, 1 feature, 1 host, partition 'div', 125.0 KiB
    table  rows  dim  combiner  optimizer     slots         rows per host      bytes  features
    words  1000   16  mean      Adagrad(0.1)  accumulators           1000  125.0 KiB  title
    """
    _check_configs(table_to_config, feature_to_config)
    if optimization_parameters is not None:
        check_optimization_parameters("optimization_parameters", optimization_parameters)
    check_clipping_limit(clipping_limit)
    checks.check_callable_or_none("gradient_multiplier_fn", gradient_multiplier_fn,
                                  takes=["global_step"])
    multipliers = TableMultipliers.of(table_multipliers)
    multipliers.resolve(table_to_config)  # checks the keys
    optimizers = {}
    if training:
        parameters = _parameters_of_tables(table_to_config, optimization_parameters)
        optimizers = {name: _to_row_optimizer(name, table_to_config[name], parameters[name],
                                              clipping_limit) for name in parameters}
    return EmbeddingPlan.build(
        [_to_table(name, config, optimizers.get(name))
         for name, config in table_to_config.items()],
        [FeaturePlan(name, config.table_id, config.max_sequence_length, config.weight_key)
         for name, config in feature_to_config.items()],
        num_hosts=num_hosts, partition_strategy=partition_strategy,
        # Without tables no update would make the step look up, and take, the next input.
        pipelined=training and bool(pipelined) and bool(table_to_config),
        gradient_multiplier_fn=gradient_multiplier_fn if training else None,
    ).with_multipliers(multipliers if training else TableMultipliers())


def check_clipping_limit(value: Any) -> None:
    """Raises TypeError or ValueError unless `value` is a positive, finite number or None."""
    if value is not None:
        checks.check_type(numbers.Real, "clipping_limit", "a positive number or None", value)
        checks.check(0 < value < math.inf, "clipping_limit", "a positive number or None", value)


def warn_of_profile_data(directory: str | None) -> None:
    """Logs once that nothing is written to a `profile_data_directory`."""
    if directory is not None:
        _log_once(directory)


def _check_configs(table_to_config: Mapping[str, object],
                   feature_to_config: Mapping[str, object]) -> None:
    for name, config in table_to_config.items():
        checks.check(is_table_config(config), f"table_to_config_dict[{name!r}]",
                     "a TableConfig", config, other_api.estimator_import(config), sentence=
                     "Value of `table_to_config_dict` must be of type `TableConfig`.")
    for name, config in feature_to_config.items():
        checks.check(is_feature_config(config), f"feature_to_config_dict[{name!r}]",
                     "a FeatureConfig", config, other_api.estimator_import(config))


def _parameters_of_tables(
        table_to_config: Mapping[str, TableConfig],
        for_all: _OptimizationParameters | None) -> dict[str, _OptimizationParameters]:
    """Returns table name -> its own `*Parameters`, or else those for all tables."""
    given = {name: config.optimization_parameters or for_all
             for name, config in table_to_config.items()}
    parameters = {name: value for name, value in given.items() if value is not None}
    without = sorted(given.keys() - parameters.keys())
    checks.check_with_sentence(
        not without, "`optimization_parameters` is missing.",
        f"Give them to the TableConfig of each of the tables {without}, or for all tables.")
    return parameters


def _to_table(name: str, config: TableConfig, optimizer: RowOptimizer | None) -> TablePlan:
    return TablePlan(name, config.vocabulary_size, config.dimension,
                     initializer_object(config.initializer, f"initializer of table {name!r}"),
                     config.combiner, optimizer)


def _to_row_optimizer(name: str, config: TableConfig, parameters: _OptimizationParameters,
                      clipping_limit: float | None) -> RowOptimizer:
    rule = _to_rule(parameters)
    if isinstance(rule, FrequencyEstimator):
        checks.check(config.dimension == 1, f"dimension of table {name!r}",
                     "1 under FrequencyEstimatorParameters", config.dimension, sentence=
                     "FrequencyEstimator tables should only have a dimension of 1.")
        warn_once("Activations under FrequencyEstimatorParameters are the mean number of steps "
                  "between two lookups; weight_exponent does not change them. Compute "
                  "tf.pow(activation / max_delta, weight_exponent) in model_fn for weights.")
    decay = parameters.weight_decay_factor or 0.0
    return RowOptimizer(
        rule, _learning_rate(name, config, parameters),
        use_gradient_accumulation=bool(parameters.use_gradient_accumulation),
        gradient_limits=_gradient_limits(parameters, clipping_limit),
        weight_limits=(parameters.clip_weight_min, parameters.clip_weight_max),
        weight_decay_factor=decay,
        multiply_weight_decay_by_learning_rate=bool(
            decay and parameters.multiply_weight_decay_factor_by_learning_rate))


def _to_rule(parameters: _OptimizationParameters) -> UpdateRule:
    rule = rule_of(type(parameters), rules_by_parameters())
    if rule is None:
        raise ValueError(checks.complaint(
            "optimization_parameters", f"one of {', '.join(sorted(rules_by_parameters()))}",
            parameters))
    return rule(**{field.name: getattr(parameters, field.name)
                   for field in dataclasses.fields(rule)})


def _learning_rate(table: str, config: TableConfig,
                   parameters: _OptimizationParameters)-> LearningRate:
    if config.learning_rate_fn is not None:
        checks.check_takes(["global_step"], f"learning_rate_fn of table {table!r}",
                           config.learning_rate_fn)
        return config.learning_rate_fn
    return float(config.learning_rate or parameters.learning_rate)


def _gradient_limits(parameters: _OptimizationParameters, clipping_limit: float | None) -> Limits:
    own = (parameters.clip_gradient_min, parameters.clip_gradient_max)
    if clipping_limit is None or own != (None, None):
        return own
    warn_once("clipping_limit clips the summed gradient of every row here; with "
              "use_gradient_accumulation=False, the sum of each replica. A TPU ignored it: leave "
              "it out to reproduce the results of a TPU.")
    return (-clipping_limit, clipping_limit)


@functools.cache
def warn_once(message: str) -> None:
    """Warns once in a process."""
    warnings.warn(message, stacklevel=2)


@functools.cache
def _log_once(directory: str) -> None:
    tf.compat.v1.logging.warning(
        "tpu_estimator_embedding: profile_data_directory=%r is not used: only a TPU collects "
        "lookup statistics there and places tables by them. Leave it out.", directory)
