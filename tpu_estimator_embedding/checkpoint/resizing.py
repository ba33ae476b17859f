# SPDX-License-Identifier: Apache-2.0
"""Changes the number of rows of saved tables, for a vocabulary that grew or shrank."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.contents import Table
from tpu_estimator_embedding.checkpoint.names import GROWING_SLOTS
from tpu_estimator_embedding.checkpoint.stored_tensor import StoredTensor

# Called with `(rows, dim)`; returns values of that shape.
RowInitializer = Callable[[tuple[int, int]], np.ndarray]


class ResizedRows(StoredTensor):
    """A tensor with saved rows first and initialized rows after them."""

    def __init__(self, saved: StoredTensor, rows: int, new_rows: RowInitializer):
        super().__init__(saved.dtype, (rows, *saved.shape[1:]))
        self._saved, self._new_rows = saved, new_rows

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        border = min(max(start, self._saved.shape[0]), stop)
        rows = np.empty((stop - start, *self.shape[1:]), self.numpy_dtype)
        if start < border:
            rows[:border - start] = self._saved.read_rows(start, border)
        if border < stop:
            shape = (stop - border, self.shape[1])
            new_rows = self._new_rows(shape)
            checks.check(np.shape(new_rows) == shape, "initializer",
                         f"a function that returns {shape} for (rows, dim) = {shape}",
                         np.shape(new_rows))
            rows[border - start:] = new_rows
        return rows


@dataclasses.dataclass(frozen=True)
class Resize:
    """The new number of rows of a table, and the values of added rows.

    Attributes:
        rows: the new number of rows; rows beyond it are dropped.
        initializer: initializer of added rows: a function, or a text for `row_initializer`.
        slot_values: slot -> initial value, 0 by default. For `accumulators` and `v` the default
            is that of rows that were never trained: rows whose other slots are 0, or, if there
            are no others, as with Adagrad, the smallest value in the slot.
    """

    rows: int
    initializer: RowInitializer | str = "truncated_normal"
    slot_values: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.check_positive_int("rows", self.rows)
        checks.check_type(Mapping, "slot_values", "a dictionary from slots to values",
                          self.slot_values)
        for slot, value in self.slot_values.items():
            least = 0.0 if slot in GROWING_SLOTS else -math.inf
            checks.check(math.isfinite(value) and value >= least, f"value of slot {slot!r}",
                         "finite" + (" and at least 0" if slot in GROWING_SLOTS else ""), value)


def resize_table(table: Table, change: Resize) -> Table:
    """Returns the table with another number of rows, and its slots with it.

    Raises:
        ValueError: if the table does not have a slot, the initializer is unknown, or the table has
            no row that shows the initial value of a slot.
    """
    unknown = sorted(change.slot_values.keys() - table.slots.keys())
    if unknown:
        raise ValueError(f"`slot_values` has {unknown}, which are not slots of table "
                         f"{table.name!r}. It has the slots {sorted(table.slots)}.")
    new_rows = change.initializer
    if isinstance(new_rows, str):
        new_rows = row_initializer(new_rows, table.dimension)
    values = dict(change.slot_values)
    if change.rows > table.vocabulary_size:
        values.update({slot: _initial_value(table, slot)
                       for slot in GROWING_SLOTS & table.slots.keys() - values.keys()})
    slots = {slot: ResizedRows(tensor, change.rows, functools.partial(
        np.full, fill_value=values.get(slot, 0.0))) for slot, tensor in table.slots.items()}
    layout = dataclasses.replace(table.layout, vocabulary_size=change.rows)
    return dataclasses.replace(table, rows=ResizedRows(table.rows, change.rows, new_rows),
                               slots=slots, layout=layout)


def _initial_value(table: Table, slot: str) -> float:
    """Returns the smallest value of a slot in rows whose slots that start at 0 are 0."""
    telling = [tensor for name, tensor in table.slots.items() if name not in GROWING_SLOTS]
    least = math.inf
    for start, stop in table.slots[slot].row_blocks():
        values = table.slots[slot].read_rows(start, stop)
        untrained = np.ones(stop - start, bool)
        for tensor in telling:
            untrained &= (tensor.read_rows(start, stop) == 0).all(axis=1)
        least = min(least, float(np.fmin.reduce(values[untrained], axis=None, initial=math.inf)))
    if math.isfinite(least):
        return least
    raise ValueError(f"The initial value of slot {slot!r} of table {table.name!r} is not known: "
                     f"all rows were trained. Pass it in `slot_values`, or on the command line "
                     f"--slot-value {table.name}/{slot}=VALUE.")


def row_initializer(text: str, dimension: int) -> RowInitializer:
    """Parses the text format of an initializer.

    Args:
        text: `truncated_normal[:STDDEV]`, `normal[:STDDEV]`, `uniform:LOW,HIGH`,
            `constant:VALUE` or `zeros`. STDDEV is 1/√dim by default, as in the engine.
        dimension: number of values per row.

    Raises:
        ValueError: if the text is not an initializer.

    >>> row_initializer("constant:0.5", 2)((1, 2)).tolist()
    [[0.5, 0.5]]
    """
    kind, _, rest = text.partition(":")
    try:
        numbers = [float(number) for number in rest.split(",")] if rest else []
    except ValueError:
        numbers = [float("nan")] * 3  # a number of values that no initializer accepts
    scale = numbers[0] if numbers else 1 / dimension ** 0.5
    generator = np.random.default_rng(0)
    makers: dict[tuple[str, int], RowInitializer] = {
        ("zeros", 0): np.zeros,
        ("constant", 1): lambda shape: np.full(shape, scale),
        ("uniform", 2): lambda shape: generator.uniform(numbers[0], numbers[1], shape)}
    for given in (0, 1):
        makers["normal", given] = lambda shape: generator.normal(0.0, scale, shape)
        makers["truncated_normal", given] = lambda shape: _truncated_normal(
            generator, scale, shape)
    checks.check((kind, len(numbers)) in makers, "initializer", "truncated_normal[:STDDEV], "
                 "normal[:STDDEV], uniform:LOW,HIGH, constant:VALUE or zeros", text)
    checks.check(all(map(math.isfinite, numbers)), "initializer", "made of finite numbers", text)
    checks.check("normal" not in kind or scale >= 0, "initializer",
                 "have a STDDEV of at least 0", text)
    checks.check(kind != "uniform" or numbers[0] <= numbers[-1], "initializer",
                 "have a LOW of at most HIGH", text)
    return makers[kind, len(numbers)]


def _truncated_normal(generator: np.random.Generator, stddev: float,
                      shape: tuple[int, int]) -> np.ndarray:
    """Redraws values that are more than two standard deviations from the mean."""
    values = generator.standard_normal(shape)
    while (far := np.abs(values) > 2).any():
        values[far] = generator.standard_normal(int(far.sum()))
    return values * stddev


def resizes(rows: Mapping[str, str], initializers: Mapping[str, str],
            slot_values: Mapping[str, str]) -> dict[str, Resize]:
    """Returns table name -> its new size.

    Args:
        rows: table -> number of rows.
        initializers: table -> text for `row_initializer`.
        slot_values: `table/slot` -> number.

    Raises:
        ValueError: if a text is not a number, or belongs to a table that keeps its size.

    >>> resizes({"words": "9"}, {}, {"words/accumulators": "0.1"})["words"].slot_values
    {'accumulators': 0.1}
    """
    values: dict[str, dict[str, float]] = {name: {} for name in rows}
    for key, text in slot_values.items():
        table, _, slot = key.rpartition("/")
        if table not in rows:
            raise ValueError(f"`slot-value` has {key!r}, whose table is not resized. The resized "
                             f"tables are {sorted(rows)}.")
        values[table][slot] = _number("slot-value", text, float)
    same_size = sorted(initializers.keys() - rows.keys())
    if same_size:
        raise ValueError(f"`initializer` has {same_size}, which are not resized. The resized "
                         f"tables are {sorted(rows)}.")
    return {name: Resize(_number("resize", text, int),
                         initializers.get(name, "truncated_normal"), values[name])
            for name, text in rows.items()}


_Number = TypeVar("_Number", int, float)


def _number(argument: str, text: str, kind: Callable[[str], _Number]) -> _Number:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(checks.complaint(argument, "a number", text)) from None
