# SPDX-License-Identifier: Apache-2.0
"""Converts checkpoints to another format, another layout or another vocabulary."""

import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping

import numpy as np

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint import sparse_core_layout
from tpu_estimator_embedding.checkpoint.bundle import read_bundle, write_bundle
from tpu_estimator_embedding.checkpoint.contents import CheckpointContents, ConvertedTensors, Table
from tpu_estimator_embedding.checkpoint.files import (
    check_absent,
    check_output,
    find_checkpoint,
    index_file,
    local_path,
    progress_bar,
    write_state,
)
from tpu_estimator_embedding.checkpoint.formats import FORMATS, NAMES
from tpu_estimator_embedding.checkpoint.keras_rs_format import keras_rs_tensors
from tpu_estimator_embedding.checkpoint.names import Names, slots_of, unique
from tpu_estimator_embedding.checkpoint.npz_format import write_npz
from tpu_estimator_embedding.checkpoint.orbax_files import OrbaxDirectory, write_orbax
from tpu_estimator_embedding.checkpoint.orbax_format import (
    check_shapes,
    find_template,
    keras_rs_jax_tensors,
    output_directory,
)
from tpu_estimator_embedding.checkpoint.reading import Reading, check_used, read_checkpoint
from tpu_estimator_embedding.checkpoint.resizing import Resize, resize_table
from tpu_estimator_embedding.checkpoint.sparse_core_layout import SparseCores
from tpu_estimator_embedding.checkpoint.stored_tensor import ArrayTensor, TextTensor
from tpu_estimator_embedding.checkpoint.table_layouts import (
    TABLE_LAYOUTS_KEY,
    TableLayout,
    format_table_layouts,
)
from tpu_estimator_embedding.checkpoint.tf2_format import (
    GRAPH_KEY,
    fill_template,
    tf2_tensors,
)

StrPath = str | os.PathLike[str]
Partitioning = tuple[int, str]  # number of hosts, partition strategy

# What TensorFlow accepts in a graph, without the parts `.` and `..`.
_VARIABLE_NAME = re.compile(
    r"(?!.*(?:^|/)\.{1,2}(?:/|$))[A-Za-z0-9.][\w.>-]*(?:/[\w.>-]+)*", re.ASCII)
_RESERVED = (TABLE_LAYOUTS_KEY, GRAPH_KEY)


@dataclasses.dataclass(frozen=True)
class Conversion:
    """The result of a conversion.

    Attributes:
        output: path of the written checkpoint.
        contents: the contents that were read and, except `left_out`, written.
        left_out: variables of the source that the template does not have.
        kept: variables of the template that the source does not have.
        is_newest: whether the file `checkpoint` of the directory now names the output.
    """

    output: pathlib.Path
    contents: CheckpointContents
    left_out: tuple[str, ...]
    kept: tuple[str, ...]
    is_newest: bool


