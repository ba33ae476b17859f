# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of `tf.train.Checkpoint` with a TF2 TPUEmbedding or with layers that have tables.

Their object graph has Python objects as nodes, and as edges the attributes that reference another
object. The values of a variable are an attribute of its node; their key is the path from the root:

>>> graph = format_graph({("embedding", "words/accumulators"): "words/Adagrad"})
>>> [(value.path, value.full_name, value.key) for value in parse_graph(graph)]
[(('embedding', 'words/accumulators'), 'words/Adagrad',
  'embedding/words.Saccumulators/.ATTRIBUTES/VARIABLE_VALUE')]

Without a template, a converted checkpoint has the structure of

    tf.train.Checkpoint(embedding=tpu_embedding, variables={"dense/kernel": kernel, ...})

or with `layer=tpu_embedding_layer` instead of `embedding`. With a template, saved by the program
that will restore it, the checkpoint has the structure of the template and the values of the source.
"""

import collections
import dataclasses
import pathlib
import re
from collections.abc import Collection, Mapping

import numpy as np
from google.protobuf import message
from tensorboard.compat.proto.trackable_object_graph_pb2 import TrackableObjectGraph

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.bundle import BundleTensor
from tpu_estimator_embedding.checkpoint.contents import (
    GLOBAL_STEP,
    PARAMETERS,
    CheckpointContents,
    ConvertedTensors,
    Table,
)
from tpu_estimator_embedding.checkpoint.names import (
    SLOT_NAMES,
    SLOT_SUFFIXES,
    Names,
    optimizers_with,
    unique,
)
from tpu_estimator_embedding.checkpoint.stored_tensor import ArrayTensor, StoredTensor, TextTensor
from tpu_estimator_embedding.checkpoint.table_layouts import TableLayout

GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE = "VARIABLE_VALUE"

LAYER_TABLES = "_tables"  # the attribute of a TPUEmbeddingLayer with its tables
EMBEDDING = "embedding"  # name of a TPUEmbedding in a Checkpoint in TensorFlow's documentation
VARIABLES = "variables"  # name of the dictionary of other variables
MULTIPLIER_STEP = "multiplier_step"  # counts updates beside tables with a schedule of multipliers
TRAPS = ("_trap", "tpu_embedding_trap")  # variables of a layer whose values have no meaning
LAYER = "layer"  # name of a layer in a checkpoint without a template

Path = tuple[str, ...]
Tensors = Mapping[str, BundleTensor]

_BOOKKEEPING = ("save_counter", *TRAPS)
_STACKS = "_sparse_core_table_layouts"  # an attribute of TPUEmbeddingV2
_UNNAMED = re.compile(r"Variable(_\d+)?$")
_TABLES_AT: Mapping[str, Path] = {"tf2": (EMBEDDING,), "tpu-embedding-layer": (LAYER, LAYER_TABLES)}


@dataclasses.dataclass(frozen=True)
class Value:
    """The values of a variable.

    Attributes:
        path: the attributes from the root to the variable. For an optimizer's slot, the path of
            its variable, then `.OPTIMIZER_SLOT`, the optimizer and the name of the slot.
        full_name: the name of the variable in the program that saved it.
        key: key of the tensor with the values.
    """

    path: Path
    full_name: str
    key: str


def value_key(path: Path) -> str:
    """Returns the key of the values of a variable.

    >>> value_key(("embedding", "words/accumulators"))
    'embedding/words.Saccumulators/.ATTRIBUTES/VARIABLE_VALUE'
    """
    return f"{object_path(path)}/.ATTRIBUTES/{VALUE}"


def object_path(path: Path) -> str:
    """Returns a path in one string, with slashes in names escaped as TensorFlow does."""
    return "/".join(name.replace(".", "..").replace("/", ".S") for name in path)


def parse_object_path(text: str) -> Path:
    """Parses the result of `object_path`."""
    return tuple(re.sub(r"\.([.S])", lambda found: "/" if found[1] == "S" else ".", name)
                 for name in text.split("/"))


def parse_graph(content: bytes) -> list[Value]:
    """Returns the values in a graph.

    Raises:
        ValueError: if the content is not an object graph.
    """
    try:
        graph = TrackableObjectGraph.FromString(content)
    except message.DecodeError as error:
        raise ValueError(
            f"{GRAPH_KEY} of the checkpoint is not an object graph: {error}.") from error
    return [Value(parse_object_path(attribute.checkpoint_key.split("/.ATTRIBUTES/")[0]),
                  attribute.full_name, attribute.checkpoint_key)
            for node in graph.nodes for attribute in node.attributes]


def format_graph(names: Mapping[Path, str]) -> bytes:
    """Returns the serialized graph of variables.

    Args:
        names: path from the root -> full name of the variable there.

    Raises:
        ValueError: if a path is empty, or leads through another variable.
    """
    for path in names:
        inside = next((path[:depth] for depth in range(len(path)) if path[:depth] in names), None)
        if not path or inside is not None:
            raise ValueError(f"`names` has the path {object_path(path)!r}, which is empty or "
                             "inside that of another variable.")
    children: dict[Path, list[Path]] = collections.defaultdict(list)
    numbers: dict[Path, int] = {(): 0}
    for path in names:
        for depth in range(1, len(path) + 1):
            if path[:depth] not in numbers:
                numbers[path[:depth]] = len(numbers)
                children[path[:depth - 1]].append(path[:depth])
    graph = TrackableObjectGraph()
    for path in numbers:
        node = graph.nodes.add(has_checkpoint_values={"value": True}, children=[
            {"node_id": numbers[child], "local_name": child[-1]} for child in children[path]])
        if path in names:
            node.attributes.add(name=VALUE, full_name=names[path], checkpoint_key=value_key(path))
    return bytes(graph.SerializeToString())


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
    if any(_STACKS in value.path for value in values):
        raise ValueError(f"The tables of the checkpoint are stacked ({_STACKS}). Restore it into a "
                         "TPUEmbeddingV2, and save its tables one by one.")
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
            if name in tables:
                raise ValueError(f"Several objects have a table {name!r}: "
                                 f"{list(map(object_path, holders))}. Pass the path of one as "
                                 "`objects`.")
            tables[name] = slots
    keys = {value.key for slots in tables.values() for value in slots.values()}
    rest = [value for value in values if value.key not in keys]
    return SavedObjects(
        tables, tuple(value for value in rest if value.path[-1] not in _BOOKKEEPING),
        tuple(value.key for value in rest if value.path[-1] in _BOOKKEEPING))


def read_objects(path: pathlib.Path, tensors: Tensors, names: Names, objects: tuple[str, ...],
                 optimizers: Mapping[str, str]) -> CheckpointContents:
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
    return CheckpointContents(
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
    if set(SLOT_SUFFIXES.get(optimizer or "SGD", ())) != set(found):
        raise ValueError(f"Table {name!r} has the slots {sorted(found)}, which are not those of "
                         f"{optimizer or 'any optimizer'}. Pass its optimizer as `optimizers`, "
                         "--optimizer on the command line.")
    for slot, tensor in found.items():
        if tensor.shape != rows.shape:
            raise ValueError(f"Slot {slot!r} of table {name!r} has the shape {list(tensor.shape)}, "
                             f"but the table has {list(rows.shape)}.")
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


def tf2_tensors(contents: CheckpointContents, format: str, names: Names) -> ConvertedTensors:
    """Returns a checkpoint with a new object graph.

    Args:
        contents: the contents to write.
        format: "tf2" or "tpu-embedding-layer".
        names: names of tables in TF2, and paths of variables outside of `variables`.

    Raises:
        ValueError: if two variables would have the same path, or one would be inside another.
    """
    own: list[tuple[Path, str, StoredTensor]] = [
        (("save_counter",), "save_counter", ArrayTensor(np.array(1, np.int64)))]
    if format == "tpu-embedding-layer":
        own.append(((LAYER, TRAPS[0]), TRAPS[1], ArrayTensor(np.zeros(1, np.float32))))
    by_name = names.tables(contents.tables)
    _check_no_slots(by_name)
    of_tables = [((*_TABLES_AT[format], name if slot == PARAMETERS else f"{name}/{slot}"),
                  table.key(slot), tensor)
                 for name, table in by_name.items() for slot, tensor in table.tensors()]
    others = [(_path_of(former, names, _TABLES_AT[format]), former, tensor)
              for former, tensor in contents.variables.items()]
    all_values = [*own, *of_tables, *others]
    reserved = {_TABLES_AT[format][:1]: "the tables", (GRAPH_KEY,): "the object graph"}
    for path, former, _ in others:
        if names.path_of_variable(former) is not None:
            _check_free(former, path, {**reserved, **{
                other: repr(name) for other, name, _ in all_values if name != former}})
    rule = "names", "different for different variables"
    graph = format_graph(unique(((path, name) for path, name, _ in all_values), *rule))
    return ConvertedTensors(unique([(GRAPH_KEY, TextTensor(graph)), *(
        (value_key(path), tensor) for path, _, tensor in all_values)], *rule))


def _path_of(former: str, names: Names, tables: Path) -> Path:
    given = names.path_of_variable(former)
    if given is None:
        # The object with the tables restores its counter; a program has no variable for it.
        return (*tables, former) if former == MULTIPLIER_STEP else (VARIABLES, former)
    path = parse_object_path(given)
    if not all(path) or {".", ".."} & set(path):
        raise ValueError(f"`names` gives {former!r} the path {given!r}, which has an empty part or "
                         "a part that is '.' or '..'. A path is like 'model/dense/kernel'.")
    if object_path(path) != given:
        raise ValueError(f"`names` gives {former!r} the path {given!r}. TensorFlow escapes '.' in "
                         "the name of an attribute as '..', and '/' as '.S': write "
                         f"{object_path(path)!r} for the attributes {list(path)}.")
    return path


def _check_free(former: str, path: Path, taken: Mapping[Path, str]) -> None:
    for other, owner in taken.items():
        shared = min(len(path), len(other))
        if path[:shared] == other[:shared]:
            raise ValueError(f"`names` gives {former!r} the path {object_path(path)!r}, which is "
                             f"not free: {object_path(other)!r} holds {owner}. Choose another.")


def _check_no_slots(tables: Mapping[str, Table]) -> None:
    """Raises ValueError if the name of a table is that of a slot of another."""
    for name in tables:
        table, _, slot = name.rpartition("/")
        if table in tables and slot in SLOT_NAMES:
            raise ValueError(f"`names` must not give a table the name {name!r}, which is that of "
                             f"a slot of table {table!r}.")


def fill_template(contents: CheckpointContents, template: Mapping[str, BundleTensor], names: Names,
                  objects: tuple[str, ...]) -> ConvertedTensors:
    """Returns the checkpoint of a template with the values of the source.

    Tables are matched by name. Other variables are matched by their name in the program that saved
    the template, which is their name in TPUEstimator.

    Args:
        contents: the contents to write.
        template: key -> tensor.
        names: names that differ.
        objects: paths of the objects with tables in the template; () finds them.

    Raises:
        ValueError: if a table or a slot is missing on either side.
    """
    by_name = names.tables(contents.tables)
    found = find_objects(parse_graph(template[GRAPH_KEY].text()), template, objects, by_name)
    check_same_names("tables", set(by_name), set(found.tables))
    values: list[tuple[str, StoredTensor]] = []
    for name, table in by_name.items():
        slots = dict(table.tensors())
        keys = {slot or PARAMETERS: value.key for slot, value in found.tables[name].items()}
        check_same_names(f"slots of table {name!r}", set(slots), set(keys))
        values += [(keys[slot], slots[slot]) for slot in slots]
    places = named_variables(found.variables, names)
    names.check_found([object_path(value.path) for value in found.variables],
                      contents.variables.keys(), "template")
    values += [(places[name].key, tensor) for name, tensor in contents.variables.items()
               if name in places]
    kept = places.keys() - contents.variables.keys()
    if GLOBAL_STEP in contents.variables:  # which TPUEstimator passes to schedules of multipliers
        counts = {name for name in kept if places[name].path[-1] == MULTIPLIER_STEP}
        values += [(places[name].key, contents.variables[GLOBAL_STEP]) for name in counts]
        kept -= counts
    tensors = {**template, **unique(values, "names", "different for different variables")}
    return ConvertedTensors(
        tensors, tuple(sorted(contents.variables.keys() - places.keys())), tuple(sorted(kept)))


def check_same_names(what: str, source: set[str], template: set[str]) -> None:
    """Raises ValueError unless source and template have the same tables or slots."""
    if source != template:
        raise ValueError(f"The template must have the {what} of the checkpoint, {sorted(source)}, "
                         f"got {sorted(template)}."
                         + (" If only their names differ, `names` maps names in TPUEstimator to "
                            "those in the template." if what == "tables" else ""))
