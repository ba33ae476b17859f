# SPDX-License-Identifier: Apache-2.0
"""Reads a checkpoint of any format.

In a checkpoint with the names of TPUEstimator, the record of layouts lists the tables. Without a
record, because a TPU or an older program wrote the checkpoint, tables are recognized by names:
those of feature columns end in `embedding_weights`, those of dictionaries have no scope, and only
the embedding engine writes some of the slots.
"""

import dataclasses
import os
import pathlib
import zipfile
from collections.abc import Collection, Mapping

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.bundle import BundleTensor, read_bundle
from tpu_estimator_embedding.checkpoint.contents import PARAMETERS, CheckpointContents, Table
from tpu_estimator_embedding.checkpoint.files import find_checkpoint, local_path
from tpu_estimator_embedding.checkpoint.formats import FORMATS, NAMES
from tpu_estimator_embedding.checkpoint.keras_rs_format import (
    check_compiled,
    is_keras_rs,
    read_keras_rs,
)
from tpu_estimator_embedding.checkpoint.names import SHARED_SUFFIXES, SLOT_SUFFIXES, Names, slots_of
from tpu_estimator_embedding.checkpoint.npz_format import read_npz
from tpu_estimator_embedding.checkpoint.orbax_files import find_orbax
from tpu_estimator_embedding.checkpoint.orbax_format import read_keras_rs_jax
from tpu_estimator_embedding.checkpoint.sparse_core_layout import (
    SparseCores,
    Stacks,
    parse_stacks,
    sparse_cores,
)
from tpu_estimator_embedding.checkpoint.stored_tensor import StoredTensor, rows_by_id
from tpu_estimator_embedding.checkpoint.table_layouts import (
    TABLE_LAYOUTS_KEY,
    TableLayout,
    parse_table_layouts,
    part_starts,
)
from tpu_estimator_embedding.checkpoint.tf2_format import (
    GRAPH_KEY,
    Value,
    parse_graph,
    read_objects,
)

Tensors = Mapping[str, StoredTensor]

_OWN_SUFFIXES = frozenset(suffix for slots in SLOT_SUFFIXES.values()
                          for suffix in slots.values()) - SHARED_SUFFIXES


@dataclasses.dataclass(frozen=True)
class Reading:
    """Options for reading a checkpoint that does not record them.

    Attributes:
        tables: keys of the tables in a TPUEstimator checkpoint, with all that it records; None
            finds them.
        from_hosts: number of hosts, if a TPU wrote the checkpoint with `mod`; None means `div`.
        objects: paths of the objects with tables in a TF2 checkpoint; () finds them.
        optimizers: table -> optimizer, needed if several optimizers have such slots.
        sparse_cores: number of devices, and of SparseCores of each, that share the tables of a
            model of Keras RS on JAX.
        stacks: shapes of these tables: table -> [rows, dim], or stack -> {table -> [rows, dim]}.
    """

    tables: tuple[str, ...] | None = None
    from_hosts: int | None = None
    objects: tuple[str, ...] = ()
    optimizers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sparse_cores: tuple[int, int] | None = None
    stacks: Stacks | None = None

    def __post_init__(self) -> None:
        if self.from_hosts is not None:
            checks.check_positive_int("from_hosts", self.from_hosts)
        if self.sparse_cores is not None:
            sparse_cores("sparse_cores", self.sparse_cores)
        if self.stacks is not None:
            parse_stacks(self.stacks)


