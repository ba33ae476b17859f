# SPDX-License-Identifier: Apache-2.0
"""An EmbeddingPlan as text, value by value, so that plans of two processes can be compared."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

SEEN_IN_VALUES = "[seen in the values]"  # of a setting that cannot be compared as such
# Modules whose initializers draw other numbers from a seed than those of the same name in Keras.
_OF_TF1 = (".init_ops", ".initializers_v1")
_STEPS = (0, 1, 7, 100, 1000, 12345)  # at which functions of the step are evaluated


def plan_values(plan: EmbeddingPlan, *, evaluate: bool = True) -> dict[str, str]:
    """Returns the path of every value in a plan -> the value.

    Args:
        plan: of a TPUEstimator or of a class of TF2.
        evaluate: whether rates that are functions are evaluated at some steps. Those of TF2
            read a variable of their program and cannot be.
    """
    return {path: _text(path, value, evaluate=evaluate) for path, value in _values("", plan)}


def of_tables(legacy: Mapping[str, str],
              migrated: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns of two plans what a program of a later stage has, too: tables and sequence lengths.

    Tables are called as the features that look them up, because their own names may differ.
    Learning rates that are functions show in the numbers, as does a gradient multiplier. A table
    that a later program adds up may take one row for each sample in the legacy program. Keras
    keeps learning rates in float32.
    """
    old, new = _by_feature(legacy), _by_feature(migrated)
    for path in old.keys() & new.keys():
        if (new[path] == SEEN_IN_VALUES
                or (path.endswith("combiner") and (old[path], new[path]) == ("None", "'sum'"))
                or (path.endswith("learning_rate") and _is_same_rate(old[path], new[path]))):
            new[path] = old[path]
    return old, new if new else old


def _is_same_rate(legacy: str, migrated: str) -> bool:
    if legacy.startswith("["):  # a function
        return True
    try:
        return np.float32(legacy) == np.float32(migrated)
    except ValueError:
        return False


def _by_feature(plan: Mapping[str, str]) -> dict[str, str]:
    found = {path: value for path, value in plan.items() if path == "pipelined"}
    for path, value in plan.items():
        feature = re.match(r"features\['(.*?)'\]\.(\w+)$", path)
        if feature and feature[2] == "max_sequence_length":
            found[path] = value
        if feature and feature[2] == "table":
            prefix = f"tables[{value}]."
            found.update({f"table of {feature[1]}: {one.removeprefix(prefix)}": text
                          for one, text in plan.items() if one.startswith(prefix)
                          and one != f"{prefix}name"})
    return found


def _values(path: str, value: object) -> Iterator[tuple[str, object]]:
    if dataclasses.is_dataclass(value):
        if path:  # of an optimizer, its rule
            yield path, type(value)
        for field in dataclasses.fields(value):
            yield from _values(f"{path}.{field.name}".lstrip("."), getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _values(f"{path}[{key!r}]", one)
    elif isinstance(value, tuple | list):
        for index, one in enumerate(value):
            yield from _values(f"{path}[{getattr(one, 'name', index)!r}]", one)
    else:
        yield path, value


def _text(path: str, value: object, *, evaluate: bool) -> str:
    if isinstance(value, type):
        return value.__name__
    value = inspect.unwrap(value) if callable(value) else value
    if hasattr(value, "get_config"):
        return initializer_text(value)
    if not callable(value):
        return repr(value)
    if path.endswith(("learning_rate", "gradient_multiplier_fn")):
        if not evaluate:
            return "[a function of variables]"
        return str(values_at_steps(value))
    return getattr(value, "__name__", type(value).__qualname__)


def initializer_text(initializer: Any) -> str:
    """Returns what an initializer computes: its class, settings, and where its numbers come from.

    Tables are float32, whether an initializer says so or leaves it to the variable.
    """
    config = {key: value for key, value in initializer.get_config().items()
              if (key, value) != ("dtype", "float32")}
    text = f"{type(initializer).__name__}({config})"
    is_other = config.get("seed") is not None and type(initializer).__module__.endswith(_OF_TF1)
    return f"{text} of tf.compat.v1" if is_other else text


def values_at_steps(function: Callable[[Tensor], float | Tensor]) -> list[float]:
    """Evaluates a function of the step in graphs: the program may have switched V2 off."""
    import tensorflow as tf  # only here, because captured plans are read without it
    values = []
    for step in _STEPS:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            value = function(tf.constant(step, tf.int64))
            values.append(float(session.run(value) if tf.is_tensor(value) else value))
    return values
