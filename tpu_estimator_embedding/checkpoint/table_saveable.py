# SPDX-License-Identifier: Apache-2.0
"""What Savers save of the parts of tables and slots.

On servers, workers continue training during a save. A Saver reads one variable after another, and
an update of all tables may run between two reads. `TpuEmbeddingSnapshot` locks all tables and slots
of a server at once and outputs their buffers without copying them, so that they are saved as of the
same step. Updates after that copy the buffers that they change.
"""

from collections.abc import Iterator, Sequence

import tensorflow as tf
from tensorflow.python.training.saving import saveable_object

from tpu_estimator_embedding.checkpoint.moved_rows import TablePart, add_waiting_op
from tpu_estimator_embedding.engine.placement import is_here
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.types import Tensor

_UPDATES = ("TpuEmbeddingUpdate", "TpuEmbeddingMeasuredUpdate")


class TableSaveable(saveable_object.SaveableObject):
    """A part of a table or slot, saved as TensorFlow does."""

    def __init__(self, saveable: saveable_object.SaveableObject, part: TablePart):
        """Wraps a saveable of TensorFlow."""
        self._is_on_cpu = tf.DeviceSpec.from_string(saveable.op.device or "").device_type == "CPU"
        specs = [_read_in_place(saveable)] if self._is_on_cpu else saveable.specs
        super().__init__(saveable.op, specs, saveable.name)
        self.part = part
        self._saveable = saveable

    @property
    def handle(self) -> Tensor:
        """The handle of the variable."""
        return self._saveable.handle_op

    def restore(self, restored_tensors: Sequence[Tensor],
                restored_shapes: Sequence[Tensor] | None) -> tf.Operation:
        """Returns the op that assigns the slice; also adds the op for another layout."""
        add_waiting_op(self.op, self.part)
        if not self._is_on_cpu or restored_shapes is not None:
            return self._saveable.restore(restored_tensors, restored_shapes)
        with tf.device(self.op.device):
            return tf.raw_ops.AssignVariableOp(resource=self.handle, value=restored_tensors[0])


def _read_in_place(saveable: saveable_object.SaveableObject) -> saveable_object.SaveSpec:
    """Returns what to save: the read op of the variable, without TensorFlow's copies to a CPU."""
    [spec] = saveable.specs
    value = saveable.op.graph.as_graph_element(saveable.op)
    return saveable_object.SaveSpec(value, spec.slice_spec, spec.name, dtype=spec.dtype,
                                    device=spec.device)


def of_one_step(tables: Sequence[TableSaveable]) -> Iterator[saveable_object.SaveableObject]:
    """Yields saveables that save the tables of each server as of the same step.

    Tables of this process are yielded unchanged, because no step runs while they are saved. So are
    tables that this graph does not update: its process sends gradients to a chief, and saves
    nothing.

    Args:
        tables: saveables of parts of tables and slots, each with a `handle`.
    """
    by_server: dict[str, list[TableSaveable]] = {}
    for table in tables:
        device = table.handle.device
        by_server.setdefault("" if is_here(device) else device, []).append(table)
    for server, its_tables in by_server.items():
        if server and _have_compiled_updates(its_tables):
            yield from _snapshots(server, its_tables)
        else:
            yield from its_tables


def _have_compiled_updates(tables: Sequence[TableSaveable]) -> bool:
    return load.native_ops() is not None and all(
        any(op.type in _UPDATES for op in table.handle.consumers()) for table in tables)


def _snapshots(server: str,
               tables: Sequence[TableSaveable]) -> Iterator[saveable_object.SaveableObject]:
    with tf.device(server):
        values = load.native_ops().tpu_embedding_snapshot([table.handle for table in tables])
    for table, value in zip(tables, values, strict=True):
        [spec] = table.specs
        copy = saveable_object.SaveSpec(value, spec.slice_spec, spec.name, dtype=spec.dtype,
                                        device=spec.device)
        yield saveable_object.SaveableObject(table.op, [copy], table.name)
