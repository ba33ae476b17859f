# SPDX-License-Identifier: Apache-2.0
"""Finds where a model joins the activations of all tables.

`input_layer`, `DenseFeatures` and programs' own models concatenate activations along axis 1, or
stack them to `[batch, tables, dim]`, often beside other tensors. Then the lookup can write one
tensor of all activations, which is concatenated as one, without a copy of each of its pieces.
`joined_gradients` does the same for gradients. Nothing is lost where a model does otherwise.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import tensorflow as tf

from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.engine.step import JoinableStepIds
from tpu_estimator_embedding.estimator.input.step_input import StepInput
from tpu_estimator_embedding.estimator.step.joined_gradients import axis_of
from tpu_estimator_embedding.estimator.step.step_lookup import (
    Concatenation,
    LookedUp,
    LookupInStep,
    set_activations,
)
from tpu_estimator_embedding.ops.graph_rewrites import replace_uses
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

_AXES = (1, -1)
_STACK_AXES = (1, -2)


class _Use(NamedTuple):
    """An op that joins the activations of all tables.

    Attributes:
        op: the concatenation or stack.
        tables: names of the tables, in the order of its inputs.
        before, after: its other inputs.
    """

    op: tf.Operation
    tables: tuple[str, ...]
    before: Sequence[Tensor]
    after: Sequence[Tensor]

    @property
    def is_whole(self) -> bool:
        """Whether its result is the activations of all tables, as they are looked up."""
        return self.op.type == "ConcatV2" and not self.before and not self.after


class JoinedLookup:
    """Looks up the activations of all tables as one tensor, if the model joins them.

    Attributes:
        step_input, first: see `StepLookup`.
    """

    def __init__(self, plan: EmbeddingPlan, step_input: StepInput):
        """Takes the tables and the input of a step of one replica, with `JoinableStepIds`."""
        self._apart = LookupInStep(plan, step_input)
        self.step_input, self.first = step_input, self._apart.first

    def lookup(self, engine: PartitionedEmbedding) -> LookedUp:
        """Looks up all tables, as one tensor if the model joins them."""
        uses = _find_uses(engine.plan, self.first)
        if not uses:
            return self._apart.lookup(engine)
        tables = uses[0].tables
        with tf.device(THIS_PROCESS):
            tensor = engine.lookup_joined(cast(JoinableStepIds, self.step_input.ids), tables)
        for use in uses:
            replace_uses(use.op.outputs[0], _result(use, tensor))
        with tf.device(THIS_PROCESS):
            stacked = columns(engine.plan, tensor, tables)
        set_activations(self.first, stacked)
        return LookedUp([self.first], [tensor], Concatenation(tensor, tables))


def may_join(plan: EmbeddingPlan) -> bool:
    """Whether all tables have a row of activations for every sample, and there are several."""
    return len(plan.tables) > 1 and all(
        len(features) == 1 and not features[0].max_sequence_length and
        features[0].samples_per_unit == plan.features[0].samples_per_unit
        for features in (plan.features_of(table.name) for table in plan.tables))


def _find_uses(plan: EmbeddingPlan, activations: Mapping[str, Tensor]) -> list[_Use]:
    """Returns the ops that join all tables, in the order of tables of the first.

    Args:
        plan: the tables.
        activations: table name -> its activations `[batch, dim]`.
    """
    names = {tensor.name: name for name, tensor in activations.items()}
    ops = {op.name: op for op in _reached(next(iter(activations.values())))}
    uses = [use for op in ops.values() if (use := _use(plan, op, names)) is not None]
    uses.sort(key=lambda use: not use.is_whole)
    return [use for use in uses if use.tables == uses[0].tables]


def _use(plan: EmbeddingPlan, op: tf.Operation, names: Mapping[str, str]) -> _Use | None:
    """Returns what the op joins; None unless it joins all tables, one beside the other."""
    inputs = _joined_inputs(op)
    found = [names.get(_origin(tensor, names).name) for tensor in inputs]
    start = next((number for number, name in enumerate(found) if name is not None), 0)
    end = start + len(plan.tables)
    tables = [name for name in found[start:end] if name is not None]
    if sorted(tables) != sorted(table.name for table in plan.tables):
        return None
    return _Use(op, tuple(tables), inputs[:start], inputs[end:])


def _joined_inputs(op: tf.Operation) -> Sequence[Tensor]:
    """Returns the matrices that an op joins along axis 1; none if it does something else."""
    if op.type == "ConcatV2" and axis_of(op.inputs[-1]) in _AXES:
        return op.inputs[:-1]
    if op.type == "Pack" and op.get_attr("axis") in _STACK_AXES:
        return op.inputs
    return ()


def _result(use: _Use, joined: Tensor) -> Tensor:
    """Returns the result of an op, of the activations of all tables as one tensor."""
    if use.is_whole:
        return joined
    with tf.device(use.op.device), tf.control_dependencies(use.op.control_inputs):
        if use.op.type == "ConcatV2":
            return tf.concat([*use.before, joined, *use.after], 1)
        before, after = ([tf.expand_dims(tensor, 1) for tensor in others]
                         for others in (use.before, use.after))
        vectors = tf.reshape(joined, [-1, len(use.tables), use.op.outputs[0].shape[2]])
        return tf.concat([*before, vectors, *after], 1)


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
