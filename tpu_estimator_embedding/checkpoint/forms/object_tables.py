# SPDX-License-Identifier: Apache-2.0
"""Reads checkpoints of `tf.train.Checkpoint` with a TF2 TPUEmbedding or layers with tables."""

import collections
import dataclasses
import pathlib
import re
from collections.abc import Collection, Mapping

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.bundle.bundle_tensor import BundleTensor
from tpu_estimator_embedding.checkpoint.contents import Contents, Table
from tpu_estimator_embedding.checkpoint.forms.object_graph import (
    GRAPH_KEY,
    Path,
    Value,
    object_path,
    parse_graph,
)
from tpu_estimator_embedding.checkpoint.layouts.table_layouts import TableLayout
from tpu_estimator_embedding.checkpoint.names import Names, unique
from tpu_estimator_embedding.checkpoint.slot_names import (
    SLOT_NAMES,
    SLOT_SUFFIXES,
    optimizers_with,
)

LAYER_TABLES = "_tables"  # the attribute of a TPUEmbeddingLayer with its tables
EMBEDDING = "embedding"  # name of a TPUEmbedding in a Checkpoint in TensorFlow's documentation
VARIABLES = "variables"  # name of the dictionary of other variables
TRAPS = ("_trap", "tpu_embedding_trap")  # variables of a layer whose values have no meaning

_BOOKKEEPING = ("save_counter", *TRAPS)
_STACKS = "_sparse_core_table_layouts"  # an attribute of TPUEmbeddingV2
_UNNAMED = re.compile(r"Variable(_\d+)?$")

Tensors = Mapping[str, BundleTensor]


@dataclasses.dataclass(frozen=True)
class SavedObjects:
    """The variables in an object graph.

    Attributes:
        tables: name of a table in TF2 -> slot, or "" for the table itself -> its values.
        variables: all other variables, except bookkeeping.
        others: keys of bookkeeping values.
    """

    tables: Mapping[str, Mapping[str, Value]]
    variables: tuple[Value, ...]
    others: tuple[str, ...]


def find_objects(values: list[Value], tensors: Tensors, objects: tuple[str, ...],
                 wanted: Collection[str] = ()) -> SavedObjects:
    """Divides the values of a graph into tables and other variables.

    Args:
        values: the values in the graph.
        tensors: key -> tensor.
        objects: paths of the objects with tables; () recognizes them by names and slots.
        wanted: names of tables, which identify an object if nothing else does.

    Raises:
        ValueError: if an object does not exist, or tables are stacked.
    """
    values = [value for value in values if value.key in tensors]
    checks.check(not any(_STACKS in value.path for value in values), "checkpoint",
                 "of tables that are not stacked", _STACKS,
                 "Restore it into a TPUEmbeddingV2, and save its tables one by one.")
    children: dict[Path, dict[str, Value]] = collections.defaultdict(dict)
    for value in values:
        children[value.path[:-1]][value.path[-1]] = value
    holders = [path for path in children if object_path(path) in objects] if objects else (
        [path for path, found in children.items() if _has_slots(path, found)]
        or [path for path, found in children.items() if path[-1:] == (EMBEDDING,)
            or wanted and found.keys() >= set(wanted)])
    checks.check(len(holders) >= len(objects), "objects", "paths of objects with tables",
                 objects)
    tables: dict[str, dict[str, Value]] = {}
    for holder in holders:
        for name, slots in _tables_of(children[holder], tensors).items():
            checks.check(name not in tables, "objects", "paths of one object for each table",
                         holders, f"Several have a table {name!r}.")
            tables[name] = slots
    keys = {value.key for slots in tables.values() for value in slots.values()}
    rest = [value for value in values if value.key not in keys]
    return SavedObjects(
        tables, tuple(value for value in rest if value.path[-1] not in _BOOKKEEPING),
        tuple(value.key for value in rest if value.path[-1] in _BOOKKEEPING))


