# SPDX-License-Identifier: Apache-2.0
"""The contents of a checkpoint of any form: tables with their slots, and other variables.

Every form is read into these records and written from them. Names are those that a
checkpoint of TPUEstimator (`v1`) uses, so that two checkpoints of different forms compare.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping

from tpu_estimator_embedding.checkpoint.bundle.stored_tensor import StoredTensor
from tpu_estimator_embedding.checkpoint.layouts.table_layouts import TableLayout
from tpu_estimator_embedding.checkpoint.slot_names import SLOT_SUFFIXES

PARAMETERS = "parameters"  # the name of the table itself beside those of its slots


@dataclasses.dataclass(frozen=True)
class Table:
    """One embedding table.

    Attributes:
        name: its key in a checkpoint of TPUEstimator, `input_layer/words_embedding/...`.
        rows: `[vocabulary_size, dim]`, by id.
        slots: slot name -> the same shape, by id.
        optimizer: the one that has these slots; None where there are none.
        layout: how the file has the rows.
    """

    name: str
    rows: StoredTensor
    slots: Mapping[str, StoredTensor]
    optimizer: str | None
    layout: TableLayout

    @property
    def vocabulary_size(self) -> int:
        """Number of rows."""
        return self.rows.shape[0]

    @property
    def dimension(self) -> int:
        """Numbers in a row."""
        return self.rows.shape[1]

    @property
    def size(self) -> int:
        """Bytes of the table and its slots."""
        return sum(tensor.size for _, tensor in self.tensors())

    def tensors(self) -> Iterator[tuple[str, StoredTensor]]:
        """Yields PARAMETERS and the table, then every slot."""
        yield PARAMETERS, self.rows
        yield from self.slots.items()

    def key(self, slot: str) -> str:
        """Returns the key of the table or a slot in a checkpoint of TPUEstimator."""
        if slot == PARAMETERS:
            return self.name
        return f"{self.name}/{SLOT_SUFFIXES[self.optimizer or ''][slot]}"


@dataclasses.dataclass(frozen=True)
class Contents:
    """The contents of a checkpoint.

    Attributes:
        path: where it was found.
        form: "v1", "tf2", "tpu-embedding-layer", "keras-rs" or "npz".
        tables: name -> table.
        variables: name -> every other variable, the global step among them.
        others: keys that belong to the form itself, as its graph of objects does.
    """

    path: pathlib.Path
    form: str
    tables: Mapping[str, Table]
    variables: Mapping[str, StoredTensor]
    others: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return (sum(table.size for table in self.tables.values())
                + sum(variable.size for variable in self.variables.values()))

    @property
    def global_step(self) -> int | None:
        """The step, None where the checkpoint does not say it."""
        step = self.variables.get("global_step")
        return None if step is None else int(step.read())
