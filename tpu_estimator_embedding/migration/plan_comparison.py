# SPDX-License-Identifier: Apache-2.0
"""Whether a written `embedding_config.py` builds the plan that was captured."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Collection, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.mid_level.config.structure import named_tables
from tpu_estimator_embedding.mid_level.config.to_plan import to_plan
from tpu_estimator_embedding.migration.captured_config import CapturedConfig
from tpu_estimator_embedding.migration.verify.plan_values import initializer_text, values_at_steps
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.patches import patch
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.runtime import tf1
from tpu_estimator_embedding.types import Tensor

_ROWS_COMPARED = 100  # of the values of initializers that are functions

def differences(captured: CapturedConfig, text: str, left: Collection[str] = ()) -> list[str]:
    """Returns the differences of the plan that a module's text builds; empty if it is equal.

    Args:
        captured: the plan, with the program.
        text: of the module.
        left: differences that are known, because the module leaves them to be written.

    Raises:
        Exception: whatever the text raises.
    """
    module = ModuleType("embedding_config")
    exec(compile(text, "embedding_config.py", "exec"), vars(module))
    config = module.feature_config()
    plan, expected = to_plan(config, pipelined=module.PIPELINED), captured.plan
    found = _differences_of_features(plan, expected, module.WEIGHT_KEYS)
    if plan.pipelined != expected.pipelined:
        found.append("pipelining")
    initializers = {name: table.initializer for name, table in named_tables(config).items()}
    for table in expected.tables:
        new = plan.table_by_name.get(table.name)
        if new is None:
            found.append(f"table {table.name!r} is missing")
            continue
        what = _differences_of_tables(table, new, initializers[table.name])
        found += [f"{one} of table {table.name!r}" for one in what]
        rate = f"learning rate of table {table.name!r}"
        if "optimizer" not in what and rate not in left and (
                _rates(expected, table.name) != _rates(module, table.name)):
            found.append(rate)
    found += _differences_of_multipliers(expected, module, left)
    return [one for one in found if one not in left]


def keras3_differences(captured: CapturedConfig, text: str) -> list[str]:
    """Returns how tables and features of Keras RS in a module's text differ from the captured ones.

    Raises:
        Exception: whatever the text raises.
    """
    module = ModuleType("embedding_config")
    with _tensorflow_2(), _runtime(text):
        exec(compile(text, "embedding_config.py", "exec"), vars(module))
        config = module.feature_config()
    found, plan = [], captured.plan
    for feature in plan.features:
        table, new = plan.table_by_name[feature.table], config[feature.name].table
        if (table.name, table.vocabulary_size, table.dimension, table.combiner or "sum") != (
                new.name, new.vocabulary_size, new.embedding_dim, new.combiner):
            found.append(f"table {table.name!r}")
    return found


@contextlib.contextmanager
def _runtime(text: str) -> Iterator[None]:
    """Lets a module import `keras_training`, which `migrate` writes beside it."""
    if "import keras_training" not in text:
        yield
        return
    from tpu_estimator_embedding.migration import to_keras3
    name = to_keras3.RUNTIME.removesuffix(".py")
    module, earlier = ModuleType(name), sys.modules.get(name)
    exec(compile(to_keras3.runtime(), to_keras3.RUNTIME, "exec"), vars(module))
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]
        if earlier is not None:
            sys.modules[name] = earlier


@contextlib.contextmanager
def _tensorflow_2() -> Iterator[None]:
    """Lets Keras 3 import TensorFlow, also in the process of a TensorFlow 1.x program."""
    rows = set(tf1.table())
    originals = {row.path: before.module for row, before in patch.originals().items()
                 if row in rows and row.is_module}
    views = {path: sys.modules.pop(path, None) for path in originals}
    sys.modules.update({path: module for path, module in originals.items()
                        if isinstance(module, ModuleType)})
    try:
        yield
    finally:
        sys.modules.update({path: view for path, view in views.items() if view is not None})


def _differences_of_features(plan: EmbeddingPlan, expected: EmbeddingPlan,
                             weight_keys: dict[str, str]) -> list[str]:
    new = {feature.name: dataclasses.replace(feature, weight_key=weight_keys.get(feature.name))
           for feature in plan.features}
    old = {feature.name: feature for feature in expected.features}
    return [f"feature {name!r}" for name in sorted(new.keys() | old.keys())
            if new.get(name) != old.get(name)]


def _differences_of_tables(old: TablePlan, new: TablePlan, initializer: object) -> list[str]:
    found = [name for name in ("vocabulary_size", "dimension", "quantization")
             if getattr(old, name) != getattr(new, name)]
    if (old.combiner or "sum") != new.combiner:
        found.append("combiner")
    if not _is_same_initializer(old, initializer):
        found.append("initializer")
    if new.optimizer is None or (
            _without_rate(old.training_optimizer) != _without_rate(new.optimizer)):
        found.append("optimizer")
    return found


def _differences_of_multipliers(expected: EmbeddingPlan, module: ModuleType,
                                left: Collection[str]) -> list[str]:
    found = []
    if "gradient multiplier" not in left and (
            _multiples(expected.gradient_multiplier_fn)
            != _multiples(getattr(module, "GRADIENT_MULTIPLIER", None))):
        found.append("gradient multiplier")
    old = {table.name: table.multiplier for table in expected.tables if table.multiplier}
    new = getattr(module, "TABLE_MULTIPLIERS", {})
    return found + [f"gradient multiplier of table {name!r}"
                    for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]


def _without_rate(optimizer: RowOptimizer) -> RowOptimizer:
    return dataclasses.replace(optimizer, learning_rate=0.0)


def _rates(source: EmbeddingPlan | ModuleType, table: str) -> list[float]:
    """Returns the learning rate of a table at some steps, from a plan or a module."""
    def rate(step: Tensor) -> float | Tensor:
        plan = source if isinstance(source, EmbeddingPlan) else to_plan(
            source.feature_config(step))
        found = plan.table_by_name[table].training_optimizer.learning_rate
        return found(step) if callable(found) else found
    return values_at_steps(rate)


def _multiples(multiplier: Callable[[Tensor], Tensor] | None) -> list[float]:
    return values_at_steps(multiplier) if multiplier is not None else []


def _is_same_initializer(table: TablePlan, new: Any) -> bool:
    old: Any = table.initializer
    if hasattr(old, "get_config") or hasattr(new, "get_config"):
        return hasattr(old, "get_config") and hasattr(new, "get_config") and (
            initializer_text(old) == initializer_text(new))
    shape = [min(table.vocabulary_size, _ROWS_COMPARED), table.dimension]
    return _initial_values(old, shape) == _initial_values(new, shape)


def _initial_values(initializer: Any, shape: list[int]) -> bytes | str:
    """Returns what a function draws with the same seed of the graph; its error if it fails."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.set_random_seed(1)
        try:
            return np.asarray(session.run(tf.convert_to_tensor(
                initializer(shape, dtype=tf.float32)))).tobytes()
        except Exception as error:  # noqa: BLE001 (of the program)
            return f"{type(error).__name__}: {error}"
