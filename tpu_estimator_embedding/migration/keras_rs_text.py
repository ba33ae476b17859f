# SPDX-License-Identifier: Apache-2.0
"""Writes `embedding_config.py` for Keras RS: its configs, and a Keras optimizer for each table."""

import dataclasses
from collections.abc import Collection
from typing import Any

from tpu_estimator_embedding.migration.captured_config import CapturedConfig
from tpu_estimator_embedding.migration.config_text import ConfigWriter
from tpu_estimator_embedding.migration.function_text import NoTextError, Texts, is_constant
from tpu_estimator_embedding.optimizers.row_optimizer import Limits, RowOptimizer
from tpu_estimator_embedding.plan.embedding_plan import TablePlan

# How Keras 3 differs, measured over ten steps of a table of 50 rows.
_ADAM = ("Keras 3's Adam corrects the bias and moves every row at every step: tables were up to "
         "0.35 off after 10 steps of rate 0.01")
_FTRL = ("Keras 3's Ftrl computes every row anew at every step, so rows that no batch looks up "
         "lose their trained values; stay at --to tf2 or --to layers")

# Initializers of tensorflow.python.ops.init_ops with a class of that name in Keras 3.
_INITIALIZERS = ("Constant", "GlorotNormal", "GlorotUniform", "Ones", "Orthogonal", "RandomNormal",
                 "RandomUniform", "TruncatedNormal", "VarianceScaling", "Zeros")


class KerasRsWriter(ConfigWriter):
    """Writes the module for one captured program."""

    imports = {"keras": "import keras", "keras_rs": "import keras_rs"}
    rules: tuple[str, ...] = ("SGD", "Adagrad", "Adam")  # for which there is an optimizer
    checked = "builds equal\ntables and features"

    def __init__(self, captured: CapturedConfig) -> None:
        super().__init__(captured)
        self._rates: dict[str, str] = {}
        self._limits: dict[str, Limits] = {}

    def functions(self) -> list[str]:
        """Returns the blocks of the module below its constants."""
        plan = self._captured.plan
        if plan.pipelined:
            self._report("TEE502", "Keras RS has no pipelining: a lookup sees the update before, "
                         "as with pipeline_execution_with_tensor_core=False")
        features = [f"        {feature.name!r}: keras_rs.layers.FeatureConfig(\n            "
                    f"{feature.name!r}, {self._tables[feature.table]}, input_shape=(None, None), "
                    f"output_shape=(None, {plan.table_by_name[feature.table].dimension})),\n"
                    for feature in plan.features]
        for feature in plan.features:
            if feature.max_sequence_length:
                self._report("TEE503", f"feature {feature.name!r} is a sequence, which a "
                             "DistributedEmbedding combines; use keras.layers.Embedding")
        tables = "".join(map(self._table, plan.tables))
        if seeded := [table.name for table in plan.tables if _seed(table.initializer) is not None]:
            self._report("TEE411", f"the initializers of the tables {seeded} have seeds, from "
                         "which Keras 3 draws other values", "initializer=")
        optimizers = "".join(f"        {table.name!r}: {self._keras_optimizer(table)},\n"
                             for table in plan.tables)
        rates = "".join(f"    {name!r}: {rate},\n" for name, rate in self._rates.items())
        return [
            "# Table -> function of the step, where the learning rate is one.\n"
            f"LEARNING_RATES = {{{self._block(rates)}}}\n"
            "# Table -> bounds of the summed gradient of a row.\n"
            f"GRADIENT_LIMITS = {self._limits!r}",
            'def feature_config():\n    """Returns feature name -> FeatureConfig."""\n'
            f"{tables}    return {{\n{''.join(features)}    }}\n".rstrip("\n"),
            'def optimizers():\n    """Returns table -> its optimizer."""\n'
            f"    return {{\n{optimizers}    }}\n"]

    def _block(self, lines: str) -> str:
        return f"\n{lines}" if lines else ""

    def _table(self, table: TablePlan) -> str:
        try:
            initializer = _initializer(table.initializer, self._texts)
        except NoTextError as error:
            what = f"initializer of table {table.name!r}"
            self._leave(what, f"the {what}: {error}; it is the default one here, wider than "
                        "TPUEstimator's")
            initializer = "None"
        combiner = table.combiner or "sum"  # of one id, which is the row itself
        return (f"    {self._tables[table.name]} = keras_rs.layers.TableConfig(\n"
                f"        name={table.name!r}, vocabulary_size={table.vocabulary_size}, "
                f"embedding_dim={table.dimension},\n        initializer={initializer},\n"
                f"        combiner={combiner!r}, placement=\"default_device\")\n")

    def _keras_optimizer(self, table: TablePlan) -> str:
        optimizer = table.training_optimizer
        rule, name = type(optimizer.rule).__name__, table.name
        if reason := _refusal(optimizer, self.rules):
            code = "TEE501" if rule == "FTRL" else "TEE503"
            self._report(code, f"table {name!r}: {reason}")
            self._texts.definitions["refused"] = (
                "def refused(reason):\n    raise NotImplementedError(reason)")
            return f"refused({reason!r})"
        if any(limit is not None for limit in optimizer.gradient_limits):
            self._limits[name] = optimizer.gradient_limits
        rate = optimizer.learning_rate
        if callable(rate):
            self._rates[name] = self._function(rate, f"learning_rate_of_{self._tables[name]}",
                                               f"learning rate of table {name!r}")
            rate = 0.0  # the training step assigns it
        return self._made(name, rate, optimizer.rule)

    def _made(self, table: str, rate: float, rule: Any) -> str:
        """Returns the expression that makes the optimizer of a table."""
        kind = type(rule).__name__
        if kind == "Adagrad":
            return (f"keras.optimizers.Adagrad({rate!r}, initial_accumulator_value="
                    f"{rule.initial_accumulator!r}, epsilon=0.0)")
        if kind == "Adam":
            self._report("TEE502", f"table {table!r}: {_ADAM}")
            return (f"keras.optimizers.Adam({rate!r}, {rule.beta1!r}, {rule.beta2!r}, "
                    f"epsilon={rule.epsilon!r})")
        return f"keras.optimizers.SGD({rate!r})"


