# SPDX-License-Identifier: Apache-2.0
"""Tables on SparseCores in the state of a Keras RS model on JAX.

A layer keeps them as `LAYER/var:STACK:table`, with the slots of their optimizer beside them as
`LAYER/var:STACK:table:slot:NAME`, and counts steps as a float32, `LAYER/iteration`.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping

import numpy as np

from tpu_estimator_embedding.checkpoint.contents import PARAMETERS, Table
from tpu_estimator_embedding.checkpoint.names import unique
from tpu_estimator_embedding.checkpoint.orbax_files import OrbaxDirectory, devices_of, leaf_name
from tpu_estimator_embedding.checkpoint.sparse_core_layout import (
    Placement,
    SparseCores,
    Stacks,
    parse_stacks,
    place_tables,
)
from tpu_estimator_embedding.checkpoint.stacked_tensors import (
    StackedTensor,
    StackOnDisk,
    UnstackedTensor,
)
from tpu_estimator_embedding.checkpoint.stored_tensor import ArrayTensor, StoredTensor
from tpu_estimator_embedding.checkpoint.table_layouts import TableLayout
from tpu_estimator_embedding.optimizers.registry import rule_named

_VARIABLE = re.compile(r"var:(.+?):table(?::slot:(\w+))?")
_ITERATION = "iteration"  # a layer's count of steps
# The optimizers of Keras RS on SparseCores: optimizer -> slot -> its name in a checkpoint.
_OPTIMIZERS = {name: rule_named(name).record.keras_slots for name in ("Adagrad", "Adam", "FTRL")}
_CORES = ("DEVICESxCORES is the number of devices of the program, len(jax.devices()), and of "
          "SparseCores per device: 4 on a TPU v5p, 2 on a v6e or 7x. \"Tables on SparseCores\" in "
          "docs/checkpoints_keras_rs.rst has the details.")


@dataclasses.dataclass(frozen=True)
class StackVariables:
    """The variables of one stack.

    Attributes:
        name: its name.
        leaves: PARAMETERS or slot -> leaf.
        optimizer: the optimizer with these slots; None without slots.
    """

    name: str
    leaves: Mapping[str, str]
    optimizer: str | None


@dataclasses.dataclass(frozen=True)
class OnSparseCores:
    """The variables on SparseCores of a model.

    Attributes:
        stacks: name -> stack.
        iterations: leaves with the steps that layers count.
    """

    stacks: Mapping[str, StackVariables]
    iterations: tuple[str, ...]

    @property
    def example(self) -> str:
        """The leaf of one of the tables."""
        return min(stack.leaves[PARAMETERS] for stack in self.stacks.values())

    @property
    def leaves(self) -> set[str]:
        """All leaves of these variables."""
        return {*self.iterations, *(leaf for stack in self.stacks.values()
                                    for leaf in stack.leaves.values())}


def find_stacks(paths: Iterable[tuple[str, ...]]) -> OnSparseCores:
    """Returns the variables on SparseCores, given the paths of all leaves.

    Raises:
        ValueError: if two layers have a stack of the same name, or the slots are unknown.
    """
    paths = list(paths)
    found: dict[tuple[tuple[str, ...], str], dict[str, str]] = {}
    for path in paths:
        variable = _VARIABLE.fullmatch(path[-1])
        if variable is not None:
            leaves = found.setdefault((path[:-1], variable[1]), {})
            leaves[variable[2] or PARAMETERS] = leaf_name(path)
    layers = {layer for layer, _ in found}
    stacks = [(name, _stack(name, leaves)) for (_, name), leaves in found.items()]
    return OnSparseCores(
        unique(stacks, "checkpoint", "one of layers whose tables have different names"),
        tuple(leaf_name(path) for path in paths
              if path[-1] == _ITERATION and path[:-1] in layers))


def _stack(name: str, leaves: Mapping[str, str]) -> StackVariables:
    saved = leaves.keys() - {PARAMETERS}
    if PARAMETERS not in leaves:
        raise ValueError(f"`checkpoint` must be intact, got slots of {name!r} without the table.")
    if not saved:
        return StackVariables(name, leaves, None)
    for optimizer, slots in _OPTIMIZERS.items():
        if saved == set(slots.values()):
            return StackVariables(name, {PARAMETERS: leaves[PARAMETERS], **{
                slot: leaves[end] for slot, end in slots.items()}}, optimizer)
    raise ValueError(f"Stack {name!r} must have the slots of one of {', '.join(_OPTIMIZERS)}, got "
                     f"{sorted(saved)}, which Keras RS does not write.")


def unstacked_tables(place: OrbaxDirectory, found: OnSparseCores,
                     tensors: Mapping[str, StoredTensor], cores: SparseCores | None,
                     stacks: Stacks | None) -> dict[str, Table]:
    """Returns name in Keras RS -> table, whose rows are read by id.

    Args:
        place: the checkpoint.
        found: its variables on SparseCores.
        tensors: leaf -> tensor.
        cores: the SparseCores.
        stacks: the shapes of the tables.

    Raises:
        ValueError: if one of the two is None, or they do not fit the checkpoint.
    """
    if cores is None or stacks is None:
        raise ValueError(
            f"{place.path} has {found.example!r}, tables in the order of SparseCores, which the "
            "checkpoint does not record. Pass --from-sparse-cores DEVICESxCORES and --stacks "
            f"FILE.json with the sizes of the tables, Reading(sparse_cores, stacks). {_CORES}")
    _check_devices(place, found, cores)
    shapes, groups = parse_stacks(stacks)
    placed = place_tables(_shapes(found, tensors), shapes, cores, groups)
    tables = {}
    for stack in found.stacks.values():
        on_disk = {slot: StackOnDisk(tensors[leaf]) for slot, leaf in stack.leaves.items()}
        for name, placement in placed[stack.name].items():
            slots = {slot: UnstackedTensor(rows, placement) for slot, rows in on_disk.items()}
            tables[name] = Table(name, slots.pop(PARAMETERS), slots, stack.optimizer,
                                 TableLayout("div", 1, placement.rows))
    return tables


def stacked_tensors(place: OrbaxDirectory, found: OnSparseCores,
                    template: Mapping[str, StoredTensor], tables: Mapping[str, Table],
                    step: StoredTensor | None, cores: SparseCores | None,
                    stacks: Stacks | None) -> dict[str, StoredTensor]:
    """Returns leaf -> tensor with the values of the tables, for all stacks of a template.

    Args:
        place: the template.
        found: its variables on SparseCores.
        template: leaf -> tensor.
        tables: name in Keras RS -> table.
        step: the global step; None keeps that of the template.
        cores: the SparseCores.
        stacks: tables of stacks whose names leave that open; None if none does.

    Raises:
        ValueError: if the tables, their types or optimizers do not fit the template.
    """
    if cores is None:
        raise ValueError(
            f"`template` {place.path} has {found.example!r}, of a table on SparseCores. Pass "
            f"their number as --sparse-cores DEVICESxCORES, convert(sparse_cores=(4, 2)). {_CORES}")
    _check_devices(place, found, cores)
    given, groups = parse_stacks(stacks or {})
    order = {**dict.fromkeys(name for name in given if name in tables), **dict.fromkeys(tables)}
    placed = place_tables(_shapes(found, template), {
        name: (tables[name].vocabulary_size, tables[name].dimension) for name in order},
        cores, groups)
    tensors: dict[str, StoredTensor] = {}
    for stack in found.stacks.values():
        parts: dict[str, list[tuple[Placement, StoredTensor]]] = {slot: [] for slot in stack.leaves}
        for name, placement in placed[stack.name].items():
            _check_table(name, tables[name], stack, template)
            for slot, tensor in tables[name].tensors():
                parts[slot].append((placement, tensor))
        tensors.update({leaf: StackedTensor(template[leaf], parts[slot])
                        for slot, leaf in stack.leaves.items()})
    if step is not None:  # which Keras RS counts as a float32, exactly up to 2^24
        tensors.update({leaf: ArrayTensor(np.array(int(step.read()), np.float32))
                        for leaf in found.iterations})
    return tensors


def _shapes(found: OnSparseCores,
            tensors: Mapping[str, StoredTensor]) -> dict[str, tuple[int, int]]:
    shapes = {}
    for stack in found.stacks.values():
        rows, dimension = tensors[stack.leaves[PARAMETERS]].shape
        for leaf in stack.leaves.values():
            if tensors[leaf].shape != (rows, dimension):
                raise ValueError(f"`checkpoint` must be intact, got {leaf!r} of the shape "
                                 f"{list(tensors[leaf].shape)} for a stack of {[rows, dimension]}.")
        shapes[stack.name] = (rows, dimension)
    return shapes


def _check_devices(place: OrbaxDirectory, found: OnSparseCores, cores: SparseCores) -> None:
    """Raises ValueError if Orbax recorded another number of devices."""
    recorded = devices_of(place)
    for leaf in sorted(found.leaves & recorded.keys()):
        if recorded[leaf] != cores.devices:
            raise ValueError(f"{place.path} was saved on {recorded[leaf]} devices, but the number "
                             f"given is {cores.devices}. {_CORES}")


def _check_table(name: str, table: Table, stack: StackVariables,
                 template: Mapping[str, StoredTensor]) -> None:
    if table.slots and table.optimizer != stack.optimizer:
        raise ValueError(f"Table {name!r} has the slots of {table.optimizer}, but stack "
                         f"{stack.name!r} of the template has those of {stack.optimizer or 'SGD'}. "
                         "Use the same optimizer in its TableConfig, or convert with "
                         "--without-slots.")
    for slot, tensor in table.tensors():
        expected = template[stack.leaves[slot]].numpy_dtype
        if tensor.numpy_dtype != expected:
            raise ValueError(f"Table {name!r} must have values of the type {expected}, as stack "
                             f"{stack.name!r} has, got {tensor.numpy_dtype}.")
