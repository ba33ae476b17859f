# SPDX-License-Identifier: Apache-2.0
"""Names of the features and tables in a nested structure of FeatureConfigs.

The name of a feature is its path in the structure: `user/country` in
`{"user": {"country": ...}}`, `1` for the second element of a list. A structure that is a single
FeatureConfig has one feature, named `feature`.

>>> from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
>>> words = TableConfig(1000, 16)
>>> config = {"query": FeatureConfig(words), "page": [FeatureConfig(words)]}
>>> list(named_features(config)), list(named_tables(config))
(['page/0', 'query'], ['table_0'])
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.python.util import nest

from tpu_estimator_embedding import checks, other_api
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig, is_feature_config
from tpu_estimator_embedding.mid_level.config.table_config import (
    TableConfig,
    check_supported,
    is_table_config,
)
from tpu_estimator_embedding.types import Structure, Tensor

_NOT_THE_SAME = "The two structures don't have the same nested structure."  # TensorFlow's sentence
_ONLY = "feature"  # the path of a FeatureConfig that is the whole structure

# The input of a feature, and its weights, which have the same type.
Ids: TypeAlias = Tensor | tf.SparseTensor | tf.RaggedTensor

Shape: TypeAlias = tf.TensorShape | Sequence[int | None]


def named_features(feature_config: Structure) -> dict[str, FeatureConfig]:
    """Returns path -> FeatureConfig, in the order of `tf.nest.flatten`.

    Raises:
        ValueError: if there are no features, a leaf is not a FeatureConfig, or two features
            have the same path.
    """
    _check_api(feature_config)
    leaves = nest.flatten_with_joined_string_paths(feature_config)
    checks.check(bool(leaves), "feature_config", "have at least one FeatureConfig", feature_config)
    for path, config in leaves:
        checks.check(is_feature_config(config), f"feature_config of {path or _ONLY!r}",
                     "a FeatureConfig", config)
    features = {path or _ONLY: config for path, config in leaves}
    checks.check(len(features) == len(leaves), "feature_config", "have distinct paths",
                 [path for path, _ in leaves])
    return features


def own_configs(feature_config: Structure) -> Structure:
    """Copies a structure of FeatureConfigs and TableConfigs, so that the program cannot change it.

    `named_tables` of the copy and of the original have the same names in the same order.

    Raises:
        ValueError: as `named_features`.
    """
    features = named_features(feature_config)
    tables = {id(config.table): copy.copy(config.table) for config in features.values()}

    def own(config: FeatureConfig) -> FeatureConfig:
        config = copy.copy(config)
        config.table = tables[id(config.table)]
        return config

    return nest.map_structure(own, feature_config)


def _check_api(structure: Structure) -> None:
    """Raises ValueError for a config of the Estimator API.

    It is a tuple, so `tf.nest` would treat its fields as leaves.
    """
    checks.check(not other_api.is_of_estimator_api(structure), "feature_config",
                 "a nested structure of FeatureConfigs", structure,
                 other_api.tf2_import(structure))
    if isinstance(structure, Mapping):
        structure = structure.values()
    elif not isinstance(structure, list | tuple):
        return
    for part in structure:
        _check_api(part)


def named_values(structure: Structure) -> list[tuple[str, Any]]:
    """Returns the path and value of every leaf of a structure like feature_config."""
    return [(path or _ONLY, value)
            for path, value in nest.flatten_with_joined_string_paths(structure)]


def named_shapes(feature_config: Structure, shapes: Structure) -> dict[str, Shape]:
    """Returns path -> shape, from shapes in the structure of the features or in a flat list.

    Raises:
        ValueError, TypeError: if there is not exactly one shape per feature.

    >>> from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
    >>> config = {"a": FeatureConfig(TableConfig(10, 1)), "b": FeatureConfig(TableConfig(10, 1))}
    >>> named_shapes(config, {"a": [2, None], "b": (2, 1)})
    {'a': [2, None], 'b': (2, 1)}
    """
    paths = list(named_features(feature_config))
    leaves = nest.flatten(shapes)
    if len(leaves) != len(paths) or not all(isinstance(leaf, tf.TensorShape) for leaf in leaves):
        try:
            leaves = nest.flatten_up_to(feature_config, shapes)
        except (TypeError, ValueError) as error:
            raise type(error)(checks.complaint(
                "per_replica_input_shapes", "have the structure of feature_config, or be a list of "
                "a TensorShape for each feature", shapes, str(error), sentence=_NOT_THE_SAME)
                ) from None
    return dict(zip(paths, leaves, strict=True))


def check_structure(argument: str, feature_config: Structure, given: Structure) -> None:
    """Checks that values have the structure of feature_config.

    Raises:
        ValueError: if values are missing or superfluous.
        TypeError: if the type of a sequence differs.
    """
    expected = [path for path, _ in named_values(feature_config)]
    paths = [path for path, _ in named_values(given)]
    missing, extra = sorted(set(expected) - set(paths)), sorted(set(paths) - set(expected))
    try:
        nest.assert_same_structure(feature_config, given)
    except (TypeError, ValueError) as error:
        raise type(error)(checks.complaint(
            argument, "have the structure of feature_config", type(given).__name__,
            f"Missing: {missing}. Not configured: {extra}.", sentence=_NOT_THE_SAME)) from error


def named_tables(feature_config: Structure) -> dict[str, TableConfig]:
    """Returns name -> TableConfig, in the order in which features first use the tables.

    A table without a name is named `table_` followed by its index in that order.

    Raises:
        ValueError: if two tables have the same name, or a table uses a setting that only
            SparseCores support.
    """
    configs: list[TableConfig] = []
    for path, feature in named_features(feature_config).items():
        checks.check(is_table_config(feature.table), f"table of feature {path!r}",
                     "a TableConfig", feature.table, other_api.tf2_import(feature.table))
        if not any(feature.table is config for config in configs):
            configs.append(feature.table)
    names = [f"table_{index}" if config.name is None else config.name
             for index, config in enumerate(configs)]
    checks.check(len(set(names)) == len(names), "names of tables", "distinct", names,
                 "Share the TableConfig object between features that share the table.",
                 sentence="Tables must have a unique name. Multiple tables with name "
                 f"{next((name for name in names if names.count(name) > 1), None)} found.")
    for config in configs:
        check_supported(config)
    return dict(zip(names, configs, strict=True))
