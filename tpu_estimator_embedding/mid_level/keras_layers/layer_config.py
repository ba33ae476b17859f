# SPDX-License-Identifier: Apache-2.0
"""Converts FeatureConfigs and optimizers to plain values, for the `get_config` of a layer.

Initializers of TensorFlow and Keras are kept. Others, such as functions, have no plain values: a
layer created from a config without weights then warns, and uses the default initializer.
"""

import dataclasses
import importlib
import json
import warnings
from types import ModuleType
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.config import optimizers
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig, is_feature_config
from tpu_estimator_embedding.mid_level.config.optimizer import TableOptimizer
from tpu_estimator_embedding.mid_level.config.table_config import QuantizationConfig, TableConfig
from tpu_estimator_embedding.mid_level.keras_layers.legacy_optimizers import (
    LayerOptimizer,
    is_keras_optimizer,
    with_plain_rate,
)
from tpu_estimator_embedding.types import Initializer, Structure

_TABLE_FIELDS = ("vocabulary_size", "dim", "combiner", "name")
_FEATURE_FIELDS = ("max_sequence_length", "validate_weights_and_indices", "name")
_TENSORFLOW = {"tf.compat.v1": tf.compat.v1, "tf.compat.v2": tf.compat.v2}
_KERASES = ("keras", "tf_keras")


def features_to_dict(feature_config: Structure) -> dict[str, Any]:
    """Converts nested dictionaries, lists and tuples of FeatureConfigs to plain values.

    Raises:
        ValueError: if a setting is a function, or the structure contains another type.
    """
    tables: list[TableConfig] = []

    def convert(node: Structure) -> dict[str, Any]:
        if is_feature_config(node):
            return {"feature": _feature_to_dict(node, tables)}
        if type(node) is dict:
            return {"dict": {key: convert(value) for key, value in node.items()}}
        checks.check(type(node) in (list, tuple), "feature_config", "made of dictionaries, "
                     "lists and tuples to be saved", type(node).__name__, "Save weights instead.")
        return {type(node).__name__: [convert(value) for value in node]}

    return {"structure": convert(feature_config),
            "tables": [_table_to_dict(table) for table in tables]}


def arguments_from_dict(config: dict[str, Any]) -> dict[str, Any]:
    """Converts what `get_config` of a layer returned to arguments of its constructor."""
    return {**config, "feature_config": _features_from_dict(config["feature_config"]),
            "optimizer": _optimizer_from_dict(config["optimizer"])}


def _features_from_dict(config: dict[str, Any]) -> Structure:
    """Converts the result of `features_to_dict` back to a structure of FeatureConfigs."""
    tables = [TableConfig(**{
        **table, "optimizer": _optimizer_from_dict(table["optimizer"]),
        "initializer": _table_initializer(table),
        "quantization_config": table["quantization_config"] and QuantizationConfig(
            **table["quantization_config"])}) for table in config["tables"]]

    def convert(node: dict[str, Any]) -> Structure:
        [(kind, value)] = node.items()
        if kind == "feature":
            return FeatureConfig(**{**value, "table": tables[value["table"]]})
        if kind == "dict":
            return {key: convert(item) for key, item in value.items()}
        return (list if kind == "list" else tuple)(convert(item) for item in value)

    return convert(config["structure"])


def optimizer_to_dict(optimizer: LayerOptimizer) -> dict[str, object] | str | None:
    """Converts an optimizer to plain values; returns a name or None unchanged.

    Raises:
        ValueError: if a setting is a function.
    """
    if optimizer is None or isinstance(optimizer, str):
        return optimizer
    if is_keras_optimizer(optimizer):
        optimizer = with_plain_rate(optimizer)
    kind = next(base.__name__ for base in type(optimizer).__mro__
                if hasattr(optimizers, base.__name__))
    settings = {field.name: getattr(optimizer, field.name)
                for field in dataclasses.fields(getattr(optimizers, kind))
                if hasattr(optimizer, field.name)}
    for name, value in settings.items():
        checks.check(not callable(value), f"{name} of {kind}", "a number, to be saved", value,
                     "Save weights instead of the model.")
    return {"class": kind, **settings}


def _optimizer_from_dict(config: dict[str, Any] | str | None) -> TableOptimizer | str | None:
    """Converts the result of `optimizer_to_dict` back to an optimizer."""
    if not isinstance(config, dict):
        return config
    settings = {name: tuple(value) if isinstance(value, list) else value
                for name, value in config.items() if name != "class"}
    return getattr(optimizers, config["class"])(**settings)


def initializer_to_dict(initializer: Any) -> dict[str, Any] | None:
    """Converts an initializer of TensorFlow or Keras to plain values; returns None for any other.

    >>> initializer_to_dict(tf.compat.v2.constant_initializer(1.0))
    {'class': 'tf.compat.v2.constant_initializer', 'value': 1.0}
    """
    name = _initializer_name(type(initializer))
    if not name:
        return None
    settings = {key: value.item() if hasattr(value, "item") and not getattr(value, "ndim", 0)
                else value for key, value in initializer.get_config().items()}
    try:
        json.dumps(settings)
    except TypeError:  # an array
        return None
    return {"class": name, **settings}


def initializer_from_dict(config: dict[str, Any]) -> Initializer:
    """Converts the result of `initializer_to_dict` back to an initializer."""
    module, _, name = config["class"].rpartition(".")
    initializer: Initializer = getattr(_initializers(module), name).from_config(
        {key: value for key, value in config.items() if key != "class"})
    return initializer


def _initializer_name(kind: type) -> str:
    """Returns the public name of a class of initializers; empty if it is not of a library."""
    library = kind.__module__.partition(".")[0]
    if library in _KERASES:
        is_public = getattr(_initializers(library), kind.__name__, None) is kind
        return f"{library}.{kind.__name__}" if is_public else ""
    return next((f"{prefix}.{name}" for prefix, module in _TENSORFLOW.items()
                 for name in dir(module) if name.endswith("_initializer")
                 and getattr(module, name) is kind), "")


def _initializers(module: str) -> ModuleType:
    found: ModuleType = _TENSORFLOW.get(module) or importlib.import_module(
        module).initializers
    return found


def _table_initializer(table: dict[str, Any]) -> Initializer | None:
    """Returns the initializer in the config of a table; earlier versions have saved none."""
    if "initializer" in table and table["initializer"] is None:
        warnings.warn(
            f"The initializer of table {table['name']!r} is a function or holds an array, so the "
            "layer's config does not contain it. Unless weights are loaded, the table starts from "
            "the default values: create the layer with its TableConfig instead.", stacklevel=2)
    config = table.get("initializer")
    return initializer_from_dict(config) if config else None


def _feature_to_dict(feature: FeatureConfig, tables: list[TableConfig]) -> dict[str, object]:
    if not any(feature.table is table for table in tables):
        tables.append(feature.table)
    shape = tf.TensorShape(getattr(feature, "output_shape", None))
    return {"table": next(place for place, table in enumerate(tables) if table is feature.table),
            **{name: getattr(feature, name) for name in _FEATURE_FIELDS},
            "output_shape": shape.as_list() if shape.rank else None}


def _table_to_dict(table: TableConfig) -> dict[str, object]:
    quantization = getattr(table, "quantization_config", None)
    return {**{name: getattr(table, name) for name in _TABLE_FIELDS},
            "initializer": initializer_to_dict(table.initializer),
            "optimizer": optimizer_to_dict(table.optimizer),
            "quantization_config": quantization and {
                "num_buckets": quantization.num_buckets, "lower": quantization.lower,
                "upper": quantization.upper}}