def read_checkpoint(path: str | os.PathLike[str], from_: str | None = None,
                    names: Names | None = None,
                    reading: Reading | None = None) -> CheckpointContents:
    """Returns the contents of a checkpoint; values are read on demand.

    Args:
        path: a checkpoint, a directory whose file `checkpoint` names one, an `.npz` file, or a
            directory of Orbax.
        from_: the format that it must have, one of FORMATS; None accepts any format.
        names: names that differ between TPUEstimator and TF2.
        reading: facts that the checkpoint does not contain.

    Raises:
        FileNotFoundError: if a file is missing.
        TypeError: if an argument has another type.
        ValueError: if it is damaged, in no known format or in another than `from_`, or `reading`
            does not apply to it.
    """
    if from_ is not None:
        checks.check_one_of("from_", NAMES, from_)
    checks.check_type((Reading, type(None)), "reading", "a checkpoint.Reading or None", reading)
    names, reading = names or Names(), reading or Reading()
    found = local_path("checkpoint", path)
    if found.is_file() and zipfile.is_zipfile(found) or found.suffix == ".npz":
        return _check_format(_read_npz(found, reading), from_)
    place = find_orbax(found)
    if place is not None:
        _check_no_hosts(reading)
        return _check_format(read_keras_rs_jax(
            place, names, reading.sparse_cores and SparseCores(*reading.sparse_cores),
            reading.stacks), from_)
    found = find_checkpoint(found)
    tensors = read_bundle(found)
    if GRAPH_KEY not in tensors or from_ == "v1":
        record = tensors.pop(TABLE_LAYOUTS_KEY, None)
        text = None if record is None else record.text()
        return _check_format(_read_names(found, "v1", tensors, text, reading), from_)
    _check_no_hosts(reading)
    if from_ == "keras-rs":
        return read_keras_rs(found, tensors, _values(tensors), names)
    contents = read_objects(found, tensors, names, reading.objects, reading.optimizers)
    if from_ is None and not contents.tables and is_keras_rs(_values(tensors)):
        return read_keras_rs(found, tensors, _values(tensors), names)
    if not contents.tables:
        check_compiled(_values(tensors), str(path))
    return _check_format(contents, from_)


def check_used(reading: Reading | None, *contents: CheckpointContents) -> None:
    """Raises ValueError if an option does not apply to any of the checkpoints."""
    formats = {one.form for one in contents}
    named = [format for format in formats if FORMATS[format].has_estimator_names]
    objects = formats & {"tf2", "tpu-embedding-layer"}
    if reading is None:
        return
    if reading.tables is not None and not named:
        raise ValueError("`tables` applies only to v1 and npz checkpoints, got "
                         f"{list(reading.tables)}. Leave it out.")
    if reading.objects and not objects:
        raise ValueError("`objects` applies only to checkpoints of TF2, got "
                         f"{list(reading.objects)}. Leave it out.")
    if reading.sparse_cores is not None and not any(one.sparse_cores for one in contents):
        raise ValueError("`sparse_cores` of `reading` (--from-sparse-cores) applies only to "
                         "keras-rs-jax checkpoints with tables on SparseCores, got "
                         f"{reading.sparse_cores}. Leave it out.")
    tables = {name for one in contents if one.form in objects for name in one.tables}
    known = tables | {Names().of_table(name) for name in tables}
    unknown = sorted(reading.optimizers.keys() - known)
    if unknown:
        raise ValueError(f"`optimizers` has {unknown}, which are not tables of a TF2 checkpoint "
                         f"(found: {sorted(tables)}). Other checkpoints contain the optimizer of "
                         "each slot.")


def _check_no_hosts(reading: Reading) -> None:
    if reading.from_hosts is not None:
        raise ValueError("`from_hosts` does not apply to a checkpoint of TF2 or Keras, whose rows "
                         f"are in the order of ids, got {reading.from_hosts}. Leave it out.")


def _values(tensors: Mapping[str, BundleTensor]) -> list[Value]:
    return parse_graph(tensors[GRAPH_KEY].text())


def _read_npz(path: pathlib.Path, reading: Reading) -> CheckpointContents:
    if not path.exists():
        raise FileNotFoundError(f"`checkpoint` must be a file, got {path}, which is missing.")
    return _read_names(path, "npz", *read_npz(path), reading)


def _read_names(path: pathlib.Path, format: str, tensors: Mapping[str, StoredTensor],
                record: str | bytes | None, reading: Reading) -> CheckpointContents:
    layouts = {} if record is None else parse_table_layouts(record)
    tables = find_tables(tensors, layouts, reading.tables, reading.from_hosts)
    of_tables = {table.key(slot) for table in tables.values() for slot, _ in table.tensors()}
    return CheckpointContents(path, format, tables, {
        key: tensor for key, tensor in tensors.items() if key not in of_tables})


