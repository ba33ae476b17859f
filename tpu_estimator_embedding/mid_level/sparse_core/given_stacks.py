# SPDX-License-Identifier: Apache-2.0
"""Converts the stack layout that `preprocess_features` takes to this package's."""

from collections.abc import Mapping, Sequence
from typing import Any

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.config.to_plan import to_plan
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import (
    FeaturePlace,
    Stacks,
    lowered,
    output_shape,
)
from tpu_estimator_embedding.plan.table_stacking import SparseCores, TableLayout, TableStack


def given_stacks(cores: SparseCores, stacked_table_to_tables: Mapping[str, Sequence[Any]],
                 table_to_stacked_table_offset: Mapping[str, tuple[str, int, int]],
                 table_to_sample_count: Mapping[str, int],
                 feature_to_sample_offset: Mapping[str, int],
                 flat_features: Sequence[tuple[str, Any]]) -> Stacks:
    """Returns stacks of a given layout.

    Args:
        cores: the SparseCores that tables are sharded over.
        stacked_table_to_tables: stack name -> TableConfigs.
        table_to_stacked_table_offset: table name -> (stack name, first row of the table in the
            stack, core that holds row 0 of the table).
        table_to_sample_count: stack name -> samples per chip.
        feature_to_sample_offset: path -> index of the feature's first sample in the stack.
        flat_features: (path, FeatureConfig) pairs.

    Raises:
        ValueError: if the sample count of a stack is not that of its features.
    """
    tables = to_plan(dict(flat_features))
    stacks = [TableStack(name, tuple(
        _layout(config, table_to_stacked_table_offset[config.name], cores) for config in configs))
        for name, configs in stacked_table_to_tables.items()]
    places = {path: FeaturePlace(
        config.table.name, table_to_stacked_table_offset[config.table.name][0],
        output_shape(path, config, cores), feature_to_sample_offset[path])
        for path, config in flat_features}
    given = lowered(tables, stacks, places)
    for name, count in table_to_sample_count.items():
        checks.check(given.sample_count(name) == count, f"table_to_sample_count[{name!r}]",
                     f"the sample count of its features, {given.sample_count(name)}", count)
    return given


def _layout(config: Any, place: tuple[str, int, int], cores: SparseCores) -> TableLayout:
    _, first_row, rotation = place
    return TableLayout(config.name, config.vocabulary_size, config.dim, cores,
                       first_row // cores.count, rotation)
