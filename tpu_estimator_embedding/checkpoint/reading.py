# SPDX-License-Identifier: Apache-2.0
"""Reads a checkpoint of any form."""

import dataclasses
import os
import pathlib
import zipfile
from collections.abc import Mapping

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.bundle.bundle_reader import read_bundle
from tpu_estimator_embedding.checkpoint.bundle.bundle_tensor import BundleTensor
from tpu_estimator_embedding.checkpoint.bundle.stored_tensor import StoredTensor
from tpu_estimator_embedding.checkpoint.contents import Contents
from tpu_estimator_embedding.checkpoint.forms.keras_rs_variables import (
    check_compiled,
    is_keras_rs,
    read_keras_rs,
)
from tpu_estimator_embedding.checkpoint.forms.npz_file import read_npz
from tpu_estimator_embedding.checkpoint.forms.object_graph import GRAPH_KEY, Value, parse_graph
from tpu_estimator_embedding.checkpoint.forms.object_tables import read_objects
from tpu_estimator_embedding.checkpoint.forms.v1_tables import find_tables
from tpu_estimator_embedding.checkpoint.layouts.table_layouts import (
    TABLE_LAYOUTS_KEY,
    parse_table_layouts,
)
from tpu_estimator_embedding.checkpoint.names import Names
from tpu_estimator_embedding.checkpoint.paths import find_checkpoint, local_path

FORMS = ("v1", "tf2", "tpu-embedding-layer", "keras-rs", "npz")


@dataclasses.dataclass(frozen=True)
class Reading:
    """Options for reading a checkpoint that does not record them.

    Attributes:
        tables: keys of the tables in a TPUEstimator checkpoint; None finds them.
        from_hosts: number of hosts, if a TPU wrote the checkpoint with `mod`; None means `div`.
        objects: paths of the objects with tables in a TF2 checkpoint; () finds them.
        optimizers: table -> optimizer, needed if several optimizers have such slots.
    """

    tables: tuple[str, ...] | None = None
    from_hosts: int | None = None
    objects: tuple[str, ...] = ()
    optimizers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.from_hosts is not None:
            checks.check_positive_int("from_hosts", self.from_hosts)


def read_checkpoint(path: str | os.PathLike[str], form: str | None = None,
                    names: Names | None = None, reading: Reading | None = None) -> Contents:
    """Returns the contents of a checkpoint; values are read on demand.

    Args:
        path: a checkpoint, a directory whose file `checkpoint` names one, or an `.npz` file.
        form: the form that it must have, one of FORMS; None accepts any form.
        names: names that differ between TPUEstimator and TF2.
        reading: facts that the checkpoint does not contain.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if it is damaged, in another format or of another form, or `reading` does not
            apply to it.
    """
    if form is not None:
        checks.check_one_of("form", FORMS, form)
    names, reading = names or Names(), reading or Reading()
    found = local_path("checkpoint", path)
    if found.is_file() and zipfile.is_zipfile(found) or found.suffix == ".npz":
        return _check_form(_read_npz(found, reading), form)
    found = find_checkpoint(found)
    tensors = read_bundle(found)
    if GRAPH_KEY not in tensors or form == "v1":
        record = tensors.pop(TABLE_LAYOUTS_KEY, None)
        text = None if record is None else record.text()
        return _check_form(_read_names(found, "v1", tensors, text, reading), form)
    checks.check(reading.from_hosts is None, "from_hosts", "left out for a checkpoint of TF2, "
                 "whose rows are in the order of ids", reading.from_hosts)
    if form == "keras-rs":
        return read_keras_rs(found, tensors, _values(tensors), names)
    contents = read_objects(found, tensors, names, reading.objects, reading.optimizers)
    if form is None and not contents.tables and is_keras_rs(_values(tensors)):
        return read_keras_rs(found, tensors, _values(tensors), names)
    if not contents.tables:
        check_compiled(_values(tensors), "checkpoint", path)
    return _check_form(contents, form)


def check_used(reading: Reading | None, *contents: Contents) -> None:
    """Raises ValueError if an option does not apply to any of the checkpoints."""
    forms = {one.form for one in contents}
    named = forms & {"v1", "npz"}
    objects = forms & {"tf2", "tpu-embedding-layer"}
    if reading is None:
        return
    checks.check(reading.tables is None or bool(named), "tables",
                 "left out unless the checkpoint is v1 or npz", reading.tables)
    checks.check(not reading.objects or bool(objects), "objects",
                 "left out unless the checkpoint is of TF2", reading.objects)
    tables = {name for one in contents if one.form in objects for name in one.tables}
    known = tables | {Names().of_table(name) for name in tables}
    checks.check(set(reading.optimizers) <= known, "optimizers",
                 f"of tables in a checkpoint of TF2, {sorted(tables)}", dict(reading.optimizers),
                 "Other checkpoints contain the optimizer of each slot.")


def _values(tensors: Mapping[str, BundleTensor]) -> list[Value]:
    return parse_graph(tensors[GRAPH_KEY].text())


def _read_npz(path: pathlib.Path, reading: Reading) -> Contents:
    if not path.exists():
        raise FileNotFoundError(f"`checkpoint` must be a file, got {path}, which is missing.")
    return _read_names(path, "npz", *read_npz(path), reading)


def _read_names(path: pathlib.Path, form: str, tensors: Mapping[str, StoredTensor],
                record: str | bytes | None, reading: Reading) -> Contents:
    layouts = {} if record is None else parse_table_layouts(record)
    tables = find_tables(tensors, layouts, reading.tables, reading.from_hosts)
    of_tables = {table.key(slot) for table in tables.values() for slot, _ in table.tensors()}
    return Contents(path, form, tables, {
        key: tensor for key, tensor in tensors.items() if key not in of_tables})


def _check_form(contents: Contents, form: str | None) -> Contents:
    checks.check(form in (None, contents.form), "checkpoint", f"of the form {form!r}",
                 contents.form)
    return contents
