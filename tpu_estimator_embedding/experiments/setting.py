# SPDX-License-Identifier: Apache-2.0
"""The settings that one run of an experiment overrides."""

import copy
import dataclasses
import itertools
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.multipliers.schedule import (
    Schedule,
    check_number,
    number_text,
    to_schedule,
)
from tpu_estimator_embedding.multipliers.table_multipliers import Multipliers, TableMultipliers
from tpu_estimator_embedding.multipliers.text_format import parse

if TYPE_CHECKING:
    from tpu_estimator_embedding.config.optimization_parameters import _OptimizationParameters
    from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
    from tpu_estimator_embedding.feature_column.column_checks import EmbeddingColumn

_TABLE = "table:"  # prefix of a key of tables in texts
_UNSAFE_IN_PATHS = re.compile(r"[^\w.,:=()+-]")


@dataclasses.dataclass(frozen=True)
class Setting:
    """Values that override those of a program's EmbeddingConfigSpec; None keeps the program's.

    Attributes:
        multiplier: replaces experimental_gradient_multiplier_fn.
        learning_rate: replaces the learning rates and learning_rate_fn of all tables.
        clipping_limit: replaces clipping_limit.
        tables: key of tables -> multiplier, which replaces both the tables' own and `multiplier`.

    >>> Setting(multiplier="warmup:1000", learning_rate=0.1, tables={"user*": 0.1}).label
    'multiplier=warmup:1000,learning_rate=0.1,table:user*=0.1'
    """

    multiplier: Schedule | None = None
    learning_rate: float | None = None
    clipping_limit: float | None = None
    tables: TableMultipliers = TableMultipliers()

    def __init__(self, multiplier: Schedule | float | str | None = None,
                 learning_rate: float | None = None, clipping_limit: float | None = None,
                 tables: Multipliers = None) -> None:
        if isinstance(multiplier, str):
            multiplier = parse(multiplier)
        elif multiplier is not None:
            multiplier = to_schedule(multiplier)
        object.__setattr__(self, "multiplier", multiplier)
        object.__setattr__(self, "learning_rate", learning_rate)
        object.__setattr__(self, "clipping_limit", clipping_limit)
        object.__setattr__(self, "tables", TableMultipliers.of(tables))
        if learning_rate is not None:
            check_number("learning_rate", learning_rate)
        if clipping_limit is not None:
            check_number("clipping_limit", clipping_limit)
            checks.check(clipping_limit > 0, "clipping_limit", "above 0", clipping_limit)

    @property
    def texts(self) -> dict[str, str]:
        """Name -> text of each override, as on the command line."""
        texts = {"multiplier": self.multiplier.text} if self.multiplier is not None else {}
        numbers = {"learning_rate": self.learning_rate, "clipping_limit": self.clipping_limit}
        texts |= {name: number_text(value) for name, value in numbers.items()
                  if value is not None}
        return texts | {f"{_TABLE}{key}": text for key, text in self.tables.texts.items()}

    @property
    def label(self) -> str:
        """The setting in one line; "as it is" without overrides."""
        return ",".join(f"{name}={value}" for name, value in self.texts.items()) or "as it is"

    @property
    def path_name(self) -> str:
        """The label as a directory name, unique for each label."""
        name = _UNSAFE_IN_PATHS.sub("_", self.label.replace("*", "x"))
        if not self.tables.items:
            return name
        return f"{name},{zlib.crc32(self.label.encode()):08x}"

    def applied_to(self, spec: "EmbeddingConfigSpec") -> "EmbeddingConfigSpec":
        """Returns a copy of an EmbeddingConfigSpec with the overrides of this setting."""
        changes: dict[str, Any] = {}
        if self.multiplier is not None:
            changes["experimental_gradient_multiplier_fn"] = self.multiplier
        own = getattr(spec, "table_multipliers", None)  # TensorFlow's class does not have it
        if self.tables.items or (own is not None and self.multiplier is not None):
            changes["table_multipliers"] = TableMultipliers(
                self.tables.items, own if self.multiplier is None else None)
        if self.clipping_limit is not None:
            changes["clipping_limit"] = self.clipping_limit
        if self.learning_rate is not None:
            changes.update(_learning_rate_changes(spec, self.learning_rate))
        return spec._replace(**changes)


def setting_of(texts: dict[str, str]) -> Setting:
    """Returns the setting with these `texts`."""
    tables = {name.removeprefix(_TABLE): text for name, text in texts.items()
              if name.startswith(_TABLE)}
    numbers = {name: float(text) for name, text in texts.items()
               if name != "multiplier" and not name.startswith(_TABLE)}
    return Setting(texts.get("multiplier"), **numbers, tables=tables)


def grid(multipliers: Sequence[Schedule | float | str] = (), learning_rates: Sequence[float] = (),
         clipping_limits: Sequence[float] = (),
         tables: Mapping[str, Sequence[Schedule | float | str]] | None = None) -> list[Setting]:
    """Returns every combination of the given values once.

    Args:
        multipliers, learning_rates, clipping_limits: values of these attributes of Setting.
        tables: key of tables -> multipliers of the tables that it matches.

    >>> [setting.label for setting in grid([0, 1], clipping_limits=[0.5])]
    ['multiplier=0,clipping_limit=0.5', 'multiplier=1,clipping_limit=0.5']
    """
    checks.check_type((Mapping, type(None)), "tables", "a dictionary from tables to multipliers",
                      tables)
    for name, values in (("multipliers", multipliers), ("learning_rates", learning_rates),
                         ("clipping_limits", clipping_limits),
                         *((f"tables[{key!r}]", values) for key, values in (tables or {}).items())):
        checks.check_type(Iterable, name, "a list of values", values)
    keys = list(tables or {})
    axes: list[Sequence[Any]] = [multipliers, learning_rates, clipping_limits,
                                 *(tables or {}).values()]
    combinations = itertools.product(*(axis or [None] for axis in axes))
    return list(dict.fromkeys(
        Setting(multiplier, rate, limit, dict(zip(keys, of_tables, strict=True)))
        for multiplier, rate, limit, *of_tables in combinations))


def settings_of(values: Iterable[Setting | Schedule | float | str]) -> list[Setting]:
    """Returns settings unchanged; converts multipliers, in any format, to settings."""
    return list(dict.fromkeys(
        value if isinstance(value, Setting) else Setting(value) for value in values))


def _learning_rate_changes(spec: "EmbeddingConfigSpec", rate: float) -> dict[str, object]:
    changes: dict[str, object] = {
        "optimization_parameters": _with_rate(spec.optimization_parameters, rate)}
    if spec.table_to_config_dict:
        changes["table_to_config_dict"] = {
            name: table._replace(
                learning_rate=None, learning_rate_fn=None,
                optimization_parameters=_with_rate(table.optimization_parameters, rate))
            for name, table in spec.table_to_config_dict.items()}
    else:
        changes["feature_columns"] = [_without_rate_fn(column) for column in spec.feature_columns]
    return changes


def _with_rate(parameters: "_OptimizationParameters | None",
               rate: float) -> "_OptimizationParameters | None":
    if parameters is None:
        return None
    changed = copy.copy(parameters)
    changed.learning_rate = rate
    return changed


def _without_rate_fn(column: "EmbeddingColumn") -> "EmbeddingColumn":
    if column.get_learning_rate_fn() is None:
        return column
    changed: Any = copy.copy(column)
    changed._learning_rate_fn = None  # the attribute of TensorFlow's columns
    return changed
