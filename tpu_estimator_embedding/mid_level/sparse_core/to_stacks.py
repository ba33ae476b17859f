# SPDX-License-Identifier: Apache-2.0
"""Lowers the TF2 API to stacks of tables on SparseCores.

Each stack is a table of a plan: its rows are the concatenated shards, and each chip is a host. So
the engine looks up and updates stacks like any other table.
"""

import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.optimizer import TableOptimizer
from tpu_estimator_embedding.mid_level.config.structure import named_features, named_tables
from tpu_estimator_embedding.mid_level.config.to_plan import table_optimizer, to_plan
from tpu_estimator_embedding.multipliers.table_multipliers import Multipliers
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan
from tpu_estimator_embedding.plan.stacked_feature import StackedFeature
from tpu_estimator_embedding.plan.table_stacking import (
    SparseCores,
    StackableTable,
    StackedTableLayout,
    TableStack,
    stack_tables,
)
from tpu_estimator_embedding.types import Structure

_NO_DECAY = ("weight_decay_factor and multiply_weight_decay_factor_by_learning_rate are not "
             "supported yet. But found in table {table} setting.")


@dataclasses.dataclass(frozen=True)
class FeaturePlace:
    """The position of a feature in the activations of its stack.

    Attributes:
        table, stack: names of the table that it looks up, and of the stack with that table.
        output_shape: shape of its activations, without the table's dimension.
        first: index of its first sample in the stack.
    """

    table: str
    stack: str
    output_shape: tuple[int, ...]
    first: int

    @property
    def sample_count(self) -> int:
        """Rows of activations on one chip."""
        return math.prod(self.output_shape)


@dataclasses.dataclass(frozen=True)
class Stacks:
    """Tables and features, lowered to stacks.

    Attributes:
        tables: the tables and features as they were configured.
        stacks: name -> layout of its tables.
        plan: the stacks as tables, each with one feature of the same name.
        feature_plan: the stacks as tables, with the configured features; its batch size is 1.
        features: path -> place, in the order of the structure.
    """

    tables: EmbeddingPlan
    stacks: Mapping[str, TableStack]
    plan: EmbeddingPlan
    feature_plan: EmbeddingPlan
    features: Mapping[str, FeaturePlace]

    @property
    def cores(self) -> SparseCores:
        """The SparseCores that all stacks are sharded over."""
        return next(iter(self.stacks.values())).cores

    @property
    def activation_shapes(self) -> dict[str, list[int]]:
        """Path -> shape of the activations of a feature."""
        return {path: [*place.output_shape, self.tables.table_by_name[place.table].dimension]
                for path, place in self.features.items()}

    def sample_count(self, stack: str) -> int:
        """Rows of activations of a stack on one chip."""
        return sum(place.sample_count for place in self.features.values()
                   if place.stack == stack)

    def feature_plan_of(self, stack: str) -> EmbeddingPlan:
        """The plan of a stack's features, with the stack as its only table."""
        return self.feature_plan.restricted_to(
            [feature.name for feature in self.feature_plan.features_of(stack)])

    def stack_of(self, table: str) -> TableStack:
        """The stack that holds a table."""
        return next(stack for stack in self.stacks.values()
                    if any(layout.name == table for layout in stack.tables))


def to_stacks(feature_config: Structure, optimizer: TableOptimizer | None, cores: SparseCores, *,
              stacking: bool = True, table_multipliers: Multipliers = None) -> Stacks:
    """Lowers features and their tables, and stacks the tables.

    Tables share a stack if their optimizers, quantizations and multipliers are equal.

    Args:
        feature_config: a nested structure of FeatureConfigs.
        optimizer: the optimizer of the tables that do not set their own, or None.
        cores: the SparseCores that tables are sharded over.
        stacking: whether to stack at all; otherwise every table is a separate stack.
        table_multipliers: a mapping for `TableMultipliers.of`.

    Raises:
        ValueError: if an output_shape is not fully defined, the cores of a chip cannot
            share its samples equally, or `to_plan` refuses a config.
        NotImplementedError: if an optimizer has weight decay or a slot_variable_creation_fn.
    """
    tables = to_plan(feature_config, optimizer, table_multipliers=table_multipliers)
    for name, table in named_tables(feature_config).items():
        _check_optimizer(name, table_optimizer(name, table, optimizer))
    shapes = {path: output_shape(path, config, cores)
              for path, config in named_features(feature_config).items()}
    stacks = stack_tables(_stackable(tables, shapes), cores, stacking=stacking)
    return lowered(_with_accumulation(tables), stacks, _places(tables, stacks, shapes))


