# SPDX-License-Identifier: Apache-2.0
"""Finds one tensor that has the gradients of the activations of all tables.

The gradient of a concatenation is split, that of a stack is unpacked, and those of several uses are
added. An update reads the tensor that is split, and adds what a model uses twice as one tensor, so
that there are no ops for each table. Values have the same bits.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.step import JoinedGradient
from tpu_estimator_embedding.ops.graph_rewrites import replace_uses
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

_AXES = (1, -1)
_STACK_AXES = (1, -2)


class _Piece(NamedTuple):
    """A piece of a tensor that is split along axis 1.

    Attributes:
        whole: the tensor.
        number: which of the pieces it is.
        widths: the columns of every piece.
    """

    whole: Tensor
    number: int
    widths: Sequence[int]


class _Split(NamedTuple):
    """An op that splits a matrix, which is not needed for the pieces of tables any more.

    Attributes:
        op: the op.
        matrix: what it splits.
        of_tables: the numbers of those pieces.
    """

    op: tf.Operation
    matrix: Tensor
    of_tables: range


class _Columns(NamedTuple):
    """Columns of a matrix.

    Attributes:
        matrix: `[num_rows, columns]`.
        start: the first of them.
        splits: the ops that split it, or what it is the sum of.
    """

    matrix: Tensor
    start: int
    splits: Sequence[_Split] = ()


def find_joined_gradient(plan: EmbeddingPlan, tables: Sequence[str],
                         gradients: Mapping[str, Tensor]) -> JoinedGradient | None:
    """Returns the gradients of the activations of all tables as one; None if they are apart.

    Args:
        plan: the tables.
        tables: their names, in the order in which the model joins them.
        gradients: table name -> gradient of its activations `[batch, dim]`.
    """
    dims = [plan.table_by_name[name].dimension for name in tables]
    found = _joined([gradients[name] for name in tables], dims)
    if found is None:
        return None
    for split in found.splits:
        _take_others(split)
    starts = itertools.accumulate(dims, initial=found.start)
    return JoinedGradient(found.matrix, dict(zip(tables, starts, strict=False)))


def axis_of(axis: Tensor) -> object:
    """Returns the value of an axis; the gradient of a concatenation computes it modulo the rank."""
    return tf.get_static_value(axis.op.inputs[0] if axis.op.type == "FloorMod" else axis)


def _joined(gradients: Sequence[Tensor], dims: Sequence[int]) -> _Columns | None:
    """Returns where the gradients are, one beside the other; None if nowhere."""
    gradients = [_origin(gradient) for gradient in gradients]
    kinds = {(gradient.op.type, len(gradient.op.inputs)) for gradient in gradients}
    if len(kinds) == 1 and gradients[0].op.type == "AddN":
        return _joined_sum([gradient.op for gradient in gradients], dims)
    pieces = [piece for gradient in gradients if (piece := _piece(gradient)) is not None]
    if len(pieces) < len(dims):
        return None
    whole, first, widths = pieces[0]
    numbers = range(first, first + len(dims))
    fit = all(piece.whole.name == whole.name and piece.number == number
              and piece.widths[number] == dim
              for piece, number, dim in zip(pieces, numbers, dims, strict=True))
    if not fit or whole.dtype != tf.float32:
        return None
    matrix = whole if whole.shape.rank == 2 else tf.reshape(whole, [-1, sum(widths)])
    op = gradients[0].op
    splits = [] if op.type == "Slice" else [_Split(op, matrix, numbers)]
    return _Columns(matrix, sum(widths[:first]), splits)


def _joined_sum(sums: Sequence[tf.Operation], dims: Sequence[int]) -> _Columns | None:
    """Returns the sums of gradients as the sum of what has all first ones, all second ones, ..."""
    addends = []
    for number in range(len(sums[0].inputs)):
        found = _joined([op.inputs[number] for op in sums], dims)
        if found is None:
            return None
        addends.append(found)
    total = tf.add_n([found.matrix[:, found.start:found.start + sum(dims)] for found in addends])
    return _Columns(total, 0, [split for found in addends for split in found.splits])


def _origin(gradient: Tensor) -> Tensor:
    """Returns the tensor that ops pass on; a gradient has the same elements in any shape."""
    while gradient.op.type in ("Identity", "Reshape"):
        gradient = gradient.op.inputs[0]
    return gradient


def _piece(gradient: Tensor) -> _Piece | None:
    """Returns what a gradient is a piece of, if it is one and the widths of all are known."""
    op, number = gradient.op, gradient.value_index
    widths: list[int | None] = []
    if (op.type == "SplitV" and axis_of(op.inputs[2]) in _AXES
            or op.type == "Unpack" and op.get_attr("axis") in _STACK_AXES):
        widths = [_width(output.shape) for output in op.outputs]
    elif op.type == "Slice" and op.inputs[1].op.type == "ConcatOffset":
        number, offset = op.inputs[1].value_index, op.inputs[1].op
        if axis_of(offset.inputs[0]) in _AXES:
            widths = [_width(_shape_in(shape)) for shape in offset.inputs[1:]]
    known = [width for width in widths if width is not None]
    return _Piece(op.inputs[0], number, known) if known and len(known) == len(widths) else None


def _width(shape: tf.TensorShape) -> int | None:
    """Returns the columns of a matrix; None if it is none, or they are not known."""
    return shape[1] if shape.rank == 2 else None


def _shape_in(shape: Tensor) -> tf.TensorShape:
    """Returns the shape that a tensor holds."""
    if shape.op.type == "ShapeN":
        return shape.op.inputs[shape.value_index].shape
    return tf.TensorShape(tf.get_static_value(shape))


def _take_others(split: _Split) -> None:
    """Takes the pieces that are not of tables out of the matrix, so that nothing splits it."""
    widths = [output.shape[1] for output in split.op.outputs]
    ends = list(itertools.accumulate(widths))
    with tf.device(split.op.device):
        for number, output in enumerate(split.op.outputs):
            if number not in split.of_tables and output.consumers():
                replace_uses(output, split.matrix[:, ends[number] - widths[number]:ends[number]])
