# SPDX-License-Identifier: Apache-2.0
"""The intermediate representation: one frozen description of tables, features and optimizers.

Both APIs, the v1 API in `config/` and the TF2 API in `mid_level/`, are lowered to an
`EmbeddingPlan`. The engine, checkpoints and exports use only the plan.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.multipliers.schedule import Schedule
from tpu_estimator_embedding.multipliers.table_multipliers import TableMultipliers
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.plan.format_bytes import format_bytes
from tpu_estimator_embedding.plan.partition_strategy import PARTITION_STRATEGIES, part_sizes
from tpu_estimator_embedding.plan.stacked_feature import StackedFeature
from tpu_estimator_embedding.types import COMBINERS, Initializer, Quantization, Tensor

_BYTES_PER_VALUE = 4  # float32 throughout, as on the TPU
_COLUMNS = ("table", "rows", "dim", "combiner", "optimizer", "slots", "rows per host", "bytes",
            "features", "multiplier")
_RIGHT_ALIGNED = {"rows", "dim", "rows per host", "bytes"}


def initializer_object(given: Any, argument: str) -> Any:
    """Returns an initializer; a class is constructed without arguments, as by `get_variable`.

    Args:
        given: an initializer, a class of one, or None.
        argument: what it is, for the error.

    Raises:
        TypeError: if the constructor of a class needs arguments.
    """
    if not inspect.isclass(given):
        return given
    try:
        return given()
    except TypeError as error:
        raise TypeError(checks.complaint(
            argument, "an initializer, or a class whose constructor needs no arguments", given,
            f"Call the class with its arguments: {error}.")) from error


@dataclasses.dataclass(frozen=True)
class TablePlan:
    """One embedding table.

    Attributes:
        name: unique in the plan.
        vocabulary_size: rows; valid ids are `[0, vocabulary_size)`.
        dimension: columns, the width of an activation.
        initializer: called with the shape and dtype of each part of the table.
        combiner: how the rows of one sample are combined into one activation; None means
            that a sample has exactly one id.
        optimizer: how gradients change the rows; None in a plan that only looks up.
        quantization: levels that looked-up rows are rounded to before they are combined,
            or None. Gradients pass through unchanged.
        multiplier: schedule that scales the gradients of this table and overrides the plan's;
            None means the plan's.
    """

    name: str
    vocabulary_size: int
    dimension: int
    initializer: Initializer
    combiner: str | None = "mean"
    optimizer: RowOptimizer | None = None
    quantization: Quantization | None = None
    multiplier: Schedule | None = None

    def __post_init__(self) -> None:
        checks.check_positive_int("vocabulary_size", self.vocabulary_size)
        checks.check_positive_int("dimension", self.dimension)
        checks.check_one_of("combiner", COMBINERS, self.combiner)

    @property
    def slot_initial_values(self) -> dict[str, float]:
        """The constant each slot variable starts with, by slot name."""
        return dict(self.optimizer.rule.slot_initial_values) if self.optimizer else {}

    @property
    def training_optimizer(self) -> RowOptimizer:
        """The optimizer, which a table must have to be updated.

        Raises:
            RuntimeError: if the plan only looks up.
        """
        if self.optimizer is None:
            raise RuntimeError(f"table {self.name!r} must have an optimizer to be updated, got "
                               "none. Build the plan for training.")
        return self.optimizer

    @property
    def bytes(self) -> int:
        """Bytes of the table and its slots together."""
        copies = 1 + len(self.slot_initial_values)
        return copies * self.vocabulary_size * self.dimension * _BYTES_PER_VALUE


@dataclasses.dataclass(frozen=True)
class FeaturePlan:
    """One feature: the table that its ids look up, and the shape of its activations.

    Attributes:
        name: key of the ids in the features dictionary.
        table: name of a table of the plan.
        max_sequence_length: L > 0 gives activations `[batch, L, dim]`, one row per
            position; 0 gives `[batch, dim]`, combined over the ids of a sample.
        weight_key: key of the weights in the features dictionary, or None.
        stacked: the table that the ids refer to, if `table` is a stack of several tables; None
            if the ids refer to `table`.
    """

    name: str
    table: str
    max_sequence_length: int = 0
    weight_key: str | None = None
    stacked: StackedFeature | None = None

    @property
    def samples_per_unit(self) -> int:
        """Number of samples of the feature per unit of the batch size."""
        return self.stacked.num_samples if self.stacked else 1

    @property
    def rows_per_sample(self) -> int:
        """Rows of activations per unit of the batch size: 1, or the sequence length."""
        return self.samples_per_unit * max(1, self.max_sequence_length)


@dataclasses.dataclass(frozen=True)
class EmbeddingPlan:
    """Everything the engine needs to know, checked, frozen and printable.

    Attributes:
        tables: sorted by name.
        features: sorted by table and then name, the order in which the engine sees them.
        num_hosts: parts into which every table is split.
        partition_strategy: "div" or "mod": which part holds which id.
        pipelined: whether activations lack the update of the previous step.
        gradient_multiplier_fn: function of the global step that scales the gradients of
            tables that do not set their own multiplier, or None.

    >>> print(EmbeddingPlan.build(
    ...     [TablePlan("words", 1000, 16, initializer=None)], [FeaturePlan("title", "words")]))
    Embedding plan: 1 table, 1 feature, 1 host, partition 'div', 62.5 KiB
    table  rows  dim  combiner  optimizer  slots  rows per host     bytes  features
    words  1000   16  mean      -          -               1000  62.5 KiB  title
    """

    tables: tuple[TablePlan, ...]
    features: tuple[FeaturePlan, ...]
    num_hosts: int = 1
    partition_strategy: str = "div"
    pipelined: bool = False
    gradient_multiplier_fn: Callable[[Tensor], Tensor] | None = None

    @classmethod
    def build(cls, tables: Iterable[TablePlan], features: Iterable[FeaturePlan],
              **options: Any) -> "EmbeddingPlan":
        """Sorts and checks tables and features given in any order."""
        return cls(
            tables=tuple(sorted(tables, key=lambda table: table.name)),
            features=tuple(sorted(features, key=lambda feature: (feature.table, feature.name))),
            **options)

    def __post_init__(self) -> None:
        checks.check_positive_int("num_hosts", self.num_hosts)
        checks.check_one_of("partition_strategy", PARTITION_STRATEGIES, self.partition_strategy)
        self._check_names()

    def _check_names(self) -> None:
        tables = [table.name for table in self.tables]
        features = [feature.name for feature in self.features]
        for kind, names in (("tables", tables), ("features", features)):
            checks.check(len(set(names)) == len(names), kind, "have distinct names", names)
        for feature in self.features:
            checks.check(feature.table in tables, f"table of feature {feature.name!r}",
                         f"one of the tables {tables}", feature.table, sentence=
                         "`feature_to_config_dict` refers to a table that is not specified in "
                         "`table_to_config_dict`.")
        unused = sorted(set(tables) - {feature.table for feature in self.features})
        checks.check(not unused, "tables", "used by at least one feature each", unused,
                     "Drop the unused tables from the configuration.", sentence=
                     "`table_to_config_dict` specifies table that is not used in "
                     "`feature_to_config_dict`.")

    @functools.cached_property
    def table_by_name(self) -> dict[str, TablePlan]:
        """Table name -> table."""
        return {table.name: table for table in self.tables}

    @property
    def tables_without_optimizer(self) -> list[str]:
        """Names of the tables that can be looked up, but not trained."""
        return [table.name for table in self.tables if table.optimizer is None]

    def with_multipliers(self, multipliers: TableMultipliers) -> "EmbeddingPlan":
        """Returns the plan with multipliers of single tables.

        Raises:
            ValueError: if a key matches no table of the plan.
        """
        schedules = multipliers.resolve(table.name for table in self.tables)
        return dataclasses.replace(self, tables=tuple(
            dataclasses.replace(table, multiplier=schedules.get(table.name))
            for table in self.tables))

    def multiplier_of(self, table: TablePlan) -> Callable[[Tensor], Tensor] | None:
        """The function of the global step that scales the gradients of a table, or None."""
        return table.multiplier or self.gradient_multiplier_fn

    def features_of(self, table_name: str) -> tuple[FeaturePlan, ...]:
        """The features that look up `table_name`, in engine order."""
        return tuple(feature for feature in self.features if feature.table == table_name)

    def vocabulary_size(self, feature: FeaturePlan) -> int:
        """The number of valid ids of a feature, which are in `[0, vocabulary_size)`."""
        if feature.stacked is not None:
            return feature.stacked.vocabulary_size
        return self.table_by_name[feature.table].vocabulary_size

    def combiner(self, feature: FeaturePlan) -> str:
        """How the rows of a sample are combined: "sum", "mean" or "sqrtn"."""
        if feature.stacked is not None:
            return feature.stacked.combiner
        return self.table_by_name[feature.table].combiner or "sum"

    def restricted_to(self, features: Collection[str]) -> "EmbeddingPlan":
        """Returns the plan with these features only, and the tables they look up."""
        kept = tuple(feature for feature in self.features if feature.name in features)
        tables = {feature.table for feature in kept}
        return dataclasses.replace(
            self, features=kept,
            tables=tuple(table for table in self.tables if table.name in tables))

    def rows_per_host(self, table: TablePlan) -> list[int]:
        """Rows that each host holds; hosts beyond the vocabulary hold none."""
        return part_sizes(table.vocabulary_size, self.num_hosts)

    def tables_of_host(self, host: int) -> list[TablePlan]:
        """Returns the tables of which a host has a part."""
        return [table for table in self.tables if host < len(self.rows_per_host(table))]

    @property
    def bytes(self) -> int:
        """Bytes of all tables and slots."""
        return sum(table.bytes for table in self.tables)

    def __str__(self) -> str:
        return format_plan(self)


def format_plan(plan: EmbeddingPlan) -> str:
    """Returns the plan as a table of fixed-width columns."""
    rows = [_COLUMNS, *(_table_row(plan, table) for table in plan.tables)]
    if not any(table.multiplier for table in plan.tables):
        rows = [row[:-1] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join([_headline(plan), *(_format_row(row, widths) for row in rows)])


def _headline(plan: EmbeddingPlan) -> str:
    counts = [(len(plan.tables), "table"), (len(plan.features), "feature"),
              (plan.num_hosts, "host")]
    parts = [f"{count} {noun}" + ("" if count == 1 else "s") for count, noun in counts]
    parts.append(f"partition {plan.partition_strategy!r}")
    if plan.pipelined:
        parts.append("pipelined")
    if plan.gradient_multiplier_fn:
        schedule = plan.gradient_multiplier_fn
        is_printable = isinstance(schedule, Schedule)
        parts.append(f"gradient multiplier {schedule}" if is_printable else "gradient multiplier")
    return f"Embedding plan: {', '.join(parts)}, {format_bytes(plan.bytes)}"


def _table_row(plan: EmbeddingPlan, table: TablePlan) -> tuple[str, ...]:
    features = plan.features_of(table.name)
    per_host = sorted(set(plan.rows_per_host(table)), reverse=True)
    return (
        table.name, str(table.vocabulary_size), str(table.dimension), str(table.combiner),
        str(table.optimizer or "-"), ", ".join(table.slot_initial_values) or "-",
        "/".join(str(rows) for rows in per_host), format_bytes(table.bytes),
        ", ".join(_feature_label(feature) for feature in features), str(table.multiplier or "-"))


def _feature_label(feature: FeaturePlan) -> str:
    length = f"[{feature.max_sequence_length}]" if feature.max_sequence_length else ""
    weights = f"*{feature.weight_key}" if feature.weight_key else ""
    return f"{feature.name}{length}{weights}"


def _format_row(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [text.rjust(width) if name in _RIGHT_ALIGNED else text.ljust(width)
             for name, text, width in zip(_COLUMNS, row, widths, strict=False)]
    return "  ".join(cells).rstrip()
