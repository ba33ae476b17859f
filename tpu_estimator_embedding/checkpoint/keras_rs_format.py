# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a Keras 3 model with the tables of Keras RS.

A built and compiled model saves its variables under their Keras paths, on every backend:
`distributed_embedding/words/embeddings` for a table, and
`adagrad/distributed_embedding_words_embeddings_accumulator` for a slot of the optimizer. On
TensorFlow they are in a `tf.train.Checkpoint(model=model)`; `orbax_format` has those of JAX.
"""

import collections
import dataclasses
import pathlib
import re
from collections.abc import Mapping

from tpu_estimator_embedding.checkpoint.bundle import BundleTensor
from tpu_estimator_embedding.checkpoint.contents import (
    PARAMETERS,
    CheckpointContents,
    ConvertedTensors,
    Table,
)
from tpu_estimator_embedding.checkpoint.names import Names, unique
from tpu_estimator_embedding.checkpoint.stored_tensor import StoredTensor
from tpu_estimator_embedding.checkpoint.table_layouts import TableLayout
from tpu_estimator_embedding.checkpoint.tf2_format import (
    GRAPH_KEY,
    Value,
    check_same_names,
    object_path,
    parse_graph,
)
from tpu_estimator_embedding.optimizers.registry import rule_named

# Keras' optimizer -> this package's optimizer, and slot -> suffix of the name in Keras.
OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    keras: (name, rule_named(name).record.keras_slots) for keras, name in {
        "adagrad": "Adagrad", "adam": "Adam", "sgd": "SGD",
        # Those of `keras_training.py`, which `migrate --to keras3` writes, with a TPU's arithmetic.
        "table_adam": "Adam", "table_ftrl": "FTRL"}.items()}
# Keras' optimizer -> suffix of a dense variable's slot in a legacy optimizer -> suffix in Keras.
_DENSE_SLOTS = {"adagrad": {"Adagrad": "accumulator"},
                "adam": {"Adam": "momentum", "Adam_1": "velocity"}}
SAVE_COUNTER = "save_counter"  # a variable of tf.train.Checkpoint
_ITERATION = "iteration"  # a variable of an optimizer: the global step
# Attributes of Keras 3 layers in an object graph: of a functional model, and of a layer.
_LAYERS = ("_operations", "_kernel")
_FIX = ("Keras 3 saves the tables of a DistributedEmbedding with the optimizer only: call "
        "model.compile(...) and model.optimizer.build(model.trainable_variables), then save "
        "tf.train.Checkpoint(model=model).")

_TABLE = re.compile(r"(?:^|/)([^/]+)/embeddings$")


def is_keras_rs(values: list[Value]) -> bool:
    """Whether an object graph contains tables of Keras RS."""
    return any(_TABLE.search(value.full_name) for value in values)


def check_compiled(values: list[Value], called: str) -> None:
    """Raises ValueError if this is a Keras 3 model that was saved without an optimizer."""
    if not is_keras_rs(values) and any(
            name in value.path for value in values for name in _LAYERS):
        raise ValueError(f"{called} has no tables of a compiled Keras model. {_FIX}")


@dataclasses.dataclass(frozen=True)
class SavedOptimizer:
    """The optimizer of a Keras model.

    Attributes:
        name: prefix of the names of its variables: `adagrad`, or `adagrad_1` for a second one.
        kind: the name without a number: `adagrad`.
    """

    name: str
    kind: str

    @property
    def rule_name(self) -> str | None:
        """The name of the optimizer in this package; None if there is no such optimizer."""
        return OPTIMIZERS.get(self.kind, (None, {}))[0]

    def slots(self, full_name: str, endings: Mapping[str, str]) -> dict[str, str]:
        """Returns slot -> full name of a variable's slot; `endings` maps slots to suffixes."""
        flat = full_name.replace("/", "_")
        return {slot: f"{self.name}/{flat}_{end}" for slot, end in endings.items()}


def find_optimizers(values: list[Value]) -> list[SavedOptimizer]:
    """Returns the optimizers of a model, one of which can train others by more than one."""
    names = [value.full_name.removesuffix(f"/{_ITERATION}") for value in values
             if value.full_name.endswith(f"/{_ITERATION}")]
    return [SavedOptimizer(name, re.sub(r"_\d+$", "", name)) for name in names]


