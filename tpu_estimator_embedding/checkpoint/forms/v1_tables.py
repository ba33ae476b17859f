# SPDX-License-Identifier: Apache-2.0
"""Finds the tables among the tensors of a TPUEstimator checkpoint.

The record of layouts lists the tables. Without a record, because a TPU or an older program wrote
the checkpoint, tables are recognized by names: those of feature columns end in `embedding_weights`,
those of dictionaries have no scope, and only the embedding engine writes some of the slots.
"""

from collections.abc import Collection, Mapping

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.bundle.stored_tensor import StoredTensor
from tpu_estimator_embedding.checkpoint.contents import PARAMETERS, Table
from tpu_estimator_embedding.checkpoint.layouts.table_layouts import TableLayout
from tpu_estimator_embedding.checkpoint.slot_names import (
    SHARED_SUFFIXES,
    SLOT_SUFFIXES,
    slots_of,
)
from tpu_estimator_embedding.checkpoint.table_rows import part_starts, rows_by_id

Tensors = Mapping[str, StoredTensor]

_OWN_SUFFIXES = frozenset(suffix for slots in SLOT_SUFFIXES.values()
                          for suffix in slots.values()) - SHARED_SUFFIXES


def find_tables(tensors: Tensors, layouts: Mapping[str, TableLayout],
                chosen: Collection[str] | None, from_hosts: int | None) -> dict[str, Table]:
    """Returns name -> table.

    Args:
        tensors: key -> tensor, for all tensors of a checkpoint.
        layouts: its record of layouts; empty without a record.
        chosen: the keys of the tables; None uses the record or names.
        from_hosts: number of hosts, if the checkpoint has no record and was written with `mod`;
            None means that rows are in the order of ids.

    Raises:
        ValueError: if a table does not exist, or a layout does not match its tensor.
    """
    checks.check(from_hosts is None or not layouts, "from_hosts", "left out where the checkpoint "
                 "records its layout, as this one does", from_hosts)
    names = _chosen(tensors, chosen) if chosen is not None else (
        _recorded(tensors, layouts) if layouts else _guessed(tensors, from_hosts or 1))
    checks.check(from_hosts is None or bool(names), "tables", "given if no table is found by its "
                 "name", None, "Pass the keys of the tables, --tables KEY,... on the command line.")
    return {name: _table(name, tensors, layouts, from_hosts or 1) for name in names}


def _table(name: str, tensors: Tensors, layouts: Mapping[str, TableLayout],
           from_hosts: int) -> Table:
    same_shape = {key for key, tensor in tensors.items() if tensor.shape == tensors[name].shape}
    optimizer, slots = slots_of(name, same_shape)
    by_id, of_table = {}, None
    for slot, key in {PARAMETERS: name, **slots}.items():
        tensor = tensors[key]
        layout = layouts.get(key) or TableLayout(
            "mod" if from_hosts > 1 else "div", from_hosts, tensor.shape[0])
        checks.check(layout.vocabulary_size == tensor.shape[0], f"layout of {key!r}",
                     f"of {tensor.shape[0]} rows, which the tensor has", layout)
        checks.check(layout.is_by_id or _can_have_parts(tensor, layout), "from_hosts",
                     f"the number of hosts that saved {key!r}", layout.num_hosts,
                     "It is saved in other parts.")
        by_id[slot] = rows_by_id(tensor, layout)
        of_table = of_table or layout
    rows = by_id.pop(PARAMETERS)
    assert of_table is not None
    return Table(name, rows, by_id, optimizer, of_table)


def _chosen(tensors: Tensors, chosen: Collection[str]) -> list[str]:
    for name in chosen:
        checks.check(name in tensors and _is_table_shaped(tensors[name]), "tables",
                     "keys of tensors of rank 2 in the checkpoint", name)
    return sorted(chosen)


def _recorded(tensors: Tensors, layouts: Mapping[str, TableLayout]) -> list[str]:
    missing = sorted(set(layouts) - set(tensors))
    checks.check(not missing, "checkpoint", "with all tables of its record of layouts",
                 missing, "They are missing.")
    slots = {key for name in layouts for key in slots_of(name, layouts)[1].values()}
    return sorted(set(layouts) - slots)


def _guessed(tensors: Tensors, from_hosts: int) -> list[str]:
    shaped = {key for key, tensor in tensors.items() if _is_table_shaped(tensor)}
    in_parts = {key for key in shaped if from_hosts > 1 and tensors[key].row_starts == part_starts(
        TableLayout("mod", from_hosts, tensors[key].shape[0]))[:-1]}
    slots = {key for name in shaped for key in slots_of(name, shaped)[1].values()}
    return sorted(key for key in shaped - slots if (
        "/" not in key or key in in_parts or key.split("/")[-1].startswith("embedding_weights")
        or any(f"{key}/{suffix}" in shaped for suffix in _OWN_SUFFIXES)))


def _can_have_parts(tensor: StoredTensor, layout: TableLayout) -> bool:
    """Whether every part starts at a slice; True for a tensor that was saved as a whole."""
    return len(tensor.row_starts) == 1 or set(part_starts(layout)[:-1]) <= set(tensor.row_starts)


def _is_table_shaped(tensor: StoredTensor) -> bool:
    return len(tensor.shape) == 2 and min(tensor.shape) > 0
