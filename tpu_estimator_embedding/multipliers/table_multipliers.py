# SPDX-License-Identifier: Apache-2.0
"""The gradient multipliers of single tables."""

import dataclasses
import difflib
import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.multipliers.schedule import Schedule, to_schedule
from tpu_estimator_embedding.multipliers.text_format import parse
from tpu_estimator_embedding.types import COLUMN_TABLE_PREFIX

_REGEX = "re:"


@dataclasses.dataclass(frozen=True)
class TableMultipliers:
    """A mapping from tables to schedules, which a plan can hold.

    A key is a table's name, a glob (`user*`) or, after `re:`, a regular expression that has
    to match the whole name. An exact name takes precedence over patterns; of several
    patterns the first match is used. The table of a feature column is called `tbl_` and the
    name of the column; keys may leave `tbl_` out.

    Attributes:
        items: (key, schedule) in the order given.
        otherwise: multipliers of the tables that no key matches, or None.

    >>> multipliers = TableMultipliers.of({"user*": 0.1, "user_city": "warmup:100"})
    >>> multipliers.resolve(["items", "user", "user_city"])
    {'user': constant(0.1), 'user_city': linear_warmup(0→1, 100 steps)}
    >>> multipliers.resolve(["tbl_user_city"])
    {'tbl_user_city': linear_warmup(0→1, 100 steps)}
    """

    items: tuple[tuple[str, Schedule], ...] = ()
    otherwise: "TableMultipliers | None" = None

    @classmethod
    def of(cls, mapping: "Multipliers") -> "TableMultipliers":
        """Creates one from key -> schedule, number or text format; None means no keys.

        Raises:
            ValueError: if a text or a regular expression cannot be parsed.
            TypeError: if `mapping` is not a mapping, or a key or a value has another type.
        """
        if isinstance(mapping, TableMultipliers):
            return mapping
        if mapping is None:
            return cls()
        checks.check_type(Mapping, "table_multipliers", "a mapping from tables to multipliers",
                          mapping)
        for key in mapping:
            checks.check_type(str, "table_multipliers", "keyed by names, globs or regular "
                              "expressions", key)
            _check_regex(key)
        return cls(tuple(
            (key, parse(value) if isinstance(value, str) else to_schedule(value))
            for key, value in mapping.items()))

    @property
    def texts(self) -> dict[str, str]:
        """Key -> text of its schedule, from which `of` makes an equal object."""
        return {key: schedule.text for key, schedule in self.items}

    def resolve(self, tables: Iterable[str]) -> dict[str, Schedule]:
        """Returns table name -> schedule, for the tables that a key matches.

        Raises:
            ValueError: if a key matches no table; the message has the closest names.
        """
        names = list(tables)
        for key, _ in self.items:
            checks.check(any(_matches(key, name) for name in names), "table_multipliers",
                         "keyed by names of tables, or patterns that match one", key,
                         _nearest(key, names))
        found = {name: self._schedule_of(name) for name in names}
        return (self.otherwise.resolve(names) if self.otherwise else {}) | {
            name: schedule for name, schedule in found.items() if schedule is not None}

    def _schedule_of(self, name: str) -> Schedule | None:
        own = [schedule for key, schedule in self.items if key in _names(name)]
        matching = [schedule for key, schedule in self.items if _matches(key, name)]
        return next(iter(own + matching), None)


# The types that `TableMultipliers.of` accepts.
Multipliers = TableMultipliers | Mapping[str, Schedule | float | str] | None


def _names(table: str) -> tuple[str, ...]:
    """Returns what a key may call a table."""
    return (table, table.removeprefix(COLUMN_TABLE_PREFIX))


def _matches(key: str, table: str) -> bool:
    if key.startswith(_REGEX):
        return any(re.fullmatch(key.removeprefix(_REGEX), name) for name in _names(table))
    return any(key == name or fnmatch.fnmatchcase(name, key) for name in _names(table))


def _check_regex(key: str) -> None:
    if key.startswith(_REGEX):
        try:
            re.compile(key.removeprefix(_REGEX))
        except re.error as error:
            raise ValueError(checks.complaint(
                "table_multipliers", f"keyed by regular expressions after {_REGEX!r} ({error})",
                key)) from error


def _nearest(key: str, names: Collection[str]) -> str:
    nearest = difflib.get_close_matches(key, names, 3, 0.4) or sorted(names) or ["none"]
    return f"Nearest: {', '.join(nearest)}."
