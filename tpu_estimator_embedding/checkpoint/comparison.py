# SPDX-License-Identifier: Apache-2.0
"""Compares two checkpoints of any formats and layouts, value by value."""

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.contents import PARAMETERS, CheckpointContents
from tpu_estimator_embedding.checkpoint.conversion import StrPath
from tpu_estimator_embedding.checkpoint.files import progress_bar
from tpu_estimator_embedding.checkpoint.names import Names
from tpu_estimator_embedding.checkpoint.reading import Reading, check_used, read_checkpoint
from tpu_estimator_embedding.checkpoint.stored_tensor import STRING, StoredTensor, row_blocks


@dataclasses.dataclass(frozen=True)
class TensorComparison:
    """The difference of one table, slot or variable between two checkpoints.

    Attributes:
        name: name of the table or variable.
        slot: slot of the table, "parameters" for the table itself; None for a variable.
        rows: number of rows; 1 for a scalar.
        differing_rows: number of rows with a difference above the tolerance.
        max_difference: the largest `|a - b|`; NaN if just one of a pair is NaN.
        worst_row: row with that difference, an id for a table; None if all bits are equal.
    """

    name: str
    slot: str | None
    rows: int
    differing_rows: int
    max_difference: float
    worst_row: int | None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The differences between two checkpoints.

    Attributes:
        tensors: the comparisons of all tables, slots and variables that both have.
        only_in_a, only_in_b: names of variables that only one checkpoint has.
    """

    tensors: tuple[TensorComparison, ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]

    @property
    def agree(self) -> bool:
        """Whether both have the same variables, with the same values within the tolerance."""
        return not (self.only_in_a or self.only_in_b
                    or any(tensor.differing_rows for tensor in self.tensors))


def absolute_tolerance(rtol: float, blocks: Iterable[np.ndarray]) -> float:
    """Returns the absolute tolerance of values that belong together, for a relative one.

    Rounding errors of a tensor depend on the size of its values, also where one of them crosses
    zero: the tolerance is `rtol` times the root mean square of the values that are not 0, but not
    less than `rtol / 1000`, which denormal numbers are far below.

    >>> absolute_tolerance(1e-5, [np.array([[3.0, 0.0], [-4.0, 0.0]])])
    3.5355339059327384e-05
    """
    squares, count = 0.0, 0
    for block in blocks if rtol else ():
        values = block.astype(np.float64)
        values = values[np.isfinite(values) & (values != 0)]
        squares, count = squares + float(np.square(values).sum()), count + values.size
    return max(rtol / 1000, rtol * math.sqrt(squares / count) if count else 0.0)


def compare(a: StrPath, b: StrPath, *, rtol: float = 0.0, atol: float | None = 0.0,
            names: Mapping[str, str] | None = None, reading_a: Reading | None = None,
            reading_b: Reading | None = None, tables_only: bool = False,
            progress: bool = False) -> Comparison:
    """Compares two checkpoints, without TensorFlow.

    Values agree if `|a - b| ≤ atol + rtol |b|`, or both are NaN. Tables are compared by id,
    regardless of formats and layouts.

    Args:
        a: a checkpoint, a directory with one, or an `.npz` file.
        b: the other checkpoint.
        rtol: relative tolerance.
        atol: absolute tolerance; None takes that of `absolute_tolerance` for each tensor of b.
        names: name in TPUEstimator -> name of the table, or path of the variable, in TF2.
        reading_a: facts that `a` does not contain.
        reading_b: facts that `b` does not contain.
        tables_only: whether to compare only tables and slots.
        progress: whether to show a progress bar.

    Raises:
        FileNotFoundError: if a file is missing.
        TypeError: if an argument has another type.
        ValueError: if a table or slot is missing on one side, shapes differ, or a checkpoint
            is damaged or in another format.
    """
    for name, tolerance in (("rtol", rtol), ("atol", atol or 0)):
        checks.check_type(numbers.Real, name, "a number", tolerance)
    checks.check(rtol >= 0, "rtol", "at least 0", rtol)
    checks.check((atol or 0) >= 0, "atol", "at least 0", atol)
    table_names = Names(names)
    first = read_checkpoint(a, None, table_names, reading_a)
    second = read_checkpoint(b, None, table_names, reading_b)
    for reading in (reading_a, reading_b):  # the command passes the same for both
        check_used(reading, first, second)
    table_names.check_known(first.tables, first.variables,
                            second.tables, second.variables)
    if first.tables.keys() != second.tables.keys():
        first, second = _named_as_tf2(first, table_names), _named_as_tf2(second, table_names)
    pairs = _table_pairs(first, second)
    shared = [] if tables_only else sorted(first.variables.keys() & second.variables.keys())
    pairs.update({(name, None): (first.variables[name], second.variables[name])
                  for name in shared})
    for (name, slot), (left, right) in pairs.items():
        called = _called(name, slot)
        if left.shape != right.shape:
            raise ValueError(f"Shapes of {called} differ: {list(left.shape)} in a, "
                             f"{list(right.shape)} in b. `convert --resize TABLE=ROWS` changes the "
                             "rows of a table.")
        if left.dtype != right.dtype:
            raise ValueError(f"Types of {called} differ: TensorFlow's DataType {left.dtype} in a, "
                             f"{right.dtype} in b.")
    with progress_bar("Comparing", sum(left.size for left, _ in pairs.values()),
                      progress) as bar:
        tensors = tuple(_compare(
            name, slot, *pair,
            _closeness(rtol, _tolerance(rtol, pair[1]) if atol is None else atol), bar.update)
            for (name, slot), pair in pairs.items())
    only = [] if tables_only else [
        tuple(sorted(one.variables.keys() - other.variables.keys()))
        for one, other in ((first, second), (second, first))]
    return Comparison(tensors, *(only or ((), ())))


def _closeness(rtol: float, atol: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda a, b: np.isclose(a, b, rtol, atol, equal_nan=True)


def _tolerance(rtol: float, tensor: StoredTensor) -> float:
    if tensor.dtype == STRING:
        return 0.0
    return absolute_tolerance(rtol, (_comparable(block) for _, block, _ in _blocks(tensor, tensor)))


def _called(name: str, slot: str | None) -> str:
    return repr(name) if slot in (None, PARAMETERS) else f"slot {slot!r} of {name!r}"


def _named_as_tf2(contents: CheckpointContents, names: Names) -> CheckpointContents:
    """Uses TF2's names of tables, because a TF2 checkpoint may not contain TPUEstimator's."""
    return dataclasses.replace(contents, tables=names.tables(contents.tables))


def _table_pairs(a: CheckpointContents, b: CheckpointContents) -> dict[
        tuple[str, str | None], tuple[StoredTensor, StoredTensor]]:
    _check_same("tables", set(a.tables), set(b.tables))
    pairs: dict[tuple[str, str | None], tuple[StoredTensor, StoredTensor]] = {}
    for name in sorted(a.tables):
        left, right = dict(a.tables[name].tensors()), dict(b.tables[name].tensors())
        _check_same(f"slots of table {name!r}", set(left), set(right))
        pairs.update({(name, slot): (left[slot], right[slot]) for slot in left})
    return pairs


def _check_same(what: str, a: set[str], b: set[str]) -> None:
    if a != b:
        fix = " `--names` gives the names of tables in TF2." if what == "tables" else ""
        raise ValueError(f"a and b have different {what}: {sorted(a)} in a, {sorted(b)} in b.{fix}")


def _compare(name: str, slot: str | None, a: StoredTensor, b: StoredTensor,
             are_close: Callable[[np.ndarray, np.ndarray], np.ndarray],
             advance: Callable[[int], object]) -> TensorComparison:
    rows = a.shape[0] if a.shape else 1
    differing, largest, worst = 0, 0.0, None
    for start, left, right in _blocks(a, b):
        advance(left.nbytes)
        if left.tobytes() == right.tobytes():
            continue
        if left.dtype.kind == "S":  # strings can only be equal or different
            return TensorComparison(name, slot, rows, rows, float("nan"), 0)
        left, right = _comparable(left), _comparable(right)
        differing += int((~are_close(left, right)).any(axis=1).sum())
        distances = _distances(left, right).max(axis=1, initial=0.0)
        row = int(np.argmax(distances))  # a NaN counts as the largest
        if worst is None or not (distances[row] <= largest or np.isnan(largest)):
            largest, worst = float(distances[row]), start + row
    return TensorComparison(name, slot, rows, differing, largest, worst)


def _comparable(block: np.ndarray) -> np.ndarray:
    """Returns bfloat16, with which NumPy does not compute as with its own types, as float32."""
    return block.astype(np.float32) if block.dtype.kind == "V" else block


def _blocks(a: StoredTensor, b: StoredTensor) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields (first row, block of a, block of b); blocks are `[rows, values per row]`."""
    if a.dtype == STRING:
        left, right = (np.array([[b"".join(map(bytes, one.chunks()))]]) for one in (a, b))
        yield 0, left, right
    elif not a.shape:
        yield 0, a.read().reshape(1, 1), b.read().reshape(1, 1)
    else:
        for start, stop in row_blocks(a.shape[0], a.row_bytes):
            left, right = a.read_rows(start, stop), b.read_rows(start, stop)
            yield start, left.reshape(stop - start, -1), right.reshape(stop - start, -1)


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # of equal infinities
        distances = np.abs(a.astype(np.float64) - b.astype(np.float64))
    same = (a == b) | (np.isnan(a) & np.isnan(b) if a.dtype.kind in "fc" else False)
    return np.where(same, 0.0, distances)
