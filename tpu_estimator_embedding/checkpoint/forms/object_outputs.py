# SPDX-License-Identifier: Apache-2.0
"""The tensors of a TF2 checkpoint, which `tf.train.Checkpoint` restores.

Without a template, the checkpoint has the structure of

    tf.train.Checkpoint(embedding=tpu_embedding, variables={"dense/kernel": kernel, ...})

or with `layer=tpu_embedding_layer` instead of `embedding`. With a template, saved by the program
that will restore it, the checkpoint has the structure of the template and the values of the source.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.bundle.bundle_tensor import BundleTensor
from tpu_estimator_embedding.checkpoint.bundle.stored_tensor import (
    ArrayTensor,
    StoredTensor,
    TextTensor,
)
from tpu_estimator_embedding.checkpoint.contents import PARAMETERS, Contents, Table
from tpu_estimator_embedding.checkpoint.forms.object_graph import (
    GRAPH_KEY,
    Path,
    format_graph,
    object_path,
    parse_graph,
    parse_object_path,
    value_key,
)
from tpu_estimator_embedding.checkpoint.forms.object_tables import (
    EMBEDDING,
    LAYER_TABLES,
    TRAPS,
    VARIABLES,
    find_objects,
    named_variables,
)
from tpu_estimator_embedding.checkpoint.names import Names, unique
from tpu_estimator_embedding.checkpoint.slot_names import SLOT_NAMES

LAYER = "layer"

_TABLES_AT: Mapping[str, Path] = {"tf2": (EMBEDDING,), "tpu-embedding-layer": (LAYER, LAYER_TABLES)}


@dataclasses.dataclass(frozen=True)
class Outputs:
    """The output of a conversion.

    Attributes:
        tensors: key -> tensor.
        left_out: names of variables of the source that the template does not have.
        kept: names of variables of the template that the source does not have.
    """

    tensors: Mapping[str, StoredTensor]
    left_out: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def object_outputs(contents: Contents, form: str, names: Names) -> Outputs:
    """Returns a checkpoint with a new object graph.

    Args:
        contents: the contents to write.
        form: "tf2" or "tpu-embedding-layer".
        names: names of tables in TF2, and paths of variables outside of `variables`.

    Raises:
        ValueError: if two variables would have the same path, or one would be inside another.
    """
    own: list[tuple[Path, str, StoredTensor]] = [
        (("save_counter",), "save_counter", ArrayTensor(np.array(1, np.int64)))]
    if form == "tpu-embedding-layer":
        own.append(((LAYER, TRAPS[0]), TRAPS[1], ArrayTensor(np.zeros(1, np.float32))))
    by_name = names.tables(contents)
    _check_no_slots(by_name)
    of_tables = [((*_TABLES_AT[form], name if slot == PARAMETERS else f"{name}/{slot}"),
                  table.key(slot), tensor)
                 for name, table in by_name.items() for slot, tensor in table.tensors()]
    others = [(_path(former, names), former, tensor)
              for former, tensor in contents.variables.items()]
    all_values = [*own, *of_tables, *others]
    reserved = {_TABLES_AT[form][:1]: "the tables", (GRAPH_KEY,): "the object graph"}
    for path, former, _ in others:
        if names.path_of_variable(former) is not None:
            _check_free(former, path, {**reserved, **{
                other: repr(name) for other, name, _ in all_values if name != former}})
    rule = "names", "different for different variables"
    graph = format_graph(unique(((path, name) for path, name, _ in all_values), *rule))
    return Outputs(unique([(GRAPH_KEY, TextTensor(graph)), *(
        (value_key(path), tensor) for path, _, tensor in all_values)], *rule))


def _path(former: str, names: Names) -> Path:
    given = names.path_of_variable(former)
    if given is None:
        return VARIABLES, former
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


def fill_template(contents: Contents, template: Mapping[str, BundleTensor], names: Names,
                  objects: tuple[str, ...]) -> Outputs:
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
    by_name = names.tables(contents)
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
    tensors = {**template, **unique(values, "names", "different for different variables")}
    return Outputs(tensors, tuple(sorted(contents.variables.keys() - places.keys())),
                   tuple(sorted(places.keys() - contents.variables.keys())))


def check_same_names(what: str, source: set[str], template: set[str]) -> None:
    """Raises ValueError unless source and template have the same tables or slots."""
    checks.check(source == template, "template", f"of the {what} {sorted(source)}, which the "
                 "checkpoint has", sorted(template))


def check_same_shapes(tensors: Mapping[str, StoredTensor],
                      template: Mapping[str, StoredTensor]) -> None:
    """Raises ValueError unless values have the shapes and types of the template."""
    for key, tensor in tensors.items():
        found = template[key]
        checks.check(tensor.shape == found.shape, f"shape of {key!r} in template",
                     f"{list(tensor.shape)}, that of the checkpoint", list(found.shape),
                     "`--resize TABLE=ROWS` changes the rows of a table.")
        checks.check(tensor.dtype == found.dtype, f"dtype of {key!r} in template",
                     f"TensorFlow's {tensor.dtype}, that of the checkpoint", found.dtype)
