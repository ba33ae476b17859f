# SPDX-License-Identifier: Apache-2.0
"""The settings of a Keras 3 program's tables, under the names that they have in a plan."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tpu_estimator_embedding.migration.verify.plan_values import SEEN_IN_VALUES, plan_values
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.ftrl import FTRL
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.optimizers.sgd import SGD
from tpu_estimator_embedding.optimizers.update_rule import UpdateRule
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

if TYPE_CHECKING:
    import keras  # type: ignore[import-untyped]
    import keras_rs  # type: ignore[import-untyped]

# Class of an optimizer -> rule with the same arithmetic, and setting of the rule -> its name there.
_RULES: dict[str, tuple[Callable[..., UpdateRule], dict[str, str]]] = {
    "SGD": (SGD, {}),
    "Adagrad": (Adagrad, {"initial_accumulator": "initial_accumulator_value"}),
    "TableAdam": (Adam, {"beta1": "beta_1", "beta2": "beta_2", "epsilon": "epsilon",
                         "lazy_adam": "is_lazy", "sum_inside_sqrt": "sum_inside_sqrt"}),
    "TableFtrl": (FTRL, {name: name for name in (
        "learning_rate_power", "initial_accumulator_value", "l1_regularization_strength",
        "l2_regularization_strength", "beta", "multiply_linear_by_learning_rate")}),
}
# Settings of every Keras optimizer that have an attribute in RowOptimizer, or no effect by
# themselves.
_KNOWN = {"learning_rate", "clipvalue", "weight_decay", "name", "ema_momentum",
          "ema_overwrite_frequency"}


def keras3_plan_values(
        features: Mapping[str, "keras_rs.layers.FeatureConfig"],
        optimizer_of: Callable[[str], "keras.optimizers.Optimizer"]) -> dict[str, str]:
    """Returns what `plan_values` would, and settings that only Keras has, if they are in use.

    Initializers are not compared: those of Keras have other settings, and their values are.

    Args:
        features: name -> FeatureConfig of Keras RS.
        optimizer_of: returns the Keras optimizer of a table.
    """
    tables = {feature.table.name: feature.table for feature in features.values()}
    optimizers = {name: optimizer_of(name) for name in tables}
    plan = EmbeddingPlan.build(
        [TablePlan(name, table.vocabulary_size, table.embedding_dim, table.initializer,
                   table.combiner, _row_optimizer(optimizers[name]))
         for name, table in tables.items()],
        [FeaturePlan(name, feature.table.name) for name, feature in features.items()])
    values = plan_values(plan)
    for name, optimizer in optimizers.items():
        prefix = f"tables[{name!r}]."
        values[f"{prefix}initializer"] = SEEN_IN_VALUES
        kind = type(optimizer).__name__
        if kind not in _RULES:
            values[f"{prefix}optimizer.rule"] = kind
        values.update({f"{prefix}optimizer.{setting}": repr(value)
                       for setting, value in optimizer.get_config().items()
                       if value and setting not in _KNOWN
                       and setting not in _settings(kind).values()})
    return values


def _settings(kind: str) -> dict[str, str]:
    return _RULES[kind][1] if kind in _RULES else {}


def _row_optimizer(optimizer: "keras.optimizers.Optimizer") -> RowOptimizer:
    config, kind = optimizer.get_config(), type(optimizer).__name__
    rule: Any = None
    if kind in _RULES:
        rule = _RULES[kind][0](**{ours: config[name] for ours, name in _settings(kind).items()})
    limit, rate = config.get("clipvalue"), config["learning_rate"]
    return RowOptimizer(
        rule, rate["class_name"] if isinstance(rate, Mapping)  # of a schedule
        else float(str(np.float32(rate))),  # 0.1, not 0.10000000149
        gradient_limits=(None, None) if limit is None else (-limit, limit),
        weight_decay_factor=config.get("weight_decay") or 0.0)
