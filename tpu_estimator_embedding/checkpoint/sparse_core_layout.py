# SPDX-License-Identifier: Apache-2.0
"""Where Keras RS on JAX puts the rows of tables that the SparseCores of TPUs share.

Tables of similar rows and one optimizer form a stack: one array, of which each SparseCore has an
equal share of consecutive rows. In a share the tables follow each other. With S SparseCores, id i
of a table is row i // S of the table's rows in share (i + rotation) % S. The rotation of the first
table of a stack is 0, and that of each other is the rotation of the table before plus the number
of SparseCores of a device. The rows of each table are padded to a multiple of 8 S, and all tables
to the width of the stack, a multiple of 8.

>>> cores = SparseCores(devices=2, per_device=2)
>>> stacks = place_tables({"words_tags": (64, 8)}, {"words": (9, 5), "tags": (3, 8)}, cores)
>>> for name, placement in stacks["words_tags"].items(): print(name, placement.row_of(1))
words 16
tags 56
"""

import dataclasses
import hashlib
import itertools
import json
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.names import distinct_keys
from tpu_estimator_embedding.plan.table_stacking import round_up

Shape = tuple[int, int]  # rows and values per row
Stacks = Mapping[str, Any]  # table -> Shape, or stack -> {table -> Shape}

_MULTIPLE = 8  # of rows in a share, and of values per row
_SHOWN, _DIGITS = 50, 12  # characters of a long stack's name, and of the hash that follows
_TRIES = 100_000  # sets of tables that a shortened name may be tried with
_FILE = ('`stacks` (--stacks FILE.json) says which tables a stack has, in their order: {"STACK": '
         '{"TABLE": [ROWS, DIM], ...}, ...}')
_SYNTAX = '{"TABLE": [ROWS, DIM]} or {"STACK": {"TABLE": [ROWS, DIM]}}'


class SparseCores(NamedTuple):
    """The SparseCores that share tables."""

    devices: int  # len(jax.devices()) of the training program
    per_device: int  # 4 on a TPU v5p, 2 on a TPU v6e or 7x

    @property
    def total(self) -> int:
        """The number of all SparseCores, each of which has one share of a stack."""
        return self.devices * self.per_device


def read_sparse_cores(text: str) -> SparseCores:
    """Parses `DEVICESxCORES`.

    >>> read_sparse_cores("4x2")
    SparseCores(devices=4, per_device=2)
    """
    devices, _, per_device = text.partition("x")
    checks.check(devices.isdecimal() and per_device.isdecimal(), "sparse_cores",
                 "DEVICESxCORES, such as 4x2 for 4 devices with 2 SparseCores each", text)
    return sparse_cores("sparse_cores", (int(devices), int(per_device)))


def sparse_cores(argument: str, given: tuple[int, int]) -> SparseCores:
    """Returns the SparseCores that an argument gives.

    Raises:
        ValueError: if these are not two positive numbers.
    """
    is_pair = isinstance(given, tuple) and len(given) == 2
    checks.check(is_pair, argument, "a tuple (devices, SparseCores of each device)", given)
    for number in given:
        checks.check_positive_int(argument, number)
    return SparseCores(*given)