def optimizer_of(table: str, values: list[Value]) -> SavedOptimizer:
    """Returns the optimizer of a table, given its full name; its name is empty if it has none.

    Of several optimizers it is the one with slots of the table, or else one without slots.
    """
    saved, optimizers = {value.full_name for value in values}, find_optimizers(values)
    if len(optimizers) <= 1:
        return optimizers[0] if optimizers else SavedOptimizer("", "")
    without = SavedOptimizer("", "")
    for optimizer in optimizers:
        rule, endings = OPTIMIZERS.get(optimizer.kind, (None, {}))
        if endings and set(optimizer.slots(table, endings).values()) <= saved:
            return optimizer
        without = optimizer if rule and not endings else without
    return without


def find_steps(values: list[Value]) -> list[Value]:
    """Returns the steps that the optimizers count."""
    names = [f"{optimizer.name}/{_ITERATION}" for optimizer in find_optimizers(values)]
    return [value for value in values if value.full_name in names]


def find_tables(values: list[Value]) -> dict[tuple[str, str], Value]:
    """Returns (name of a table in Keras RS, slot) -> its values.

    Slots that the optimizers of this package do not have are omitted.

    Raises:
        ValueError: if several tables have the same name, as in a subclassed model.
    """
    counts = collections.Counter(value.full_name for value in values
                                 if _TABLE.search(value.full_name))
    for full_name, count in counts.items():
        if count > 1:
            raise ValueError(f"The checkpoint has {count} tables with the name {full_name!r}. "
                             "Keras 3 gives the variables of a subclassed model the same name: "
                             "make it a functional model, keras.Model(inputs, outputs), as in "
                             "migration_guide/jax.rst, and save it again.")
    by_name = {value.full_name: value for value in values}
    found: dict[tuple[str, str], Value] = {}
    for full_name, value in by_name.items():
        table = _TABLE.search(full_name)
        if table is None:
            continue
        optimizer = optimizer_of(full_name, values)
        _, endings = OPTIMIZERS.get(optimizer.kind, (None, {}))
        found[table[1], PARAMETERS] = value
        found.update({(table[1], slot): by_name[name]
                      for slot, name in optimizer.slots(full_name, endings).items()
                      if name in by_name})
    return found


def find_others(values: list[Value], names: Names) -> dict[str, Value]:
    """Returns name in TPUEstimator -> values, for all variables except tables and slots."""
    # All optimizers count the same steps.
    of_tables = {value.key for value in (*find_tables(values).values(), *find_steps(values)[1:])}
    counts = collections.Counter(value.full_name for value in values)
    others = {value.full_name if counts[value.full_name] == 1 else object_path(value.path): value
              for value in values if value.key not in of_tables}
    optimizers = find_optimizers(values)
    formers = {f"{optimizer.name}/{_ITERATION}": "global_step" for optimizer in optimizers}
    for full_name in others:
        former = names.former(full_name) or formers.get(full_name) or full_name
        formers[full_name] = former
        for optimizer in optimizers:
            endings = _DENSE_SLOTS.get(optimizer.kind, {})
            formers.update({slot: f"{former}/{suffix}" for suffix, slot in optimizer.slots(
                full_name, endings).items()})
    return unique(((formers[full_name], value) for full_name, value in others.items()), "names",
                  "different for different variables")


def read_keras_rs(path: pathlib.Path, tensors: Mapping[str, BundleTensor], values: list[Value],
                  names: Names) -> CheckpointContents:
    """Returns the contents of a checkpoint of TensorFlow, with the names of TPUEstimator.

    Raises:
        ValueError: if the checkpoint has no tables.
    """
    return model_contents(path, "keras-rs", tensors, values, names, (GRAPH_KEY,), _FIX)


