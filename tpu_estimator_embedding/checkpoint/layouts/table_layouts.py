# SPDX-License-Identifier: Apache-2.0
"""The record of row layouts in a checkpoint.

A table that several hosts share is saved as one tensor, the concatenation of its parts. With `mod`
the rows of this tensor are a permutation of the ids, which TensorFlow's format does not record;
reading it with another number of hosts would return wrong rows. Therefore checkpoints of this
package contain one more tensor, a scalar string under the key `TABLE_LAYOUTS_KEY`, with this JSON:

    {"version": 1, "tables": {"<key of a table or slot>": {
        "partition_strategy": "mod", "num_hosts": 4, "vocabulary_size": 1000}}}

>>> layout = TableLayout("mod", num_hosts=4, vocabulary_size=1000)
>>> parse_table_layouts(format_table_layouts({"words": layout})) == {"words": layout}
True
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from tpu_estimator_embedding import checks

TABLE_LAYOUTS_KEY = "tpu_estimator_embedding/table_layouts"

_VERSION = 1
_FORM = '{"version": 1, "tables": {key: {"partition_strategy", "num_hosts", "vocabulary_size"}}}'


@dataclasses.dataclass(frozen=True)
class TableLayout:
    """The order of the rows of one saved table or slot.

    Raises:
        ValueError: if a field has an invalid value.
    """

    # "div": row i of the saved tensor is id i. "mod": first the ids 0, n, 2n, ..., then
    # 1, n + 1, 2n + 1, ..., with n = min(num_hosts, vocabulary_size).
    partition_strategy: str
    num_hosts: int
    vocabulary_size: int  # rows of the whole tensor

    def __post_init__(self) -> None:
        checks.check_one_of("partition_strategy", ("div", "mod"), self.partition_strategy)
        checks.check_positive_int("num_hosts", self.num_hosts)
        checks.check_positive_int("vocabulary_size", self.vocabulary_size)

    @property
    def is_by_id(self) -> bool:
        """Whether row i of the saved tensor is id i."""
        return self.partition_strategy == "div" or min(self.num_hosts, self.vocabulary_size) == 1


def format_table_layouts(layouts: Mapping[str, TableLayout]) -> str:
    """Returns the JSON for a checkpoint, with keys in alphabetical order."""
    tables = {key: dataclasses.asdict(layouts[key]) for key in sorted(layouts)}
    return json.dumps({"version": _VERSION, "tables": tables})


def parse_table_layouts(text: str | bytes) -> dict[str, TableLayout]:
    """Returns key of a table or slot -> its layout.

    Args:
        text: the value of the tensor `TABLE_LAYOUTS_KEY`.

    Raises:
        ValueError: if `text` is not this JSON, or was written by a newer version.
    """
    try:
        content = json.loads(text)
    except ValueError:  # invalid JSON or UTF-8
        content = None
    checks.check(isinstance(content, dict) and isinstance(content.get("tables"), dict),
                 TABLE_LAYOUTS_KEY, f"JSON of the form {_FORM}", text)
    checks.check(content.get("version") == _VERSION, f"version of {TABLE_LAYOUTS_KEY}",
                 f"{_VERSION}", content.get("version"),
                 "A newer tpu_estimator_embedding wrote this checkpoint: update to read it.")
    return {key: _layout(key, entry) for key, entry in content["tables"].items()}


def _layout(key: str, entry: Any) -> TableLayout:
    fields = {field.name for field in dataclasses.fields(TableLayout)}
    checks.check(isinstance(entry, dict) and entry.keys() == fields,
                 f"layout of {key!r} in {TABLE_LAYOUTS_KEY}",
                 f"an object with {', '.join(sorted(fields))}", entry)
    return TableLayout(**entry)
