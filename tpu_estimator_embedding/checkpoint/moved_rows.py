# SPDX-License-Identifier: Apache-2.0
"""Ops that restore a part of a table from another layout, one stored part at a time.

Every op runs on the device of the part, so that each server of a cluster reads its own rows.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from tpu_estimator_embedding.checkpoint.table_layouts import (
    RowMove,
    TableLayout,
    ids_of_part,
    moves,
)
from tpu_estimator_embedding.types import Tensor

_PART = "_table_part"  # attribute of the op, which imported graphs keep
_FEEDS = "moved_rows/"
_KINDS = {"prefix": (tf.string, []), "key": (tf.string, [1]), "spec": (tf.string, [1]), **{
    f"{whose}_{bound}": (tf.int64, [1])
    for whose in ("source", "target") for bound in ("begin", "end", "step")}}


@dataclasses.dataclass(frozen=True)
class TablePart:
    """One part of a table or slot, and its name in checkpoints.

    Attributes:
        key: the table or slot in the checkpoint.
        layout: the layout of the whole table in this program.
        dimension: number of values per row.
        index: which part of the table it is.
        checkpoint_num_hosts: number of hosts that wrote a checkpoint without a record; None if
            unknown.
    """

    key: str
    layout: TableLayout
    dimension: int
    index: int
    checkpoint_num_hosts: int | None

    def to_json(self) -> str:
        """Returns the text that stands for it in graphs, which are saved beside checkpoints.

        >>> part = TablePart("words", TableLayout("mod", 2, 13), 4, 1, None)
        >>> part.to_json()  # doctest: +NORMALIZE_WHITESPACE
        '{"key": "words", "layout": {"partition_strategy": "mod", "num_hosts": 2,
        "vocabulary_size": 13}, "dimension": 4, "checkpoint_num_hosts": null, "part": 1}'
        >>> TablePart.from_json(part.to_json()) == part
        True
        """
        fields = dataclasses.asdict(self)
        fields["part"] = fields.pop("index")
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Returns the part that a text stands for.

        Raises:
            ValueError: if it is not JSON.
        """
        fields = json.loads(text)
        fields["index"] = fields.pop("part")
        return cls(**{**fields, "layout": TableLayout(**fields["layout"])})


class StoredPart(NamedTuple):
    """A part of a table, and where its rows are.

    Attributes:
        handle: the handle of the variable.
        table_part: the part.
        stored: the layout of the table in the checkpoint.
    """

    handle: Tensor
    table_part: TablePart
    stored: TableLayout

    @property
    def ids(self) -> range:
        """The ids whose rows the variable has, in its order."""
        return ids_of_part(self.table_part.index, self.table_part.layout)


class WaitingOp(NamedTuple):
    """An op that restores a part after the layout of the checkpoint is known."""

    op: tf.Operation
    part: TablePart
    feeds: Mapping[str, Tensor]

    def run(self, session: tf.compat.v1.Session, checkpoint: str, stored: TableLayout) -> None:
        """Restores the variable, which must be initialized.

        Args:
            session: a session of the graph.
            checkpoint: path of the checkpoint.
            stored: the layout of the table in the checkpoint.
        """
        for move in moves(self.part.index, self.part.layout, stored):
            values = _values(checkpoint, self.part, move)
            session.run(self.op, {self.feeds[name]: values[name] for name in _KINDS})


def add_waiting_op(variable: tf.Variable, part: TablePart) -> None:
    """Adds the op that restores a variable to its graph; `waiting_ops` finds it.

    All variables of a device share the ops that read rows.
    """
    scope = tf.compat.v1.get_default_graph().get_name_scope()
    scope = f"{scope}/" if scope else ""
    feeds = _feeds(scope)
    op = _assign(variable, feeds, _shared_rows(variable, feeds, scope))
    op._set_attr(_PART, attr_value_pb2.AttrValue(s=part.to_json().encode()))


def waiting_ops(graph: tf.Graph, scope: str) -> Iterator[WaitingOp]:
    """Yields the ops that were added under a name scope, which is "" or ends with a slash."""
    for op in graph.get_operations():
        if op.type == "ResourceStridedSliceAssign" and op.name.startswith(scope):
            try:
                part = TablePart.from_json(op.get_attr(_PART))
            except ValueError:  # an assignment op of the program
                continue
            yield WaitingOp(op, part, {
                name: graph.get_tensor_by_name(f"{scope}{_FEEDS}{name}:0") for name in _KINDS})


def fill(variable: tf.Variable, part: TablePart, checkpoint: str, stored: TableLayout,
         after: tf.Operation) -> tf.Operation:
    """Returns the op that restores a variable from a given checkpoint.

    Args:
        variable: the variable of the part.
        part: the part.
        checkpoint: path of the checkpoint.
        stored: the layout of the table in the checkpoint.
        after: the op that initializes the variable.
    """
    for move in moves(part.index, part.layout, stored):
        with tf.control_dependencies([after]):
            given = {name: tf.constant(value)
                     for name, value in _values(checkpoint, part, move).items()}
            after = _assign(variable, given, _rows(variable, given))
    return after


def _shared_rows(variable: tf.Variable, feeds: Mapping[str, Tensor], scope: str) -> Tensor:
    device = variable.device.replace("/", "_").replace(":", "_")
    name = f"{scope}{_FEEDS}rows{device}_{variable.dtype.base_dtype.name}"
    try:
        return tf.compat.v1.get_default_graph().get_tensor_by_name(f"{name}:0")
    except KeyError:
        with tf.name_scope(""):
            return _rows(variable, feeds, name)


def _rows(variable: tf.Variable, given: Mapping[str, Tensor], name: str | None = None) -> Tensor:
    with tf.device(variable.device):
        [stored] = tf.raw_ops.RestoreV2(
            prefix=given["prefix"], tensor_names=given["key"], shape_and_slices=given["spec"],
            dtypes=[variable.dtype])
        return tf.raw_ops.StridedSlice(
            input=stored, begin=given["source_begin"], end=given["source_end"],
            strides=given["source_step"], name=name)


def _assign(variable: tf.Variable, given: Mapping[str, Tensor], rows: Tensor) -> tf.Operation:
    with tf.device(variable.device):
        return tf.raw_ops.ResourceStridedSliceAssign(
            ref=variable.handle, begin=given["target_begin"], end=given["target_end"],
            strides=given["target_step"], value=rows)


def _feeds(scope: str) -> dict[str, Tensor]:
    """Returns the placeholders of a scope; all its ops share them."""
    graph = tf.compat.v1.get_default_graph()
    try:
        graph.get_operation_by_name(f"{scope}{_FEEDS}prefix")
    except KeyError:
        with tf.name_scope(f"{scope}{_FEEDS}"), tf.device(None):
            for name, (dtype, shape) in _KINDS.items():
                tf.compat.v1.placeholder(dtype, shape, name=name)
    return {name: graph.get_tensor_by_name(f"{scope}{_FEEDS}{name}:0") for name in _KINDS}


def _values(checkpoint: str, part: TablePart,
            move: RowMove) -> dict[str, str | list[str] | np.ndarray]:
    rows, dim = part.layout.vocabulary_size, part.dimension
    bounds = {f"{whose}_{bound}": np.array([value], np.int64)
              for whose, span in (("source", move.source), ("target", move.target))
              for bound, value in (("begin", span.start), ("end", span.stop),
                                   ("step", span.step))}
    return {"prefix": checkpoint, "key": [part.key],
            "spec": [f"{rows} {dim} {move.offset},{move.size}:0,{dim}"], **bounds}