def read_objects(path: pathlib.Path, tensors: Tensors, names: Names, objects: tuple[str, ...],
                 optimizers: Mapping[str, str]) -> Contents:
    """Returns the contents of a TF2 checkpoint, with the names of TPUEstimator.

    Args:
        path: path of the checkpoint.
        tensors: key -> tensor.
        names: names that differ from those of TPUEstimator.
        objects: see `find_objects`.
        optimizers: name of a table -> its optimizer, needed if several optimizers have such slots.
    """
    found = find_objects(parse_graph(tensors[GRAPH_KEY].text()), tensors, objects)
    tables = [_read_table(name, slots, tensors, names, optimizers)
              for name, slots in found.tables.items()]
    variables = named_variables(found.variables, names)
    is_layer = any(value.path[-2:-1] == (LAYER_TABLES,)
                   for slots in found.tables.values() for value in slots.values())
    return Contents(
        path, "tpu-embedding-layer" if is_layer else "tf2",
        unique(((table.name, table) for table in tables), "names",
               "different for different tables"),
        {name: tensors[value.key] for name, value in variables.items()},
        (GRAPH_KEY, *found.others),
        {**{object_path(value.path): name for name, value in variables.items()},
         **dict(zip(found.tables, (table.name for table in tables), strict=True))})


def _has_slots(path: Path, children: Mapping[str, Value]) -> bool:
    return path[-1:] == (LAYER_TABLES,) or any(
        table in children and slot in SLOT_NAMES
        for table, _, slot in (name.rpartition("/") for name in children))


def _tables_of(children: Mapping[str, Value],
               tensors: Tensors) -> dict[str, dict[str, Value]]:
    tables: dict[str, dict[str, Value]] = {}
    for name in sorted(children):
        table, _, slot = name.rpartition("/")
        if table in children and slot in SLOT_NAMES:
            tables.setdefault(table, {})[slot] = children[name]
        elif len(tensors[children[name].key].shape) == 2:
            tables.setdefault(name, {})[""] = children[name]
    return tables


def _read_table(name: str, slots: Mapping[str, Value], tensors: Tensors, names: Names,
                optimizers: Mapping[str, str]) -> Table:
    found = {slot: tensors[value.key] for slot, value in slots.items()}
    rows = found.pop("")
    former = names.former(name) or _former_name(name, slots[""], names)
    optimizer = optimizers.get(former) or optimizers.get(name) or _optimizer(former, slots)
    checks.check(set(SLOT_SUFFIXES.get(optimizer or "SGD", ())) == set(found),
                 f"optimizer of table {name!r}", f"one with the slots {sorted(found)}", optimizer)
    for slot, tensor in found.items():
        checks.check(tensor.shape == rows.shape, f"slot {slot!r} of table {name!r}",
                     f"of shape {rows.shape}", tensor.shape)
    layout = TableLayout("div", 1, max(1, rows.shape[0]))
    return Table(former, rows, found, optimizer, layout)


def _former_name(name: str, value: Value, names: Names) -> str:
    """Returns the name of the table in TPUEstimator, as recorded by a conversion."""
    full_name = re.sub(r"/part_\d+$", "", value.full_name)
    return full_name if names.of_table(full_name) == name else name


def _optimizer(former: str, slots: Mapping[str, Value]) -> str | None:
    candidates = optimizers_with(slots.keys() - {""})
    if not candidates or len(slots) == 1:
        return None
    full_names = {slot: value.full_name for slot, value in slots.items() if slot}
    said = [name for name in candidates if full_names == {
        slot: f"{former}/{suffix}" for slot, suffix in SLOT_SUFFIXES[name].items()}]
    return [*said, *candidates][0]


def named_variables(values: tuple[Value, ...], names: Names) -> dict[str, Value]:
    """Returns name in TPUEstimator, from `names` or the variable's own -> values."""
    full_names = collections.Counter(value.full_name for value in values)

    def name(value: Value) -> str:
        path = object_path(value.path)
        in_dictionary = value.path[-1] if value.path[:-1] == (VARIABLES,) else None
        is_own = full_names[value.full_name] == 1 and not _UNNAMED.match(value.full_name)
        return names.former(path) or in_dictionary or (is_own and value.full_name) or path

    return unique(((name(value), value) for value in values), "names",
                  "different for different variables")
