# SPDX-License-Identifier: Apache-2.0
"""Extracts one table of a checkpoint to Parquet, or to TSV for the embedding projector."""

import numbers
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.contents import PARAMETERS
from tpu_estimator_embedding.checkpoint.conversion import StrPath
from tpu_estimator_embedding.checkpoint.files import local_path, new_files, progress_bar
from tpu_estimator_embedding.checkpoint.names import Names
from tpu_estimator_embedding.checkpoint.reading import Reading, check_used, read_checkpoint
from tpu_estimator_embedding.checkpoint.stored_tensor import row_blocks

EMBEDDING = "embedding"  # the column of the table itself, next to its slots

Columns = Mapping[str, np.ndarray]  # name -> `[rows, dim]`
_Blocks = Iterator[tuple[int, Columns]]  # first id, columns

_BYTES_AS_TEXT = 3  # approximate characters per byte of a float


def extract(checkpoint: StrPath, table: str, output: StrPath, *, slots: bool = False,
            rows: tuple[int, int] | None = None, from_: str | None = None,
            names: Mapping[str, str] | None = None, reading: Reading | None = None,
            progress: bool = False) -> int:
    """Writes the rows of a table in the order of their ids, without TensorFlow.

    Args:
        checkpoint: a checkpoint, a directory with one, or an `.npz` file.
        table: its name in TPUEstimator or in TF2.
        output: a new path. `.parquet`: columns `id` (int64) and `embedding` (lists of dim
            numbers). `.tsv`: one line of dim numbers per row, for
            https://projector.tensorflow.org; reading them returns the same bits.
        slots: whether Parquet gets a column for each slot.
        rows: (first id, last id + 1); None means all rows.
        from_: the format that the checkpoint must have; None accepts any format.
        names: name in TPUEstimator -> name in TF2.
        reading: facts that the checkpoint does not contain.
        progress: whether to show a progress bar.

    Returns:
        The number of rows written.

    Raises:
        FileNotFoundError: if a file is missing.
        FileExistsError: if the output exists.
        ImportError: if pyarrow is needed and missing.
        OSError: if the output cannot be written.
        TypeError: if an argument has another type.
        ValueError: if an argument is invalid, or the checkpoint is damaged or in another format.
    """
    path = local_path("output", output)
    checks.check(path.suffix in _WRITERS, "output", "a name that ends in "
                 + " or ".join(_WRITERS), str(output))
    if slots and path.suffix == ".tsv":
        raise ValueError(f"`slots` applies only to .parquet, got slots={slots} for {output}. Leave "
                         "it out, or write .parquet.")
    checks.check(rows is None or _is_pair_of_ints(rows), "rows",
                 "(first id, last id + 1), or None", rows)
    table_names = Names(names)
    contents = read_checkpoint(checkpoint, from_, table_names, reading)
    check_used(reading, contents)
    table_names.check_known(contents.tables, contents.variables)
    former = table_names.find_tables(contents.tables, table)
    checks.check(len(former) == 1, "table", f"one of {sorted(former or contents.tables)}", table)
    found = contents.tables[former[0]]
    start, stop = rows or (0, found.vocabulary_size)
    checks.check(0 <= start < stop <= found.vocabulary_size, "rows",
                 f"a range within 0:{found.vocabulary_size}", f"{start}:{stop}")
    tensors = {EMBEDDING if name == PARAMETERS else name: tensor
               for name, tensor in found.tensors() if slots or name == PARAMETERS}
    size = (stop - start) * found.rows.row_bytes * len(tensors)

    def blocks() -> _Blocks:
        for first, last in row_blocks(stop - start, found.rows.row_bytes):
            columns = {name: tensor.read_rows(start + first, start + last)
                       for name, tensor in tensors.items()}
            yield start + first, columns
            bar.update(sum(column.nbytes for column in columns.values()))

    needed = size * (_BYTES_AS_TEXT if path.suffix == ".tsv" else 1)
    with new_files([path], needed) as [unfinished], progress_bar(
            f"Extracting {found.name}", size, progress) as bar:
        _WRITERS[path.suffix](unfinished, blocks())
    return stop - start


def _is_pair_of_ints(value: object) -> bool:
    return (isinstance(value, Sequence) and len(value) == 2
            and all(isinstance(item, numbers.Integral) for item in value))


def _write_tsv(path: pathlib.Path, blocks: _Blocks) -> None:
    with path.open("x", encoding="utf-8") as file:
        for _, columns in blocks:
            # 9 digits distinguish all float32 values.
            np.savetxt(file, columns[EMBEDDING], fmt="%.9g", delimiter="\t")


def _write_parquet(path: pathlib.Path, blocks: _Blocks) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(f"`output` .parquet needs pyarrow, which does not load: {error}. Run "
                          "`pip install 'tpu_estimator_embedding[parquet]'`.") from error
    writer = None
    try:
        for first, columns in blocks:
            count = len(next(iter(columns.values())))
            arrays = {"id": pyarrow.array(np.arange(first, first + count))} | {
                name: pyarrow.FixedSizeListArray.from_arrays(
                    pyarrow.array(values.reshape(-1)), values.shape[1])
                for name, values in columns.items()}
            block = pyarrow.table(arrays)
            writer = writer or parquet.ParquetWriter(path, block.schema)
            writer.write_table(block)
    finally:
        if writer is not None:
            writer.close()


_WRITERS: Mapping[str, Callable[[pathlib.Path, _Blocks], None]] = {
    ".parquet": _write_parquet, ".tsv": _write_tsv}