def _with_accumulation(tables: EmbeddingPlan) -> EmbeddingPlan:
    """Returns tables whose rows get one update per step, from the sum of all replicas."""
    without = [table.name for table in tables.tables
               if table.optimizer and not table.optimizer.use_gradient_accumulation]
    if without:
        warnings.warn(
            "use_gradient_accumulation=False is ignored by TPUEmbeddingV2, as in TensorFlow: a row "
            f"gets one update per step, from the sum of all replicas. It is set for {without}.",
            stacklevel=4)
    return dataclasses.replace(tables, tables=tuple(
        table if table.name not in without else dataclasses.replace(
            table, optimizer=dataclasses.replace(
                table.training_optimizer, use_gradient_accumulation=True))
        for table in tables.tables))


def lowered(tables: EmbeddingPlan, stacks: Sequence[TableStack],
            places: Mapping[str, FeaturePlace]) -> Stacks:
    """Returns tables and features with the plans of their stacks.

    Args:
        tables: the tables and features.
        stacks: the layouts of the tables.
        places: path -> position of the feature in the activations of its stack.
    """
    by_name = {stack.name: stack for stack in stacks}
    plan = plan_of_stacks(tables, stacks)
    features = [FeaturePlan(path, place.stack, stacked=StackedFeature(
        by_name[place.stack], place.table, tables.table_by_name[place.table].combiner or "sum",
        place.sample_count)) for path, place in places.items()]
    return Stacks(tables, by_name, plan, EmbeddingPlan.build(
        plan.tables, features, num_hosts=plan.num_hosts), places)


def _check_optimizer(table: str, optimizer: TableOptimizer | None) -> None:
    for setting, fix, sentence in (
            ("weight_decay_factor", "TPUEmbedding decays weights.", _NO_DECAY),
            ("multiply_weight_decay_factor_by_learning_rate", "TPUEmbedding decays weights.",
             _NO_DECAY),
            ("slot_variable_creation_fn", "Slots of TPUEmbeddingV2 are laid out as its stacks.",
             "")):
        value = getattr(optimizer, setting, None)
        if value is not None:
            raise NotImplementedError(checks.complaint(
                f"{setting} of table {table!r}", "None for TPUEmbeddingV2", value, fix,
                sentence=sentence.format(table=table)))


def output_shape(path: str, config: FeatureConfig, cores: SparseCores) -> tuple[int, ...]:
    """Returns the shape of a feature's activations, without the table's dimension.

    Raises:
        ValueError: if it is not fully defined, or the cores of a chip cannot share it equally.
    """
    shape = tf.TensorShape(config.output_shape)
    checks.check(
        bool(shape.rank) and shape.is_fully_defined(), f"output_shape of feature {path!r}",
        "fully defined for TPUEmbeddingV2", config.output_shape,
        "Pass FeatureConfig(output_shape=[samples of a replica]).")
    sizes = tuple(shape.as_list())
    checks.check(math.prod(sizes) % cores.num_sc_per_chip == 0,
                 f"samples of feature {path!r}", "a multiple of the SparseCores of a chip, "
                 f"{cores.num_sc_per_chip}", math.prod(sizes),
                 "Change FeatureConfig(output_shape=...), or pass num_sc_per_chip.")
    return sizes


def _stackable(tables: EmbeddingPlan,
               shapes: Mapping[str, tuple[int, ...]]) -> Iterator[StackableTable]:
    for table in tables.tables:
        samples = sum(math.prod(shapes[feature.name])
                      for feature in tables.features_of(table.name))
        yield StackableTable(table.name, table.vocabulary_size, table.dimension, samples,
                             group=(table.optimizer, table.quantization, table.multiplier))


def plan_of_stacks(tables: EmbeddingPlan, stacks: Sequence[TableStack]) -> EmbeddingPlan:
    """Returns the plan in which each stack is a table with one feature of the same name."""
    # `initialize_tables` assigns the initial values of the tables.
    zeros = tf.compat.v1.zeros_initializer()
    return EmbeddingPlan.build(
        [dataclasses.replace(
            tables.table_by_name[stack.tables[0].name], name=stack.name, combiner="sum",
            vocabulary_size=stack.shape[0], dimension=stack.shape[1], initializer=zeros)
         for stack in stacks],
        [FeaturePlan(stack.name, stack.name) for stack in stacks],
        num_hosts=stacks[0].cores.num_chips)


def _places(tables: EmbeddingPlan, stacks: tuple[TableStack, ...],
            shapes: Mapping[str, tuple[int, ...]]) -> dict[str, FeaturePlace]:
    table_of = {feature.name: feature.table for feature in tables.features}
    stack_of = {layout.name: stack.name for stack in stacks for layout in stack.tables}
    places, filled = {}, dict.fromkeys(stack_of.values(), 0)
    for path, shape in shapes.items():
        stack = stack_of[table_of[path]]
        places[path] = FeaturePlace(table_of[path], stack, shape, filled[stack])
        filled[stack] += places[path].sample_count
    return places


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


def _layout(config: Any, place: tuple[str, int, int],
            cores: SparseCores) -> StackedTableLayout:
    _, first_row, rotation = place
    return StackedTableLayout(config.name, config.vocabulary_size, config.dim, cores,
                              first_row // cores.count, rotation)
