# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a Keras 3 model on JAX with the tables of Keras RS, saved by Orbax.

What is saved is `model.get_state_tree()`: a dictionary of groups (`trainable_variables`,
`non_trainable_variables`, `optimizer_variables` and `metrics_variables`), in each of which the
parts of a variable's path are nested dictionaries. Paths are those of the backend TensorFlow.
"""

import pathlib
import re
from collections.abc import Mapping

import numpy as np

from tpu_estimator_embedding.checkpoint.contents import CheckpointContents
from tpu_estimator_embedding.checkpoint.keras_rs_format import (
    fill_model,
    find_steps,
    is_keras_rs,
    model_contents,
)
from tpu_estimator_embedding.checkpoint.names import Names
from tpu_estimator_embedding.checkpoint.orbax_files import (
    OrbaxDirectory,
    find_orbax,
    is_orbax,
    leaf_name,
    read_orbax,
)
from tpu_estimator_embedding.checkpoint.stored_tensor import ArrayTensor, StoredTensor
from tpu_estimator_embedding.checkpoint.tf2_format import (
    ConvertedTensors,
    Value,
    check_same_shapes,
)

FORMAT = "keras-rs-jax"
_METRICS = "metrics_variables"  # of an evaluation under way: neither read nor changed
_GROUPS = ("trainable_variables", "non_trainable_variables", "optimizer_variables", _METRICS)
_STEP = "global_step"
_SPARSECORE = re.compile(r"^var:.*:table(:slot:.*)?$")
WAY_OUT = ("Call model.compile(...) and model.optimizer.build(model.trainable_variables), then "
           "save the model: with orbax.checkpoint.StandardCheckpointer() as checkpointer: "
           "checkpointer.save(path, model.get_state_tree()).")


def read_keras_rs_jax(place: OrbaxDirectory, names: Names) -> CheckpointContents:
    """Returns the contents of the checkpoint, with the names of TPUEstimator.

    Raises:
        ValueError: if the checkpoint has no tables, or those of SparseCores.
    """
    tensors, values, bookkeeping = _read(place)
    contents = model_contents(place.path, FORMAT, tensors, values, names, bookkeeping, WAY_OUT)
    if _STEP not in contents.variables:
        return contents
    step = ArrayTensor(contents.variables[_STEP].read().astype(np.int64))  # int32 on JAX
    return CheckpointContents(
        contents.path, contents.form, contents.tables, {**contents.variables, _STEP: step},
        contents.others, contents.paths)


def find_template(path: pathlib.Path) -> OrbaxDirectory:
    """Returns the place of a template.

    Raises:
        ValueError: if this is no checkpoint of Orbax.
    """
    place = find_orbax(path)
    if place is None:
        raise ValueError(f"`template` must be a checkpoint of Orbax, a directory with _METADATA or "
                         f"default/_METADATA, got {path}. {WAY_OUT}")
    return place


def keras_rs_jax_tensors(contents: CheckpointContents, template: OrbaxDirectory,
                         names: Names) -> ConvertedTensors:
    """Returns the leaves of the template with the values of the source.

    Args:
        contents: the contents to write.
        template: a checkpoint of the model.
        names: names of tables and variables that differ.

    Raises:
        ValueError: if a table is missing on either side, Keras 3 does not have the optimizer of
            the slots, or the step does not fit.
    """
    tensors, values, _ = _read(template)
    if not is_keras_rs(values):
        raise ValueError("`template` has no tables of a compiled Keras model with a "
                         f"DistributedEmbedding. {WAY_OUT}")
    outputs = fill_model(contents, tensors, values, names)
    if _STEP not in contents.variables:
        return outputs
    steps = {value.key: _fitting(contents.variables[_STEP], tensors[value.key])
             for value in find_steps(values)}
    return ConvertedTensors({**outputs.tensors, **steps}, outputs.left_out, outputs.kept)


def _read(place: OrbaxDirectory) -> tuple[dict[str, StoredTensor], list[Value], tuple[str, ...]]:
    """Returns leaf -> tensor, the variables, and the leaves that are no variables of the model."""
    leaves = read_orbax(place)
    for path in leaves:
        _check_path(place, path)
    values = [Value(path, "/".join(path[1:]), leaf_name(path)) for path in leaves
              if path[0] != _METRICS]
    bookkeeping = tuple(leaf_name(path) for path in leaves if path[0] == _METRICS)
    return {leaf_name(path): tensor for path, tensor in leaves.items()}, values, bookkeeping


def _check_path(place: OrbaxDirectory, path: tuple[str, ...]) -> None:
    if path[0] not in _GROUPS:
        raise ValueError(f"{place.path} must be the state of a Keras model, whose groups are "
                         f"{', '.join(_GROUPS)}, got {path[0]!r}. {WAY_OUT}")
    if any(_SPARSECORE.match(part) for part in path):
        raise ValueError(
            f"{place.path} has {'/'.join(path)!r}, tables as SparseCores of a TPU hold them: "
            "stacked, padded, and in an order that depends on their number, which the checkpoint "
            "does not contain. On the TPU, layer.get_embedding_tables() returns them by id, and "
            "layer.set_embedding_tables(tables) takes them, as `checkpoint convert --to npz` "
            "writes them. Or build the model where there is no TPU, or with "
            "TableConfig(placement='default_device').")


def _fitting(step: StoredTensor, place: StoredTensor) -> StoredTensor:
    """Returns the step in the type of its place, int32 in Keras 3 on JAX."""
    value, dtype = int(step.read()), place.numpy_dtype
    if value > np.iinfo(dtype).max:
        raise ValueError(f"The global step must be at most {np.iinfo(dtype).max} in Keras 3 on "
                         f"JAX, got {value}. Pass another as `global_step`.")
    return ArrayTensor(np.array(value, dtype))


def output_directory(output: pathlib.Path, contents: CheckpointContents) -> pathlib.Path:
    """Returns the directory to write; in an existing one of steps, it is called as a step."""
    is_of_steps = output.is_dir() and not is_orbax(output)
    return output / str(contents.global_step or 0) if is_of_steps else output


def check_shapes(tensors: Mapping[str, StoredTensor], place: OrbaxDirectory) -> None:
    """Raises ValueError unless values have the shapes and types of the template."""
    check_same_shapes(tensors, _read(place)[0])