def convert(checkpoint: StrPath, output: StrPath, to: str | None = None, *,
            from_: str | None = None, names: Mapping[str, str] | None = None,
            template: StrPath | None = None, reading: Reading | None = None,
            sparse_cores: tuple[int, int] | None = None,
            layout: Partitioning | None = None, resize: Mapping[str, int | Resize] | None = None,
            global_step: int | None = None, without_slots: bool = False,
            progress: bool = False) -> Conversion:
    """Writes a checkpoint in another format, with tables, slots and all other variables.

    Memory holds a few blocks of rows, regardless of table sizes. The output gets its name when it
    is complete.

    Args:
        checkpoint: the source: a checkpoint, a directory with one, or an `.npz` file.
        output: a new path. For an existing directory, a suitable name in it is chosen.
        to: "v1", "tf2", "tpu-embedding-layer", "keras-rs", "keras-rs-jax" or "npz"; None keeps
            the format.
        from_: the format that the checkpoint must have; None accepts any format.
        names: name in TPUEstimator -> name of the table, or path of the variable, in TF2.
        template: a checkpoint of the program that will restore the output.
        reading: facts that the checkpoint does not contain.
        sparse_cores: for "keras-rs-jax" with tables on SparseCores: number of devices, and of
            SparseCores of each, for which the template was built; None without a template keeps
            those of the source.
        layout: for "v1": number of hosts, and "div" or "mod"; None keeps the layout.
        resize: name of a table, in TPUEstimator or in TF2 -> its new number of rows.
        global_step: the step to write; None keeps the step of the source.
        without_slots: whether to omit the slots of all tables.
        progress: whether to show a progress bar.

    Raises:
        FileNotFoundError: if a file is missing.
        FileExistsError: if the output exists.
        OSError: if the output cannot be written.
        TypeError: if an argument has another type.
        ValueError: if an argument is invalid, or the checkpoint is damaged or in another format.
    """
    if to is not None:
        checks.check_one_of("to", NAMES, to)
    checks.check_type((Mapping, type(None)), "resize",
                      "a mapping of tables to numbers of rows, or None", resize)
    table_names = Names(names)
    contents = read_checkpoint(checkpoint, from_, table_names, reading)
    to = to or contents.form
    _check_combination(contents.form, to, template, layout)
    cores = _sparse_cores(sparse_cores, contents, to, template)
    check_used(reading, contents)
    _check_stacks(reading, contents, cores, table_names)
    _check_names(table_names, contents, to, template)
    contents = _changed(contents, _by_former_name(resize or {}, contents, table_names),
                        global_step, without_slots)
    place = _orbax_template(contents, to, template)
    outputs = _converted(contents, to, table_names, template, place, reading or Reading(), cores)
    path = _output_path(local_path("output", output), to, contents)
    check_absent([path if FORMATS[to].is_whole else index_file(path)])
    _write(path, to, contents, outputs, layout, place, progress)
    is_newest = not FORMATS[to].is_whole and write_state(path)
    return Conversion(path, contents, outputs.left_out, outputs.kept, is_newest)


def reshard(checkpoint: StrPath, output: StrPath, num_hosts: int, partition_strategy: str, *,
            reading: Reading | None = None, progress: bool = False) -> Conversion:
    """Writes a TPUEstimator checkpoint for other hosts or the other partition strategy.

    Args:
        checkpoint: the source.
        output: a new path.
        num_hosts: number of hosts that will share every table.
        partition_strategy: "div" or "mod".
        reading: facts that the checkpoint does not contain: `from_hosts` if a TPU wrote it with
            `mod`.
        progress: whether to show a progress bar.

    Raises:
        FileNotFoundError, FileExistsError, OSError, ValueError: see `convert`.
    """
    return convert(checkpoint, output, "v1", from_="v1", reading=reading, progress=progress,
                   layout=(num_hosts, partition_strategy))


def _check_combination(format: str, to: str, template: StrPath | None,
                       layout: Partitioning | None) -> None:
    if template is not None and FORMATS[to].has_estimator_names:
        raise ValueError(f"`template` does not apply where `to` is {to!r}, got {str(template)!r}. "
                         "Leave it out.")
    if template is None and FORMATS[to].template and to != format:
        raise ValueError(f"`template` is required to convert {format!r} to {to!r}: a "
                         "checkpoint of the Keras model. Write one in the Keras program, after the "
                         f"model was built and compiled: {FORMATS[to].template}.")
    if layout is not None:
        if to != "v1":
            raise ValueError(f"`layout` applies only where `to` is 'v1', got {layout} where `to` "
                             f"is {to!r}. Leave it out.")
        checks.check_positive_int("num_hosts", layout[0])
        checks.check_one_of("partition_strategy", ("div", "mod"), layout[1])


def _sparse_cores(given: tuple[int, int] | None, contents: CheckpointContents, to: str,
                  template: StrPath | None) -> SparseCores | None:
    """Returns the SparseCores of the output."""
    if given is None:
        return contents.sparse_cores if to == contents.form and template is None else None
    cores = sparse_core_layout.sparse_cores("sparse_cores", given)
    if to != "keras-rs-jax":
        raise ValueError(f"`sparse_cores` applies only where `to` is 'keras-rs-jax', got {given} "
                         f"where `to` is {to!r}. Leave it out.")
    if template is None and contents.sparse_cores != cores:
        raise ValueError("`sparse_cores` requires `template`, a checkpoint of the model on these "
                         f"SparseCores, got {given} without one. Write one: "
                         f"{FORMATS[to].template}.")
    return cores