@dataclasses.dataclass(frozen=True)
class Placement:
    """The place of one table in a stack.

    Attributes:
        rows: rows of the table.
        dimension: values per row, without padding.
        cores: number of shares of the stack.
        share_rows: rows of a share.
        first_row: the table's first row in every share.
        rotation: the share with id 0.
    """

    rows: int
    dimension: int
    cores: int
    share_rows: int
    first_row: int
    rotation: int

    def row_of(self, id_: int) -> int:
        """Returns the row of an id in the stack."""
        share = (id_ + self.rotation) % self.cores
        return share * self.share_rows + self.first_row + id_ // self.cores

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yields (id, row, count) for the ids from `start` to `stop`.

        The ids `id`, `id + cores`, ... are in `count` rows from `row` on.
        """
        for first in range(start, min(stop, start + self.cores)):
            yield first, self.row_of(first), len(range(first, stop, self.cores))


def place_tables(stacks: Mapping[str, Shape], tables: Mapping[str, Shape], cores: SparseCores,
                 groups: Mapping[str, Sequence[str]] | None = None,
                 ) -> dict[str, dict[str, Placement]]:
    """Returns stack -> table -> its place.

    A stack is called after its tables, in their order: `words_tags`. A long name is cut, and ends
    in a hash of the whole, which shows whether it belongs to certain tables.

    Args:
        stacks: the shapes of the stacks.
        tables: the shapes of the tables. A shortened name is tried with them in this order, and in
            that of their names.
        cores: the SparseCores.
        groups: stack -> its tables in order, where the name leaves that open.

    Raises:
        ValueError: if the tables do not fit into the stacks, or in several ways.
    """
    groups = groups or {}
    checks.check(groups.keys() <= stacks.keys(), "stacks",
                 f"a mapping from stacks of the checkpoint, which are {sorted(stacks)}",
                 sorted(groups.keys() - stacks.keys()))
    for stack, given in groups.items():
        if stack not in (stack_name(given), "_".join(given)):
            raise ValueError(f"`stacks` must have the tables of stack {stack!r} in their order, "
                             f"got {list(given)}, which make {stack_name(given)!r}.")
    choices = {stack: [tuple(groups[stack])] if stack in groups
               else _named(stack, shape, tables, cores) for stack, shape in stacks.items()}
    for stack, found in choices.items():
        fitting = [names for names in found if _stack_shape(names, tables, cores) == stacks[stack]]
        _check_choices(stack, stacks[stack], found, fitting, tables, cores)
        choices[stack] = fitting
    covers = list(itertools.islice(_covers(list(choices.items()), set(tables)), 2))
    if len(covers) != 1:
        raise ValueError(
            f"The tables {sorted(tables)} must fill the stacks {sorted(stacks)} in exactly one "
            f"way, got {'several ways' if covers else 'none'}. {_FILE}.")
    return {stack: _placements(names, tables, cores) for stack, names in covers[0].items()}


def _check_choices(stack: str, shape: Shape, found: Sequence[Sequence[str]],
                   fitting: Sequence[Sequence[str]], tables: Mapping[str, Shape],
                   cores: SparseCores) -> None:
    if not found:
        raise ValueError(f"No combination of the tables {sorted(tables)} matches the name of the "
                         f"stack {stack!r} and its {shape[0]} rows. {_FILE}; `names` maps other "
                         "names.")
    if not fitting:
        raise ValueError(
            f"Stack {stack!r} has the shape {list(shape)}, but its tables {list(found[0])}, padded "
            f"for {cores.devices} devices with {cores.per_device} SparseCores each, have "
            f"{list(_stack_shape(found[0], tables, cores))}. Pass the devices, SparseCores "
            "and sizes of tables of the program that saved it.")


def stack_name(tables: Sequence[str]) -> str:
    """Returns the name of a stack.

    >>> stack_name(["words", "tags"]), stack_name(["words_of_a_title"] * 4)
    ('words_tags', 'words_of_a_title_words_of_a_title_words_of_a_title...a0d8e59eaa7d')
    """
    name = "_".join(tables)
    if len(name) <= _SHOWN:
        return name
    return f"{name[:_SHOWN]}...{hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]}"


def parse_stacks(stacks: Stacks) -> tuple[dict[str, Shape], dict[str, list[str]]]:
    """Returns table -> shape, and stack -> tables for those stacks that are given.

    Raises:
        ValueError: if it is no mapping of shapes, or a table comes twice.

    >>> parse_stacks({"big": [90, 8], "words_tags": {"words": [9, 5], "tags": [3, 8]}})
    ({'big': (90, 8), 'words': (9, 5), 'tags': (3, 8)}, {'words_tags': ['words', 'tags']})
    """
    checks.check(isinstance(stacks, Mapping), "stacks", _SYNTAX, stacks)
    shapes: dict[str, Shape] = {}
    groups: dict[str, list[str]] = {}
    for name, value in stacks.items():
        if isinstance(value, Mapping):
            groups[name] = list(value)
        for table, shape in (value if name in groups else {name: value}).items():
            is_shape = isinstance(shape, list | tuple) and len(shape) == 2 and all(
                type(size) is int and size > 0 for size in shape)
            checks.check(is_shape, "stacks", _SYNTAX, {table: shape})
            checks.check(table not in shapes, "stacks", "have each table once", table)
            shapes[table] = (shape[0], shape[1])
    return shapes, groups


def without_stacks(stacks: Stacks, kept: Collection[str]) -> Stacks:
    """Returns the tables without the stacks that are not kept.

    >>> without_stacks({"a_b": {"a": [9, 8], "b": [9, 8]}, "c_d": {"c": [9, 8]}}, ["c_d"])
    {'a': [9, 8], 'b': [9, 8], 'c_d': {'c': [9, 8]}}
    """
    found: dict[str, Any] = {}
    for name, value in stacks.items():
        found.update(value if isinstance(value, Mapping) and name not in kept else {name: value})
    return found


def read_stacks(path: pathlib.Path) -> Stacks:
    """Returns the content of a JSON file with stacks or tables.

    Raises:
        ValueError: if the file cannot be read.
    """
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=distinct_keys))
    except OSError as error:
        raise ValueError(f"`stacks` must be a file that can be read, got {path}: "
                         f"{error.strerror}.") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"`stacks` must be a JSON file with {_SYNTAX}, got {path}: "
                         f"{str(error).rstrip('.')}.") from error


def _share_rows(rows: int, cores: SparseCores) -> int:
    """Returns the rows that a table has in each share."""
    return round_up(rows, _MULTIPLE * cores.total) // cores.total


def _stack_shape(names: Sequence[str], tables: Mapping[str, Shape], cores: SparseCores) -> Shape:
    missing = sorted(set(names) - tables.keys())
    checks.check(not missing, "stacks", f"made of the tables {sorted(tables)}", missing)
    return (sum(_share_rows(tables[name][0], cores) for name in names) * cores.total,
            max(round_up(tables[name][1], _MULTIPLE) for name in names))


def _placements(names: Sequence[str], tables: Mapping[str, Shape],
                cores: SparseCores) -> dict[str, Placement]:
    sizes = [_share_rows(tables[name][0], cores) for name in names]
    starts = itertools.accumulate(sizes, initial=0)
    return {name: Placement(*tables[name], cores.total, sum(sizes), start,
                            position * cores.per_device % cores.total)
            for position, (name, start) in enumerate(zip(names, starts, strict=False))}


def _covers(choices: Sequence[tuple[str, Sequence[tuple[str, ...]]]],
            left: set[str]) -> Iterator[dict[str, tuple[str, ...]]]:
    """Yields the choices of one set of tables per stack that use each table once."""
    if not choices:
        if not left:
            yield {}
        return
    (stack, found), *others = choices
    for names in found:
        if left.issuperset(names):
            for rest in _covers(others, left.difference(names)):
                yield {stack: names, **rest}


def _named(stack: str, shape: Shape, tables: Mapping[str, Shape],
           cores: SparseCores) -> list[tuple[str, ...]]:
    """Returns what tables in what order the name of a stack may stand for."""
    if stack_name([stack]) == stack or stack in tables:
        return list(_split(stack, tuple(tables)))
    orders = {tuple(tables), tuple(sorted(tables))}
    return list(dict.fromkeys(itertools.chain.from_iterable(
        _shortened(stack, shape, order, tables, cores) for order in sorted(orders))))


def _split(name: str, tables: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yields the tables that, joined by `_`, have the name."""
    for table in tables:
        if name == table:
            yield (table,)
        elif name.startswith(f"{table}_"):
            others = tuple(other for other in tables if other != table)
            for rest in _split(name[len(table) + 1:], others):
                yield (table, *rest)


def _shortened(stack: str, shape: Shape, order: Sequence[str], tables: Mapping[str, Shape],
               cores: SparseCores) -> Iterator[tuple[str, ...]]:
    """Yields the tables of a shortened name, if they are in this order in it."""
    wanted, visible = shape[0] // cores.total, stack[:_SHOWN]
    fitting = [name for name in order if round_up(tables[name][1], _MULTIPLE) <= shape[1]]
    sizes = [_share_rows(tables[name][0], cores) for name in fitting]
    after = [*itertools.accumulate(reversed(sizes), initial=0)][::-1]  # rows from a position on
    tries = 0
    pending: list[tuple[int, tuple[str, ...], int]] = [(0, (), 0)]  # position, chosen, their rows
    while pending and tries < _TRIES:
        tries += 1
        position, chosen, rows = pending.pop()
        joined = "_".join(chosen)[:_SHOWN]
        if rows > wanted or rows + after[position] < wanted or not visible.startswith(joined):
            continue
        if rows == wanted and chosen:
            if stack_name(chosen) == stack:
                yield chosen
        elif position < len(fitting):
            pending.append((position + 1, chosen, rows))
            pending.append((position + 1, (*chosen, fitting[position]), rows + sizes[position]))
