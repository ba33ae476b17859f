# SPDX-License-Identifier: Apache-2.0
"""Finds where a model concatenates the activations of all tables, and their gradients.

`input_layer`, `DenseFeatures` and programs' own models concatenate activations along axis 1. Then
the lookup can write the result of the concatenation, and the update can read its gradient, without
a copy of all activations each. Nothing is lost where a model does otherwise.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import tensorflow as tf

from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.engine.step import JoinableStepIds, JoinedGradient
from tpu_estimator_embedding.estimator.input.step_input import StepInput
from tpu_estimator_embedding.estimator.step.step_lookup import (
    Concatenation,
    LookedUp,
    LookupInStep,
    set_activations,
)
from tpu_estimator_embedding.ops.graph_rewrites import replace_uses
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Tensor

_AXES = (1, -1)


class JoinedLookup:
    """Looks up directly into the model's concatenation of activations, if there is one.

    Attributes:
        step_input, first: see `StepLookup`.
    """

    def __init__(self, plan: EmbeddingPlan, step_input: StepInput):
        """Takes the tables and the input of a step of one replica, with `JoinableStepIds`."""
        self._apart = LookupInStep(plan, step_input)
        self.step_input, self.first = step_input, self._apart.first

    def lookup(self, engine: PartitionedEmbedding) -> LookedUp:
        """Looks up all tables, as one tensor if the model concatenates them."""
        found = find_concatenation(engine.plan, self.first)
        if found is None:
            return self._apart.lookup(engine)
        with tf.device(THIS_PROCESS):
            tensor = engine.lookup_joined(cast(JoinableStepIds, self.step_input.ids), found.tables)
        replace_uses(found.tensor, tensor)
        with tf.device(THIS_PROCESS):
            stacked = columns(engine.plan, tensor, found.tables)
        set_activations(self.first, stacked)
        return LookedUp([self.first], [tensor], found._replace(tensor=tensor))


def may_join(plan: EmbeddingPlan) -> bool:
    """Whether all tables have a row of activations for every sample, and there are several."""
    return len(plan.tables) > 1 and all(
        len(features) == 1 and not features[0].max_sequence_length and
        features[0].samples_per_unit == plan.features[0].samples_per_unit
        for features in (plan.features_of(table.name) for table in plan.tables))


def find_concatenation(plan: EmbeddingPlan, activations: Mapping[str, Tensor]
                       ) -> Concatenation | None:
    """Returns the concatenation of the activations of all tables; None if there is none.

    Args:
        plan: the tables.
        activations: table name -> its activations `[batch, dim]`.
    """
    names = {tensor.name: name for name, tensor in activations.items()}
    for op in _reached(next(iter(activations.values()))):
        if op.type != "ConcatV2" or _axis(op.inputs[-1]) not in _AXES:
            continue
        found = [str(names.get(_origin(tensor, names).name)) for tensor in op.inputs[:-1]]
        if sorted(found) == sorted(table.name for table in plan.tables):
            return Concatenation(op.outputs[0], tuple(found))
    return None


def columns(plan: EmbeddingPlan, activations: Tensor, tables: Sequence[str]) -> dict[str, Tensor]:
    """Returns table name -> its columns, for consumers other than the concatenation."""
    ones, sliced, column = tf.ones([2], tf.int32), {}, 0
    begin = tf.constant([0, column])
    for name in tables:
        column += plan.table_by_name[name].dimension
        end = tf.constant([0, column])
        sliced[name] = tf.raw_ops.StridedSlice(  # of all rows
            input=activations, begin=begin, end=end, strides=ones, begin_mask=1, end_mask=1)
        begin = end
    return sliced


def find_joined_gradient(plan: EmbeddingPlan, concatenation: Concatenation,
                         gradients: Mapping[str, Tensor]) -> JoinedGradient | None:
    """Returns the gradient of a concatenation if it is all of the gradient of the activations.

    Args:
        plan: the tables.
        concatenation: where the activations are used.
        gradients: table name -> gradient of its activations `[batch, dim]`.
    """
    pieces = [_split_result(gradients[name]) for name in concatenation.tables]
    if not all(_is_piece(piece, number, len(pieces)) for number, piece in enumerate(pieces)):
        return None
    whole = pieces[0].op.inputs[0]
    tables = [plan.table_by_name[name] for name in concatenation.tables]
    width = sum(table.dimension for table in tables)
    if any(piece.op.inputs[0].name != whole.name for piece in pieces) or (
            whole.dtype != tf.float32 or whole.shape.rank != 2 or whole.shape[1] != width):
        return None
    return JoinedGradient(whole, _starts(tables))


def _reached(tensor: Tensor) -> list[tf.Operation]:
    """Returns the ops that use a tensor, or what only passes it on."""
    reached: list[tf.Operation] = []
    tensors = [tensor]
    while tensors:
        tensor = tensors.pop()
        for op in tensor.consumers():
            reached.append(op)
            tensors += [output for output in op.outputs
                        if (source := _source(output)) is not None and source.name == tensor.name]
    return reached


def _origin(tensor: Tensor, names: Mapping[str, str]) -> Tensor:
    """Returns the first of the named tensors that ops pass on, or else the first of all."""
    while tensor.name not in names and (source := _source(tensor)) is not None:
        tensor = source
    return tensor


def _split_result(gradient: Tensor) -> Tensor:
    """Returns the tensor that ops pass on; a gradient has the same elements in any shape."""
    while gradient.op.type in ("Identity", "Reshape"):
        gradient = gradient.op.inputs[0]
    return gradient


def _source(tensor: Tensor) -> Tensor | None:
    """Returns the input of which a tensor is a copy, in the same shape; None if there is none."""
    op = tensor.op
    if op.type in ("Identity", "StopGradient", "EnsureShape"):
        return op.inputs[0]
    if op.type == "IdentityN":
        return op.inputs[tensor.value_index]
    if op.type == "Reshape" and _is_same_matrix(tensor, op.inputs[0]):
        return op.inputs[0]
    return None


def _is_same_matrix(tensor: Tensor, other: Tensor) -> bool:
    return (tensor.shape.rank == other.shape.rank == 2 and tensor.shape[1] is not None
            and tensor.shape[1] == other.shape[1])


def _is_piece(tensor: Tensor, number: int, count: int) -> bool:
    """Whether a tensor is a given piece of what the gradient of a concatenation splits."""
    op = tensor.op
    if op.type == "SplitV":
        return tensor.value_index == number and len(op.outputs) == count and (
            _axis(op.inputs[2]) in _AXES)
    if op.type == "Slice":
        begin = op.inputs[1]
        return begin.op.type == "ConcatOffset" and begin.value_index == number and (
            len(begin.op.outputs) == count)
    return False


def _axis(axis: Tensor) -> object:
    """Returns the value of an axis; the gradient of a concatenation computes it modulo the rank."""
    return tf.get_static_value(axis.op.inputs[0] if axis.op.type == "FloorMod" else axis)


def _starts(tables: Sequence[TablePlan]) -> dict[str, int]:
    starts, start = {}, 0
    for table in tables:
        starts[table.name], start = start, start + table.dimension
    return starts