def _check_stacks(reading: Reading | None, contents: CheckpointContents,
                  cores: SparseCores | None, names: Names) -> None:
    """Raises ValueError if an entry of `stacks` would have no effect."""
    stacks = reading.stacks if reading else None
    if stacks is None or contents.sparse_cores is not None:
        return
    if cores is None:
        raise ValueError(f"`stacks` applies only to tables on SparseCores, got {dict(stacks)}. "
                         "Leave it out, or also pass `sparse_cores`.")
    tables = names.tables(contents.tables)
    unknown = sorted(sparse_core_layout.parse_stacks(stacks)[0].keys() - tables.keys())
    checks.check(not unknown, "stacks", f"made of the tables {sorted(tables)}", unknown)


def _check_names(names: Names, contents: CheckpointContents, to: str,
                 template: StrPath | None) -> None:
    """Raises ValueError if a name would have no effect, or no variable of v1 can have it."""
    is_named = FORMATS[to].has_estimator_names
    same = (is_named and FORMATS[contents.form].has_estimator_names
            or contents.form == to and template is None)
    if names.given and same:
        raise ValueError(f"`names` has no effect from {contents.form!r} to {to!r}, which have the "
                         f"same names, got {dict(names.given)}. Leave it out.")
    names.check_known(contents.tables, contents.variables)
    if not is_named:
        return
    unused = {name: path for name, path in names.given.items() if contents.paths.get(path) != name}
    if unused:
        raise ValueError(f"`names` must map to tables, or to paths of variables, in {contents.path}"
                         f", got {unused}. The path of a variable is its key in "
                         "tf.train.list_variables(checkpoint) without "
                         "'/.ATTRIBUTES/VARIABLE_VALUE'.")
    for name in names.given:
        if not _VARIABLE_NAME.fullmatch(name) or name in _RESERVED:
            raise ValueError(f"`names` has {name!r}, which is not a valid name for a variable of "
                             "TPUEstimator.")


def _named_tensors(contents: CheckpointContents) -> ConvertedTensors:
    """Returns the tensors of the contents under their names in TPUEstimator."""
    keys = {name: [table.key(slot) for slot, _ in table.tensors()]
            for name, table in contents.tables.items()}
    of_tables = [(key, tensor) for name, table in contents.tables.items()
                 for key, (_, tensor) in zip(keys[name], table.tensors(), strict=True)]
    tensors = unique([*of_tables, *contents.variables.items()], "names",
                     "different for different variables and slots",
                     "`--names` gives a variable another name.")
    for name, table in contents.tables.items():
        _, slots = slots_of(name, {key for key, tensor in tensors.items()
                                   if tensor.shape == table.rows.shape})
        foreign = sorted(set(slots.values()) - set(keys[name]))
        if foreign:
            raise ValueError(f"`names` must not make dense variables look like slots of table "
                             f"{name!r}, got {foreign}. Give them other names.")
    return ConvertedTensors(tensors)


def _by_former_name(resize: Mapping[str, int | Resize], contents: CheckpointContents,
                    names: Names) -> dict[str, int | Resize]:
    """Returns name of a table in TPUEstimator -> its new size; the given names may be of TF2."""
    found = {name: names.find_tables(contents.tables, name) for name in resize}
    unknown = sorted(name for name, tables in found.items() if len(tables) != 1)
    if unknown:
        raise ValueError(f"`resize` has {unknown}, which are not tables of {contents.path}. It has "
                         f"the tables {sorted(contents.tables)}.")
    return unique(((found[name][0], size) for name, size in resize.items()), "resize",
                  "of different tables", "Resize each table once.")


