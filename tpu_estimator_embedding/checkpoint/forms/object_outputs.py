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
from tpu_estimator_embedding.checkpoint.contents import PARAMETERS, Contents
from tpu_estimator_embedding.checkpoint.forms.object_graph import (
    GRAPH_KEY,
    Path,
    format_graph,
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
from tpu_estimator_embedding.checkpoint.names import Names

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
        ValueError: if two tables would have the same name.
    """
    full_names: dict[Path, str] = {("save_counter",): "save_counter"}
    tensors: dict[Path, StoredTensor] = {("save_counter",): ArrayTensor(np.array(1, np.int64))}
    for former, table in contents.tables.items():
        name = names.of_table(former)
        checks.check((*_TABLES_AT[form], name) not in tensors, "names",
                     "different for different tables", name, "Give the tables names.")
        for slot, tensor in table.tensors():
            path = (*_TABLES_AT[form], name if slot == PARAMETERS else f"{name}/{slot}")
            tensors[path], full_names[path] = tensor, table.key(slot)
    for former, tensor in contents.variables.items():
        given = names.path_of_variable(former)
        path = parse_object_path(given) if given else (VARIABLES, former)
        tensors[path], full_names[path] = tensor, former
    if form == "tpu-embedding-layer":
        trap = (LAYER, TRAPS[0])
        tensors[trap] = ArrayTensor(np.zeros(1, np.float32))
        full_names[trap] = TRAPS[1]
    return Outputs({GRAPH_KEY: TextTensor(format_graph(full_names)),
                    **{value_key(path): tensor for path, tensor in tensors.items()}})


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
    by_name = {names.of_table(former): table for former, table in contents.tables.items()}
    found = find_objects(parse_graph(template[GRAPH_KEY].text()), template, objects, by_name)
    check_same_names("tables", set(by_name), set(found.tables))
    tensors: dict[str, StoredTensor] = dict(template)
    for name, table in by_name.items():
        slots = dict(table.tensors())
        keys = {slot or PARAMETERS: value.key for slot, value in found.tables[name].items()}
        check_same_names(f"slots of table {name!r}", set(slots), set(keys))
        tensors.update((keys[slot], slots[slot]) for slot in slots)
    places = named_variables(found.variables, names)
    tensors.update((places[name].key, tensor) for name, tensor in contents.variables.items()
                   if name in places)
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
