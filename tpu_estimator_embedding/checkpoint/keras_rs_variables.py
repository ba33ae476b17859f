# SPDX-License-Identifier: Apache-2.0
"""Finds the tables of Keras RS in a checkpoint of a Keras 3 model on TensorFlow.

`tf.train.Checkpoint(model=model)` keeps the variables of a built and compiled model under
the paths that Keras gave them: `distributed_embedding/words/embeddings` for a table, and
`adagrad/distributed_embedding_words_embeddings_accumulator` for a slot of the optimizer.
"""

import pathlib
import re
from collections.abc import Mapping

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.bundle_tensor import BundleTensor
from tpu_estimator_embedding.checkpoint.contents import PARAMETERS, Contents, Table
from tpu_estimator_embedding.checkpoint.names import Names
from tpu_estimator_embedding.checkpoint.object_graph import GRAPH_KEY, Value
from tpu_estimator_embedding.checkpoint.table_layouts import TableLayout

# Keras' optimizer -> ours, and slot -> what ends the name of Keras' variable.
OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "adagrad": ("Adagrad", {"accumulators": "accumulator"}),
    "adam": ("Adam", {"momenta": "momentum", "velocities": "velocity"}),
    "sgd": ("SGD", {}),
}
ITERATION = "iteration"  # of an optimizer: the global step

_TABLE = re.compile(r"(?:^|/)([^/]+)/embeddings$")


def is_keras_rs(values: list[Value]) -> bool:
    """Whether a graph of objects has tables of Keras RS."""
    return any(_TABLE.search(value.full_name) for value in values)


def find_variables(values: list[Value], names: Names) -> dict[tuple[str, str], Value]:
    """Returns (table as Keras RS calls it, slot) -> its values.

    Slots that the optimizers of this package do not have are left out.
    """
    by_name = {value.full_name: value for value in values}
    found: dict[tuple[str, str], Value] = {}
    for full_name, value in by_name.items():
        table = _TABLE.search(full_name)
        if table is None:
            continue
        found[table[1], PARAMETERS] = value
        flat = full_name.replace("/", "_")
        for keras, (_, slots) in OPTIMIZERS.items():
            found.update({(table[1], slot): by_name[f"{keras}/{flat}_{end}"]
                          for slot, end in slots.items() if f"{keras}/{flat}_{end}" in by_name})
    return found


def find_optimizer(values: list[Value]) -> str | None:
    """Returns Keras' name of the optimizer of a model, None where it has none."""
    found = [value.full_name.split("/")[0] for value in values
             if value.full_name.endswith(f"/{ITERATION}")]
    return found[0] if found else None


def read_keras_rs(path: pathlib.Path, tensors: Mapping[str, BundleTensor], values: list[Value],
                  names: Names) -> Contents:
    """Returns what the checkpoint holds, under the names of TPUEstimator.

    Raises:
        ValueError: if it has no tables.
    """
    found = find_variables(values, names)
    checks.check(bool(found), "checkpoint", "of a compiled model with a DistributedEmbedding",
                 path)
    optimizer, _ = OPTIMIZERS.get(find_optimizer(values) or "", (None, {}))
    tables = {}
    for name in sorted({table for table, _ in found}):
        slots = {slot: tensors[value.key] for (table, slot), value in found.items()
                 if table == name}
        rows, former = slots.pop(PARAMETERS), names.former(name) or name
        tables[former] = Table(former, rows, slots, optimizer if slots else None,
                               TableLayout("div", 1, rows.shape[0]))
    used = {value.key for value in found.values()}
    others = {_name(value): value for value in values
              if value.key in tensors and value.key not in used}
    bookkeeping = tuple(value.key for name, value in others.items() if name == "save_counter")
    return Contents(path, "keras-rs", tables, {
        names.former(name) or name: tensors[value.key] for name, value in others.items()
        if value.key not in bookkeeping}, (GRAPH_KEY, *bookkeeping))


def _name(value: Value) -> str:
    return "global_step" if value.full_name.endswith(f"/{ITERATION}") else value.full_name
