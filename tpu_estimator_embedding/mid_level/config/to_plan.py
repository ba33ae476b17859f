# SPDX-License-Identifier: Apache-2.0
"""Lowers the TF2 API to an `EmbeddingPlan`.

Objects of `tf.tpu.experimental.embedding` are accepted wherever those of this package are.
Arguments are not modified.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks, other_api
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.optimizer import TableOptimizer, is_optimizer
from tpu_estimator_embedding.mid_level.config.optimizers import SlotVariableCreationFn
from tpu_estimator_embedding.mid_level.config.structure import Shape, named_features, named_tables
from tpu_estimator_embedding.mid_level.config.table_config import QuantizationConfig, TableConfig
from tpu_estimator_embedding.multipliers.table_multipliers import Multipliers, TableMultipliers
from tpu_estimator_embedding.optimizers.registry import rule_of, rules_of_tf2
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.plan.embedding_plan import (
    EmbeddingPlan,
    FeaturePlan,
    TablePlan,
    initializer_object,
)
from tpu_estimator_embedding.types import Initializer, LearningRate, Quantization, Structure, Tensor


def to_plan(feature_config: Structure, optimizer: TableOptimizer | None = None, *,
            num_hosts: int = 1, pipelined: bool = False,
            table_multipliers: Multipliers = None) -> EmbeddingPlan:
    """Lowers features and their tables to a plan.

    Args:
        feature_config: a nested structure of FeatureConfigs. The plan names each feature by its
            path, and tables without a name `table_0`, `table_1`, …
        optimizer: the optimizer of the tables that do not set their own. If it is None, these
            tables cannot be trained.
        num_hosts: parts into which every table is split.
        pipelined: whether activations lack the update of the previous step.
        table_multipliers: a mapping for `TableMultipliers.of`.

    Raises:
        ValueError: if a config or an optimizer is of the wrong class, two tables have the same
            name, a table uses a setting that only SparseCores support, or a key of
            table_multipliers matches no table.

    >>> from tpu_estimator_embedding.mid_level.config import (
    ...     feature_config, optimizers, table_config)
    >>> words = table_config.TableConfig(1000, 16, name="words")
    >>> print(to_plan({"title": feature_config.FeatureConfig(words)}, optimizers.SGD(0.1)))
    Embedding plan: 1 table, 1 feature, 1 host, partition 'div', 62.5 KiB
    table  rows  dim  combiner  optimizer  slots  rows per host     bytes  features
    words  1000   16  mean      SGD(0.1)   -               1000  62.5 KiB  title
    """
    tables = named_tables(feature_config)
    rates = _LearningRates()
    names = {id(config): name for name, config in tables.items()}
    plan = EmbeddingPlan.build(
        [_to_table(name, config, optimizer, rates) for name, config in tables.items()],
        [FeaturePlan(path, names[id(config.table)],
                     0 if has_output_shape(config) else config.max_sequence_length)
         for path, config in named_features(feature_config).items()],
        num_hosts=num_hosts, pipelined=pipelined)
    slots = {f"{table.name}/{slot}": table.name
             for table in plan.tables for slot in table.slot_initial_values}
    for name in sorted(slots.keys() & tables.keys()):  # which checkpoints could not tell apart
        checks.check(False, "names of tables", "other than those of slots", name,
                     f"It is a slot of table {slots[name]!r}: rename one of the tables.")
    return plan.with_multipliers(TableMultipliers.of(table_multipliers))


def with_sequence_lengths(plan: EmbeddingPlan, lengths: Mapping[str, int]) -> EmbeddingPlan:
    """Returns the plan with these sequence lengths; 0 for features that are not sequences."""
    return dataclasses.replace(plan, features=tuple(
        dataclasses.replace(feature, max_sequence_length=lengths[feature.name])
        for feature in plan.features))


def has_output_shape(feature: FeatureConfig) -> bool:
    """Whether a FeatureConfig sets output_shape."""
    return bool(tf.TensorShape(getattr(feature, "output_shape", None)).rank)


def table_optimizer(name: str, table: TableConfig,
                    for_all: TableOptimizer | None) -> TableOptimizer | None:
    """Returns the optimizer of a table: its own, the one for all tables, or None.

    Raises:
        ValueError: if it is not an optimizer of the TF2 API.
    """
    optimizer = for_all if table.optimizer is None else table.optimizer
    if optimizer is not None:
        checks.check(is_optimizer(optimizer), f"optimizer of table {name!r}",
                     f"one of {', '.join(rules_of_tf2())} of this package or of "
                     "tf.tpu.experimental.embedding, or None", optimizer,
                     other_api.tf2_import(optimizer), sentence=f"{type(optimizer)} is an "
                     "unsupported optimizer class. Please pass an instance of one of the optimizer "
                     "classes under tf.tpu.experimental.embedding.")
        _rule_class(name, optimizer)
    return optimizer


def slot_functions(tables: Mapping[str, TableConfig],
                   for_all: TableOptimizer | None) -> dict[str, SlotVariableCreationFn]:
    """Returns the slot_variable_creation_fn of the tables whose optimizer has one."""
    functions = {name: getattr(table_optimizer(name, table, for_all),
                               "slot_variable_creation_fn", None)
                 for name, table in tables.items()}
    return {name: function for name, function in functions.items() if function is not None}


def _to_table(name: str, config: Any, for_all: TableOptimizer | None,
              rates: "_LearningRates") -> TablePlan:
    optimizer = table_optimizer(name, config, for_all)
    return TablePlan(name, config.vocabulary_size, config.dim,
                     _float32(name, config.initializer), config.combiner,
                     None if optimizer is None else _to_row_optimizer(name, optimizer, rates),
                     _to_quantization(getattr(config, "quantization_config", None)))


def _to_quantization(config: QuantizationConfig | None) -> Quantization | None:
    return None if config is None else Quantization(
        config.num_buckets, config.lower, config.upper)


def _float32(table: str, initializer: Initializer) -> Initializer:
    argument = f"initializer of table {table!r}"
    initializer = initializer_object(initializer, argument)
    checks.check(_takes_dtype(initializer), argument, "a function of shape and dtype", initializer,
                 "Give it an argument `dtype`.")

    @functools.wraps(initializer)  # keeps the signature, which callers inspect
    def initialize(shape: Shape, dtype: tf.DType = tf.float32, **options: Any) -> Tensor:
        given = initializer(shape, dtype=dtype, **options)
        values = None if given is None else tf.convert_to_tensor(given)
        checks.check(values is not None and values.dtype != tf.string, argument,
                     "a function that returns numbers", given)
        return tf.cast(values, tf.float32)
    return initialize


def _takes_dtype(initializer: Initializer) -> bool:
    try:
        parameters = inspect.signature(initializer).parameters
    except (TypeError, ValueError):  # of a builtin, for instance
        return True
    return "dtype" in parameters or any(
        parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values())


def _rule_class(table: str, optimizer: TableOptimizer) -> type[UpdateRule]:
    argument, rule = f"optimizer of table {table!r}", f"one of {', '.join(rules_of_tf2())}"
    checks.check(all(base.__name__ != "CustomOptimizer" for base in type(optimizer).__mro__),
                 argument, rule, optimizer,
                 "A CustomOptimizer is compiled by XLA for a SparseCore.")
    found = rule_of(type(optimizer), rules_of_tf2())
    if found is None:
        raise ValueError(checks.complaint(argument, rule, optimizer))
    return found


def _to_row_optimizer(table: str, optimizer: TableOptimizer,
                      rates: "_LearningRates") -> RowOptimizer:
    rule_class = _rule_class(table, optimizer)
    rule = rule_class(**{field: getattr(optimizer, attribute)
                         for field, attribute in rule_class.tf2_attributes().items()})
    decay = optimizer.weight_decay_factor or 0.0
    return RowOptimizer(
        rule, rates.of(table, optimizer.learning_rate),
        use_gradient_accumulation=bool(optimizer.use_gradient_accumulation),
        gradient_limits=(optimizer.clip_gradient_min, optimizer.clip_gradient_max),
        weight_limits=(optimizer.clip_weight_min, optimizer.clip_weight_max),
        weight_decay_factor=decay,
        multiply_weight_decay_by_learning_rate=bool(
            decay and optimizer.multiply_weight_decay_factor_by_learning_rate))


class _LearningRates:
    """Converts learning rates to functions of the step; shared functions are converted once."""

    def __init__(self) -> None:
        self._functions: dict[Callable[[], Any], Callable[[Tensor], Tensor]] = {}

    def of(self, table: str, rate: float | Callable[[], Any]) -> LearningRate:
        if not callable(rate):
            return float(rate)
        checks.check_takes([], f"learning_rate of the optimizer of table {table!r}", rate,
                           "Pass a schedule of the step as `lambda: schedule(step)`, where step is "
                           "a tf.Variable that counts the steps.")
        return self._functions.setdefault(rate, lambda step: rate())
