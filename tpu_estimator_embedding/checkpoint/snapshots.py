# SPDX-License-Identifier: Apache-2.0
"""Saves all tables and slots of a server as of the same step while workers continue training.

A Saver reads one variable after another, and an update of all tables may run between two reads.
`TpuEmbeddingSnapshot` locks all tables and slots of a server at once and outputs their buffers
without copying them. Updates after that copy the buffers that they change.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.training.saving import saveable_object

from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.types import Tensor

_UPDATES = ("TpuEmbeddingUpdate", "TpuEmbeddingMeasuredUpdate")


def of_one_step(tables: Sequence[Any]) -> Iterator[Any]:
    """Yields saveables that save the tables of each server as of the same step.

    Tables of this process are yielded unchanged, because no step runs while they are saved. So are
    tables that this graph does not update: its process sends gradients to a chief, and saves
    nothing.

    Args:
        tables: saveables of parts of tables and slots, each with a `handle`.
    """
    by_server: dict[str, list[Any]] = {}
    for table in tables:
        by_server.setdefault(_server(table.handle), []).append(table)
    for server, its_tables in by_server.items():
        if server and _have_compiled_updates(its_tables):
            yield from _snapshots(server, its_tables)
        else:
            yield from its_tables


def _server(handle: Tensor) -> str:
    device = handle.device or ""
    job = tf.DeviceSpec.from_string(device).job
    return "" if job in (None, "localhost") else device


def _have_compiled_updates(tables: Sequence[Any]) -> bool:
    return load.native_ops() is not None and all(
        any(op.type in _UPDATES for op in table.handle.consumers()) for table in tables)


def _snapshots(server: str, tables: Sequence[Any]) -> Iterator[Any]:
    with tf.device(server):
        values = load.native_ops().tpu_embedding_snapshot([table.handle for table in tables])
    for table, value in zip(tables, values, strict=True):
        [spec] = table.specs
        copy = saveable_object.SaveSpec(value, spec.slice_spec, spec.name, dtype=spec.dtype,
                                        device=spec.device)
        yield saveable_object.SaveableObject(table.op, [copy], table.name)