def _changed(contents: CheckpointContents, resize: Mapping[str, int | Resize],
             global_step: int | None, without_slots: bool) -> CheckpointContents:
    slot_values = {name: dict(size.slot_values) for name, size in resize.items()
                   if isinstance(size, Resize) and size.slot_values}
    if without_slots and slot_values:
        raise ValueError(f"`slot_values` has no effect where slots are left out, got "
                         f"{slot_values}. Leave out one of the two.")
    tables = dict(contents.tables)
    if without_slots:
        tables = {name: dataclasses.replace(table, slots={}, optimizer=None)
                  for name, table in tables.items()}
    for name, size in resize.items():
        tables[name] = resize_table(tables[name],
                                    size if isinstance(size, Resize) else Resize(size))
    variables = dict(contents.variables)
    if global_step is not None:
        checks.check(isinstance(global_step, int | np.integer) and 0 <= global_step < 2**63,
                     "global_step", "an int of at least 0 and below 2**63", global_step)
        variables["global_step"] = ArrayTensor(np.array(global_step, np.int64))
    return dataclasses.replace(contents, tables=tables, variables=variables)


def _converted(contents: CheckpointContents, to: str, names: Names, template: StrPath | None,
               place: OrbaxDirectory | None, reading: Reading,
               cores: SparseCores | None) -> ConvertedTensors:
    if FORMATS[to].has_estimator_names:
        if to == "v1" and "global_step" not in contents.variables:
            raise ValueError(f"{contents.path} has no global step, without which TPUEstimator "
                             "restores nothing. Pass the step as `global_step` "
                             "(`--global-step`).")
        return _named_tensors(contents)
    if place is not None:
        outputs = keras_rs_jax_tensors(contents, place, names, cores, reading.stacks)
        if template is not None:
            check_shapes(outputs, place)
        return outputs
    if template is None and contents.form != to:
        return tf2_tensors(contents, to, names)
    # A checkpoint that keeps its format is its own template.
    tensors = read_bundle(contents.path if template is None
                          else find_checkpoint(local_path("template", template)))
    if GRAPH_KEY not in tensors:
        raise ValueError("`template` must be a checkpoint of tf.train.Checkpoint, which has an "
                         f"object graph, got {template}.")
    outputs = keras_rs_tensors(contents, tensors, names) if to == "keras-rs" else fill_template(
        contents, tensors, names, reading.objects)
    if template is not None:
        outputs.check_shapes(tensors)
    return outputs


def _orbax_template(contents: CheckpointContents, to: str,
                    template: StrPath | None) -> OrbaxDirectory | None:
    """Returns the checkpoint of Orbax whose structure the output gets; None for other formats."""
    if to != "keras-rs-jax":
        return None
    return find_template(contents.path if template is None else local_path("template", template))


def _write(path: pathlib.Path, to: str, contents: CheckpointContents, outputs: ConvertedTensors,
           layout: Partitioning | None, place: OrbaxDirectory | None, progress: bool) -> None:
    total = sum(tensor.size for tensor in outputs.tensors.values())
    with progress_bar(f"Writing {path.name}", total, progress) as bar:
        if place is not None:
            write_orbax(path, place, outputs.tensors, bar.update)
            return
        if not FORMATS[to].has_estimator_names:
            write_bundle(path, outputs.tensors, {}, bar.update)
            return
        layouts = {table.key(slot): _layout(table, layout if to == "v1" else (1, "div"))
                   for table in contents.tables.values() for slot, _ in table.tensors()}
        record = format_table_layouts(layouts)
        if to == "npz":
            write_npz(path, outputs.tensors, record, bar.update)
        else:
            tensors = unique([*outputs.tensors.items(),
                              (TABLE_LAYOUTS_KEY, TextTensor(record.encode()))],
                             "names", "different from that of the layout record")
            write_bundle(path, tensors, layouts, bar.update)


def _layout(table: Table, layout: Partitioning | None) -> TableLayout:
    if layout is None:
        return table.layout
    return TableLayout(layout[1], layout[0], table.vocabulary_size)


def _output_path(output: pathlib.Path, to: str, contents: CheckpointContents) -> pathlib.Path:
    if to == "npz":
        checks.check(output.suffix == ".npz", "output", "a name that ends in .npz", str(output))
    elif to == "keras-rs-jax":
        return output_directory(output, contents)
    elif output.is_dir():
        return output / (f"model.ckpt-{contents.global_step}" if to == "v1" else "ckpt-1")
    else:
        check_output(output)
    return output
