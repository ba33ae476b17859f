# SPDX-License-Identifier: Apache-2.0
"""The contents of a checkpoint of any format: tables with their slots, and other variables.

Every format is read into these records and written from them. Names are those of a TPUEstimator
checkpoint (`v1`), so that checkpoints of different formats can be compared.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping

from tpu_estimator_embedding.checkpoint.names import SLOT_SUFFIXES
from tpu_estimator_embedding.checkpoint.sparse_core_layout import SparseCores
from tpu_estimator_embedding.checkpoint.stored_tensor import StoredTensor
from tpu_estimator_embedding.checkpoint.table_layouts import TableLayout

GLOBAL_STEP = "global_step"  # name of the variable
PARAMETERS = "parameters"  # the name of the table itself next to its slots


@dataclasses.dataclass(frozen=True)
class Table:
    """One embedding table.

    Attributes:
        name: its key in a TPUEstimator checkpoint, `input_layer/words_embedding/...`.
        rows: `[vocabulary_size, dim]`, in the order of ids.
        slots: slot name -> tensor of the same shape and order.
        optimizer: the optimizer with these slots; None without slots.
        layout: the layout of the rows in the file.
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
        """Number of values per row."""
        return self.rows.shape[1]

    @property
    def size(self) -> int:
        """Number of bytes of the table and its slots."""
        return sum(tensor.size for _, tensor in self.tensors())

    def tensors(self) -> Iterator[tuple[str, StoredTensor]]:
        """Yields PARAMETERS and the table, then every slot."""
        yield PARAMETERS, self.rows
        yield from self.slots.items()

    def key(self, slot: str) -> str:
        """Returns the key of the table or a slot in a TPUEstimator checkpoint."""
        if slot == PARAMETERS:
            return self.name
        return f"{self.name}/{SLOT_SUFFIXES[self.optimizer or ''][slot]}"


@dataclasses.dataclass(frozen=True)
class CheckpointContents:
    """The contents of a checkpoint.

    Attributes:
        path: path of the checkpoint.
        form: "v1", "tf2", "tpu-embedding-layer", "keras-rs", "keras-rs-jax" or "npz".
        tables: name -> table.
        variables: name -> variable, for all other variables including the global step.
        others: keys that belong to the format itself, such as its object graph.
        paths: in the formats of TF2, path of a variable or name of a table -> its name above.
        sparse_cores: the SparseCores that share its tables, if there are such.
    """

    path: pathlib.Path
    form: str
    tables: Mapping[str, Table]
    variables: Mapping[str, StoredTensor]
    others: tuple[str, ...] = ()
    paths: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sparse_cores: SparseCores | None = None

    @property
    def size(self) -> int:
        """Number of bytes of all values."""
        return (sum(table.size for table in self.tables.values())
                + sum(variable.size for variable in self.variables.values()))

    @property
    def global_step(self) -> int | None:
        """The global step; None if the checkpoint does not contain it."""
        step = self.variables.get(GLOBAL_STEP)
        return None if step is None else int(step.read())


@dataclasses.dataclass(frozen=True)
class ConvertedTensors:
    """The output of a conversion.

    Attributes:
        tensors: key -> tensor.
        left_out: names of variables of the source that the template does not have.
        kept: names of variables of the template that the source does not have.
    """

    tensors: Mapping[str, StoredTensor]
    left_out: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def check_shapes(self, template: Mapping[str, StoredTensor]) -> None:
        """Raises ValueError unless values have the shapes and types of the template."""
        for key, tensor in self.tensors.items():
            found = template[key]
            if tensor.shape != found.shape:
                raise ValueError(f"{key!r} has the shape {list(found.shape)} in the template, but "
                                 f"{list(tensor.shape)} in the checkpoint. `--resize TABLE=ROWS` "
                                 "changes the rows of a table.")
            if tensor.dtype != found.dtype:
                raise ValueError(f"{key!r} has TensorFlow's DataType {found.dtype} in the "
                                 f"template, but {tensor.dtype} in the checkpoint.")