def _refusal(optimizer: RowOptimizer, rules: Collection[str]) -> str:
    """Returns why Keras 3 cannot train a table equally; empty if it can."""
    rule = type(optimizer.rule).__name__
    if rule == "FTRL" and rule not in rules:
        return _FTRL
    if rule not in rules:
        return f"Keras RS has no {rule}"
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
            raise NoTextError(f"its {key} is no constant of the program's text")
    texts.imports.setdefault("keras", "import keras")
    arguments = ", ".join(f"{key}={value!r}" for key, value in config.items())
    return f"keras.initializers.{name}({arguments})"


class Keras3Writer(KerasRsWriter):
    """Writes the module for a program of the stage `keras3`, which trains with `fit`."""

    rules = (*KerasRsWriter.rules, "FTRL")

    def write(self) -> str:
        """Returns the text of the module; settings that the program cannot have are reported."""
        text = super().write()
        for name, setting in (("LEARNING_RATES", "a learning rate that is a function of the step"),
                              ("GRADIENT_LIMITS", "limits of gradients"),
                              ("GRADIENT_MULTIPLIER", "a gradient multiplier"),
                              ("TABLE_MULTIPLIERS", "gradient multipliers of tables")):
            if any(line.startswith(f"{name} = ") and not line.endswith("= {}")
                   for line in text.splitlines()):
                self._report("TEE503", f"{setting} ({name}), which `keras_training` does not have: "
                             "stay at --to keras-rs")
        return text

    def _made(self, table: str, rate: float, rule: Any) -> str:
        kind = type(rule).__name__
        if kind not in ("Adam", "FTRL"):
            return super()._made(table, rate, rule)
        self._texts.imports["keras_training"] = "import keras_training"
        if kind == "Adam":
            return (f"keras_training.TableAdam(\n            {rate!r}, {rule.beta1!r}, "
                    f"{rule.beta2!r}, {rule.epsilon!r}, is_lazy={rule.lazy_adam!r}, "
                    f"sum_inside_sqrt={rule.sum_inside_sqrt!r})")
        settings = (rule.learning_rate_power, rule.initial_accumulator_value,
                    rule.l1_regularization_strength, rule.l2_regularization_strength, rule.beta)
        return (f"keras_training.TableFtrl(\n            {rate!r}, "
                f"{', '.join(map(repr, settings))},\n            multiply_linear_by_learning_rate="
                f"{rule.multiply_linear_by_learning_rate!r})")
