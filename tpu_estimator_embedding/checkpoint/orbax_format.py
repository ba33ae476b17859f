# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a Keras 3 model on JAX with the tables of Keras RS, saved by Orbax.

The checkpoint holds `model.get_state_tree()`: a dictionary of groups (`trainable_variables`,
`non_trainable_variables`, `optimizer_variables` and `metrics_variables`), in each of which the
parts of a variable's path are nested dictionaries. Paths are those of the backend TensorFlow.
"""

import dataclasses
import pathlib
from collections.abc import Mapping

import numpy as np

from tpu_estimator_embedding.checkpoint.contents import CheckpointContents, ConvertedTensors
from tpu_estimator_embedding.checkpoint.formats import FORMATS
from tpu_estimator_embedding.checkpoint.keras_rs_format import (
    fill_model,
    find_steps,
    find_tables,
    is_keras_rs,
    model_contents,
)
from tpu_estimator_embedding.checkpoint.names import Names
from tpu_estimator_embedding.checkpoint.orbax_files import (
    OrbaxDirectory,
    check_template,
    find_orbax,
    is_orbax,
    leaf_name,
    read_orbax,
)
from tpu_estimator_embedding.checkpoint.sparse_core_format import (
    OnSparseCores,
    find_stacks,
    stacked_tensors,
    unstacked_tables,
)
from tpu_estimator_embedding.checkpoint.sparse_core_layout import (
    SparseCores,
    Stacks,
    without_stacks,
)
from tpu_estimator_embedding.checkpoint.stored_tensor import ArrayTensor, StoredTensor
from tpu_estimator_embedding.checkpoint.tf2_format import (
    Value,
)

FORMAT = "keras-rs-jax"
_METRICS = "metrics_variables"  # of an evaluation under way: neither read nor changed
_GROUPS = ("trainable_variables", "non_trainable_variables", "optimizer_variables", _METRICS)
_STEP = "global_step"
FIX = ("Call model.compile(...) and model.optimizer.build(model.trainable_variables), then "
       f"save the model: {FORMATS[FORMAT].template}.")


@dataclasses.dataclass(frozen=True)
class _State:
    """The leaves of a checkpoint.

    Attributes:
        tensors: leaf -> tensor.
        values: the variables of the model and its optimizer, without those on SparseCores.
        bookkeeping: the leaves that are no variables.
        on_cores: the variables on SparseCores.
    """

    tensors: Mapping[str, StoredTensor]
    values: list[Value]
    bookkeeping: tuple[str, ...]
    on_cores: OnSparseCores


def read_keras_rs_jax(place: OrbaxDirectory, names: Names, cores: SparseCores | None = None,
                      stacks: Stacks | None = None) -> CheckpointContents:
    """Returns the contents of the checkpoint, with the names of TPUEstimator.

    Args:
        place: the checkpoint.
        names: names of tables and variables that differ.
        cores: the SparseCores that share its tables, if there are such.
        stacks: the shapes of these tables.

    Raises:
        ValueError: if the checkpoint has no tables, or `cores` or `stacks` do not fit them.
    """
    state = _read(place)
    has_stacks = bool(state.on_cores.stacks)
    tables = unstacked_tables(place, state.on_cores, state.tensors, cores,
                              stacks) if has_stacks else {}
    contents = model_contents(place.path, FORMAT, state.tensors, state.values, names,
                              state.bookkeeping, FIX, tables)
    contents = dataclasses.replace(contents, sparse_cores=cores if has_stacks else None)
    if _STEP not in contents.variables:
        return contents
    step = ArrayTensor(contents.variables[_STEP].read().astype(np.int64))  # int32 on JAX
    return dataclasses.replace(contents, variables={**contents.variables, _STEP: step})


def find_template(path: pathlib.Path) -> OrbaxDirectory:
    """Returns the place of a template.

    Raises:
        ValueError: if this is no checkpoint of Orbax, or one that can only be read.
    """
    place = find_orbax(path)
    if place is None:
        raise ValueError(f"`template` must be a checkpoint of Orbax, a directory with _METADATA or "
                         f"default/_METADATA, got {path}. {FIX}")
    check_template(place)
    return place


def keras_rs_jax_tensors(contents: CheckpointContents, template: OrbaxDirectory, names: Names,
                         cores: SparseCores | None = None,
                         stacks: Stacks | None = None) -> ConvertedTensors:
    """Returns the leaves of the template with the values of the source.

    Args:
        contents: the contents to write.
        template: a checkpoint of the model.
        names: names of tables and variables that differ.
        cores: the SparseCores for which the template was built, if there are such.
        stacks: tables of those stacks whose names leave that open.

    Raises:
        ValueError: if a table is missing on either side, Keras 3 does not have the optimizer of
            the slots, or the step or `cores` do not fit.
    """
    state = _read(template)
    if not is_keras_rs(state.values) and not state.on_cores.stacks:
        raise ValueError("`template` has no tables of a compiled Keras model with a "
                         f"DistributedEmbedding. {FIX}")
    step = contents.variables.get(_STEP)
    stacked: dict[str, StoredTensor] = {}
    if state.on_cores.stacks:
        others = {table for table, _ in find_tables(state.values)}
        on_cores = {name: table for name, table in names.tables(contents.tables).items()
                    if name not in others}
        if contents.sparse_cores is not None:  # those of the source, which may have other stacks
            stacks = without_stacks(stacks or {}, state.on_cores.stacks)
        stacked = stacked_tensors(template, state.on_cores, state.tensors, on_cores, step, cores,
                                  stacks)
        contents = dataclasses.replace(contents, tables={
            former: table for former, table in contents.tables.items()
            if names.of_table(former) in others})
    elif cores is not None:
        raise ValueError(f"`sparse_cores` is {cores}, but `template` {template.path} has no tables "
                         "on SparseCores. Leave it out, or save the template on the TPU.")
    outputs = fill_model(contents, state.tensors, state.values, names)
    steps = {value.key: _fitting(step, state.tensors[value.key])
             for value in find_steps(state.values)} if step is not None else {}
    return ConvertedTensors({**outputs.tensors, **stacked, **steps}, outputs.left_out, outputs.kept)


def _read(place: OrbaxDirectory) -> _State:
    leaves = read_orbax(place)
    for path in leaves:
        if path[0] not in _GROUPS:
            raise ValueError(f"{place.path} must be the state of a Keras model, whose groups are "
                             f"{', '.join(_GROUPS)}, got {path[0]!r}. {FIX}")
    on_cores = find_stacks(path for path in leaves if path[0] != _METRICS)
    values = [Value(path, "/".join(path[1:]), leaf_name(path)) for path in leaves
              if path[0] != _METRICS and leaf_name(path) not in on_cores.leaves]
    bookkeeping = tuple(leaf_name(path) for path in leaves
                        if path[0] == _METRICS or leaf_name(path) in on_cores.iterations)
    return _State({leaf_name(path): tensor for path, tensor in leaves.items()}, values,
                  bookkeeping, on_cores)


def _fitting(step: StoredTensor, place: StoredTensor) -> StoredTensor:
    """Returns the step in the type of its place, int32 in Keras 3 on JAX."""
    value, dtype = int(step.read()), place.numpy_dtype
    if value > np.iinfo(dtype).max:
        raise ValueError(f"The global step must be at most {np.iinfo(dtype).max} in Keras 3 on "
                         f"JAX, got {value}. Pass another as `global_step` (`--global-step`).")
    return ArrayTensor(np.array(value, dtype))


def output_directory(output: pathlib.Path, contents: CheckpointContents) -> pathlib.Path:
    """Returns the directory to write; in an existing one of steps, it is called as a step."""
    is_of_steps = output.is_dir() and not is_orbax(output)
    return output / str(contents.global_step or 0) if is_of_steps else output


def check_shapes(outputs: ConvertedTensors, place: OrbaxDirectory) -> None:
    """Raises ValueError unless values have the shapes and types of the template."""
    outputs.check_shapes(_read(place).tensors)
