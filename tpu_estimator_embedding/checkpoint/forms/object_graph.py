# SPDX-License-Identifier: Apache-2.0
"""The object graph in a checkpoint of `tf.train.Checkpoint`.

Nodes are Python objects, edges are attributes that reference another object. The values of a
variable are an attribute of its node; their key is the path from the root:

>>> graph = format_graph({("embedding", "words/accumulators"): "words/Adagrad"})
>>> [(value.path, value.full_name, value.key) for value in parse_graph(graph)]
[(('embedding', 'words/accumulators'), 'words/Adagrad',
  'embedding/words.Saccumulators/.ATTRIBUTES/VARIABLE_VALUE')]

Source: tensorflow/core/protobuf/trackable_object_graph.proto.
"""

import collections
import dataclasses
import re
from collections.abc import Mapping

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.bundle.wire_format import (
    Fields,
    all_bytes,
    bytes_field,
    parse_fields,
    varint_field,
)

GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE = "VARIABLE_VALUE"

Path = tuple[str, ...]


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
    attributes = [parse_fields(attribute) for node in all_bytes(parse_fields(content), 1)
                  for attribute in all_bytes(parse_fields(node), 2)]
    return [Value(parse_object_path(key.split("/.ATTRIBUTES/")[0]), _text(attribute, 2), key)
            for attribute in attributes for key in [_text(attribute, 3)]]


def format_graph(names: Mapping[Path, str]) -> bytes:
    """Returns the serialized graph of variables.

    Args:
        names: path from the root -> full name of the variable there.

    Raises:
        ValueError: if a path is empty, or leads through another variable.
    """
    for path in names:
        inside = next((path[:depth] for depth in range(len(path)) if path[:depth] in names), None)
        checks.check(bool(path) and inside is None, "names", "paths to variables, of which none is "
                     "inside another", object_path(path))
    children: dict[Path, list[Path]] = collections.defaultdict(list)
    numbers: dict[Path, int] = {(): 0}
    for path in names:
        for depth in range(1, len(path) + 1):
            if path[:depth] not in numbers:
                numbers[path[:depth]] = len(numbers)
                children[path[:depth - 1]].append(path[:depth])
    has_values = bytes_field(5, varint_field(1, 1))
    return b"".join(bytes_field(1, b"".join(
        bytes_field(1, varint_field(1, numbers[child]) + bytes_field(2, child[-1].encode()))
        for child in children[path]) + _format_value(path, names) + has_values)
        for path in numbers)


def _format_value(path: Path, names: Mapping[Path, str]) -> bytes:
    if path not in names:
        return b""
    return bytes_field(2, bytes_field(1, VALUE.encode()) + bytes_field(2, names[path].encode())
                       + bytes_field(3, value_key(path).encode()))


def _text(fields: Fields, number: int) -> str:
    return b"".join(all_bytes(fields, number)[-1:]).decode()
