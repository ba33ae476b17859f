# SPDX-License-Identifier: Apache-2.0
"""Writes `embedding_config.py` for Keras 3: configs of Keras RS, and optimizers of tables."""

import dataclasses
from typing import Any

from tpu_estimator_embedding.migration.config_text import ConfigWriter
from tpu_estimator_embedding.migration.function_text import NoTextError, Texts, is_constant
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.plan.embedding_plan import TablePlan

# Initializers of tensorflow.python.ops.init_ops with a class of that name in Keras 3.
_INITIALIZERS = ("Constant", "GlorotNormal", "GlorotUniform", "Ones", "Orthogonal", "RandomNormal",
                 "RandomUniform", "TruncatedNormal", "VarianceScaling", "Zeros")
_RULES = ("SGD", "Adagrad", "Adam", "FTRL")
_ELSEWHERE = "which `keras_training` does not have: stay at --to tf2 or --to layers"


class Keras3Writer(ConfigWriter):
    """Writes the module for one captured program."""

    imports = {"keras": "import keras", "keras_rs": "import keras_rs"}
    checked = "builds equal\ntables and features"

    def functions(self) -> list[str]:
        """Returns the blocks of the module below its constants."""
        plan = self._captured.plan
        self._report_refused()
        features = [f"        {feature.name!r}: keras_rs.layers.FeatureConfig(\n            "
                    f"{feature.name!r}, {self._tables[feature.table]}, input_shape=(None, None), "
                    f"output_shape=(None, {plan.table_by_name[feature.table].dimension})),\n"
                    for feature in plan.features]
        tables = "".join(map(self._table, plan.tables))
        if seeded := [table.name for table in plan.tables if _seed(table.initializer) is not None]:
            self._report("TEE411", f"the initializers of the tables {seeded} have seeds, from "
                         "which Keras 3 draws other values", "initializer=")
        optimizers = "".join(f"        {table.name!r}: {self._keras_optimizer(table)},\n"
                             for table in plan.tables)
        return [
            'def feature_config():\n    """Returns feature name -> FeatureConfig."""\n'
            f"{tables}    return {{\n{''.join(features)}    }}\n".rstrip("\n"),
            'def optimizers():\n    """Returns table -> its optimizer."""\n'
            f"    return {{\n{optimizers}    }}\n"]

    def _report_refused(self) -> None:
        """Reports settings of the plan that this stage has not."""
        plan = self._captured.plan
        if plan.pipelined:
            self._report("TEE502", "Keras RS has no pipelining: a lookup sees the update before, "
                         "as with pipeline_execution_with_tensor_core=False")
        for feature in plan.features:
            if feature.max_sequence_length:
                self._report("TEE503", f"feature {feature.name!r} is a sequence, which a "
                             "DistributedEmbedding combines; use keras.layers.Embedding")
        if plan.gradient_multiplier_fn is not None:
            self._report("TEE503", f"a gradient multiplier (GRADIENT_MULTIPLIER), {_ELSEWHERE}")
        if any(table.multiplier for table in plan.tables):
            self._report("TEE503", "gradient multipliers of tables (TABLE_MULTIPLIERS), "
                         f"{_ELSEWHERE}")

    def _table(self, table: TablePlan) -> str:
        try:
            initializer = _initializer(table.initializer, self._texts)
        except NoTextError as error:
            what = f"initializer of table {table.name!r}"
            self._leave(what, f"the {what}: {error}; the default initializer is used here, which "
                        "is wider than TPUEstimator's")
            initializer = "None"
        combiner = table.combiner or "sum"  # of one id, which is the row itself
        return (f"    {self._tables[table.name]} = keras_rs.layers.TableConfig(\n"
                f"        name={table.name!r}, vocabulary_size={table.vocabulary_size}, "
                f"embedding_dim={table.dimension},\n        initializer={initializer},\n"
                f"        combiner={combiner!r}, placement=\"default_device\")\n")

    def _keras_optimizer(self, table: TablePlan) -> str:
        """Returns the expression that makes the optimizer of a table."""
        if reason := _refusal(table.training_optimizer):
            self._report("TEE503", f"table {table.name!r}: {reason}")
            self._texts.definitions["refused"] = (
                "def refused(reason):\n    raise NotImplementedError(reason)")
            return f"refused({reason!r})"
        optimizer, rule = table.training_optimizer, table.training_optimizer.rule
        rate, limit = optimizer.learning_rate, optimizer.gradient_limits[1]
        assert not callable(rate)  # such a rate is refused
        kind, text = _made(rate, rule)
        if kind.startswith("keras_training."):
            self._texts.imports["keras_training"] = "import keras_training"
        return f"{kind}({text}{'' if limit is None else f', clipvalue={limit!r}'})"


def _made(rate: float, rule: Any) -> tuple[str, str]:
    """Returns the class of a table's optimizer, and the text of its arguments."""
    kind = type(rule).__name__
    if kind == "Adagrad":
        return "keras.optimizers.Adagrad", (
            f"{rate!r}, initial_accumulator_value={rule.initial_accumulator!r}, epsilon=0.0")
    if kind == "Adam":
        return "keras_training.TableAdam", (
            f"\n            {rate!r}, {rule.beta1!r}, {rule.beta2!r}, {rule.epsilon!r}, "
            f"is_lazy={rule.lazy_adam!r}, sum_inside_sqrt={rule.sum_inside_sqrt!r}")
    if kind == "FTRL":
        settings = (rule.learning_rate_power, rule.initial_accumulator_value,
                    rule.l1_regularization_strength, rule.l2_regularization_strength, rule.beta)
        return "keras_training.TableFtrl", (
            f"\n            {rate!r}, {', '.join(map(repr, settings))},\n            "
            f"multiply_linear_by_learning_rate={rule.multiply_linear_by_learning_rate!r}")
    return "keras.optimizers.SGD", repr(rate)


def _refusal(optimizer: RowOptimizer) -> str:
    """Returns why Keras 3 cannot train a table equally; empty if it can."""
    rule, (low, high) = type(optimizer.rule).__name__, optimizer.gradient_limits
    if rule not in _RULES:
        return f"Keras RS has no {rule}"
    if callable(optimizer.learning_rate):
        return f"a learning rate that is a function of the step, {_ELSEWHERE}"
    if (low, high) != (None, None) and (low is None or high is None or low != -high or high <= 0):
        return (f"limits {optimizer.gradient_limits} of gradients, which in Keras are a positive "
                "number and its negative")
    plain = dataclasses.replace(
        optimizer, learning_rate=0.0, gradient_limits=(None, None))
    for field, default in (("use_gradient_accumulation", True), ("weight_limits", (None, None)),
                           ("weight_decay_factor", 0.0)):
        if getattr(plain, field) != default:
            return f"Keras RS has no {field} for single rows, which is {getattr(plain, field)}"
    return ""


def _seed(initializer: object) -> object:
    return initializer.get_config().get("seed") if hasattr(initializer, "get_config") else None


def _initializer(initializer: object, texts: Texts) -> str:
    name = type(initializer).__name__
    if name not in _INITIALIZERS or not hasattr(initializer, "get_config"):
        raise NoTextError(f"Keras 3 has no {name}")
    config = {key: value for key, value in initializer.get_config().items()
              if key != "dtype" and (key, value) not in (("seed", None), ("mean", 0.0))}
    for key, value in config.items():
        if not is_constant(value):
            raise NoTextError(f"its {key} is not a constant in the program's text")
    texts.imports.setdefault("keras", "import keras")
    arguments = ", ".join(f"{key}={value!r}" for key, value in config.items())
    return f"keras.initializers.{name}({arguments})"