def model_contents(path: pathlib.Path, form: str, tensors: Mapping[str, StoredTensor],
                   values: list[Value], names: Names, bookkeeping: tuple[str, ...],
                   fix: str, on_cores: Mapping[str, Table] | None = None) -> CheckpointContents:
    """Returns the contents of a checkpoint of any backend, with the names of TPUEstimator.

    Args:
        path: path of the checkpoint.
        form: its format.
        tensors: key -> tensor.
        values: the variables of the model and its optimizer.
        names: names of tables and variables that differ.
        bookkeeping: keys that belong to the format itself.
        fix: how to save a checkpoint that has tables.
        on_cores: name in Keras RS -> table, for those that no value is of.

    Raises:
        ValueError: if the checkpoint has no tables.
    """
    values = [value for value in values if value.key in tensors]
    found, on_cores = find_tables(values), on_cores or {}
    if not found and not on_cores:
        raise ValueError(f"{path} has no tables of a compiled Keras model with a "
                         f"DistributedEmbedding. {fix}")
    tables, paths = [], {}
    for name in sorted({table for table, _ in found}):
        slots = {slot: tensors[value.key] for (table, slot), value in found.items()
                 if table == name}
        rows, former = slots.pop(PARAMETERS), names.former(name) or name
        paths[name] = former
        optimizer = optimizer_of(found[name, PARAMETERS].full_name, values)
        tables.append((former, Table(former, rows, slots, optimizer.rule_name if slots else None,
                                     TableLayout("div", 1, rows.shape[0]))))
    for name, table in on_cores.items():
        paths[name] = names.former(name) or name
        tables.append((paths[name], dataclasses.replace(table, name=paths[name])))
    others = find_others(values, names)
    counter = others.pop(SAVE_COUNTER, None)
    return CheckpointContents(
        path, form, unique(tables, "names", "different for different tables"),
        {name: tensors[value.key] for name, value in others.items()},
        (*bookkeeping, *([counter.key] if counter else [])),
        {**{value.full_name: name for name, value in others.items()}, **paths})


def keras_rs_tensors(contents: CheckpointContents, template: Mapping[str, BundleTensor],
                     names: Names) -> ConvertedTensors:
    """Returns the checkpoint of the template with the values of the source.

    Args:
        contents: the contents to write.
        template: key -> tensor of `tf.train.Checkpoint(model=model)`.
        names: names of tables and variables that differ.

    Raises:
        ValueError: if a table is missing on either side, or Keras 3 does not have the optimizer
            of the slots.
    """
    if GRAPH_KEY not in template:
        raise ValueError("`template` was written by a tf.compat.v1.train.Saver. Write it in the "
                         "Keras program: tf.train.Checkpoint(model=model).save('template').")
    values = [value for value in parse_graph(template[GRAPH_KEY].text())
              if value.key in template]
    check_compiled(values, "`template`")
    return fill_model(contents, template, values, names)


def fill_model(contents: CheckpointContents, template: Mapping[str, StoredTensor],
               values: list[Value], names: Names) -> ConvertedTensors:
    """Returns the tensors of a model, of any backend, with the values of the source.

    Args:
        contents: the contents to write.
        template: key -> tensor of the model's checkpoint.
        values: the variables of the model and its optimizer.
        names: names of tables and variables that differ.

    Raises:
        ValueError: see `keras_rs_tensors`.
    """
    places = find_tables(values)
    by_name = names.tables(contents.tables)
    check_same_names("tables", set(by_name), {table for table, _ in places})
    tensors: list[tuple[str, StoredTensor]] = []
    for name, table in by_name.items():
        _check_optimizer(name, table.optimizer, optimizer_of(places[name, PARAMETERS].full_name,
                                                             values))
        tensors += [(places[name, slot].key, tensor) for slot, tensor in table.tensors()]
    others = find_others(values, names)
    names.check_found([value.full_name for value in others.values()],
                      contents.variables.keys(), "template")
    tensors += [(others[name].key, tensor) for name, tensor in contents.variables.items()
                if name in others]
    if "global_step" in contents.variables:
        tensors += [(value.key, contents.variables["global_step"])
                    for value in find_steps(values)[1:]]
    return ConvertedTensors(
        {**template, **unique(tensors, "names", "different for different variables")},
        tuple(sorted(contents.variables.keys() - others.keys())),
        tuple(sorted(others.keys() - contents.variables.keys() - {SAVE_COUNTER})))


def _check_optimizer(table: str, source: str | None, keras: SavedOptimizer) -> None:
    if keras.kind == "ftrl" or source == "FTRL" and keras.rule_name != source:
        raise ValueError(f"Table {table!r} cannot be trained with FTRL in Keras RS: Keras 3's Ftrl "
                         "recomputes every row from its slots, even rows that were never looked "
                         "up. `migrate --to keras3` writes a TableFtrl that does not; or convert "
                         "without the slots (`--without-slots`) to an optimizer such as Adagrad.")
    if source not in (None, keras.rule_name):
        raise ValueError(f"Table {table!r} has the slots of {source}, but the model of the "
                         f"template was compiled with {keras.kind or 'no optimizer'}. Compile the "
                         "model with the same optimizer, or convert with --without-slots.")
