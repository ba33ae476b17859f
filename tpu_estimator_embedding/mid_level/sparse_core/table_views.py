# SPDX-License-Identifier: Apache-2.0
"""Mappings of stacks that also accept the tables in them as keys."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tpu_estimator_embedding.mid_level.config.table_config import TableConfig


class TableViews(Mapping):
    """A mapping with stack names and TableConfigs as keys.

    Iteration and length are over stacks. `views[config]` is computed from the table's stack.
    """

    def __init__(self, stacks: Mapping[str, Any], tables: Mapping[str, TableConfig],
                 view: Callable[[str], Any]):
        """Args:
            stacks: stack name -> value.
            tables: table name -> its TableConfig.
            view: function from the name of a table to its value.
        """
        self._stacks, self._tables, self._view = stacks, tables, view

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._stacks[key]
        for name, table in self._tables.items():
            if table is key:
                return self._view(name)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stacks)

    def __len__(self) -> int:
        return len(self._stacks)