def _check_format(contents: CheckpointContents, from_: str | None) -> CheckpointContents:
    if from_ not in (None, contents.form):
        raise ValueError(f"`checkpoint` {contents.path} has the format {contents.form!r}, not "
                         f"{from_!r}.")
    return contents


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
    if from_hosts is not None and layouts:
        raise ValueError("`from_hosts` does not apply to a checkpoint that records its layouts, "
                         f"got {from_hosts}. Leave it out.")
    if layouts and chosen is not None:
        # A table that was left out would be an ordinary variable, with its rows as they are stored.
        left_out = sorted(set(_recorded(tensors, layouts)) - set(chosen))
        if left_out:
            raise ValueError(f"`tables` must have all tables that the checkpoint records, got "
                             f"{sorted(chosen)} without {left_out}. Leave `tables` out, or add "
                             "them.")
    if chosen is not None and (from_hosts or 1) > 1:
        left_out = sorted(_guessed(tensors, from_hosts or 1, only_in_parts=True) - set(chosen))
        if left_out:
            raise ValueError(f"`tables` must have all tables that {from_hosts} hosts saved, got "
                             f"{sorted(chosen)} without {left_out}, whose rows would keep the "
                             "order of the hosts. Add them.")
    names = _chosen(tensors, chosen) if chosen is not None else (
        _recorded(tensors, layouts) if layouts else sorted(_guessed(tensors, from_hosts or 1)))
    if from_hosts is not None and not names:
        raise ValueError("No table was found by its name. Pass the keys of the tables as `tables`, "
                         "--tables KEY,... on the command line.")
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
        if layout.vocabulary_size != tensor.shape[0]:
            raise ValueError(f"The layout record gives {key!r} {layout.vocabulary_size} rows, but "
                             f"the tensor has {tensor.shape[0]}.")
        if not layout.is_by_id and not _can_have_parts(tensor, layout):
            raise ValueError(f"`from_hosts` is {layout.num_hosts}, but {key!r} was not saved in "
                             "the parts of that many hosts. Pass the number of hosts that saved "
                             "it.")
        by_id[slot] = rows_by_id(tensor, layout)
        of_table = of_table or layout
    rows = by_id.pop(PARAMETERS)
    assert of_table is not None
    return Table(name, rows, by_id, optimizer, of_table)


def _chosen(tensors: Tensors, chosen: Collection[str]) -> list[str]:
    for name in chosen:
        if name not in tensors or not _is_table_shaped(tensors[name]):
            raise ValueError(f"`tables` has {name!r}, which is not the key of a tensor of rank 2 "
                             "in the checkpoint.")
    return sorted(chosen)


def _recorded(tensors: Tensors, layouts: Mapping[str, TableLayout]) -> list[str]:
    missing = sorted(set(layouts) - set(tensors))
    if missing:
        raise ValueError(f"The checkpoint lacks tables that its layout record lists: {missing}.")
    slots = {key for name in layouts for key in slots_of(name, layouts)[1].values()}
    return sorted(set(layouts) - slots)


def _guessed(tensors: Tensors, from_hosts: int, *, only_in_parts: bool = False) -> set[str]:
    """Returns the keys of tables by their names and parts, or by names of those with parts."""
    shaped = {key for key, tensor in tensors.items() if _is_table_shaped(tensor)}
    in_parts = {key for key in shaped if from_hosts > 1 and tensors[key].row_starts == part_starts(
        TableLayout("mod", from_hosts, tensors[key].shape[0]))[:-1]}
    slots = {key for name in shaped for key in slots_of(name, shaped)[1].values()}
    named = {key for key in shaped - slots if (
        "/" not in key or key.split("/")[-1].startswith("embedding_weights")
        or any(f"{key}/{suffix}" in shaped for suffix in _OWN_SUFFIXES))}
    if only_in_parts:
        return {key for key in named & in_parts if len(tensors[key].row_starts) > 1}
    return named | (in_parts - slots)


def _can_have_parts(tensor: StoredTensor, layout: TableLayout) -> bool:
    """Whether every part starts at a slice; True for a tensor that was saved as a whole."""
    return len(tensor.row_starts) == 1 or set(part_starts(layout)[:-1]) <= set(tensor.row_starts)


def _is_table_shaped(tensor: StoredTensor) -> bool:
    return len(tensor.shape) == 2 and min(tensor.shape) > 0
