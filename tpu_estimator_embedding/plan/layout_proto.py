# SPDX-License-Identifier: Apache-2.0
"""The serialized layouts of stacks in checkpoints.

The bytes are those of TensorFlow's message `SparseCoreTableLayouts`. TensorFlow 2.15 does
not have it, so its fields are declared here.

>>> from tpu_estimator_embedding.plan.table_stacking import StackableTable, stack_tables
>>> stacks = stack_tables([StackableTable("a", 9, 2, 4), StackableTable("b", 7, 3, 4)],
...                       SparseCores(num_chips=2))
>>> from_bytes(to_bytes(stacks)) == stacks
True
"""

import functools
from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tpu_estimator_embedding.plan.table_stacking import SparseCores, StackedTableLayout, TableStack

_PACKAGE = "tpu_estimator_embedding"
_Field = descriptor_pb2.FieldDescriptorProto

# Name, number, type and whether it is repeated.
_FIELDS = (
    ("table_name", 1, _Field.TYPE_STRING, False),
    ("stacked_table_name", 2, _Field.TYPE_STRING, False),
    ("num_sparse_cores", 3, _Field.TYPE_INT32, False),
    ("num_partitions", 4, _Field.TYPE_INT32, False),
    ("total_rows_per_sparse_core_shard", 5, _Field.TYPE_INT64, False),
    ("unsharded_shape", 6, _Field.TYPE_INT64, True),
    ("unsharded_padded_shape", 7, _Field.TYPE_INT64, True),
    ("sparse_core_shard_row_offset", 8, _Field.TYPE_INT64, False),
    ("sparse_core_shard_rotation", 9, _Field.TYPE_INT64, False),
)


def to_bytes(stacks: Iterable[TableStack]) -> bytes:
    """Returns the layouts of all tables, serialized."""
    message = _layouts_class()()
    for stack in stacks:
        for layout in stack.tables:
            message.tables.add(
                table_name=layout.name, stacked_table_name=stack.name,
                num_sparse_cores=layout.cores.count, num_partitions=layout.cores.num_chips,
                total_rows_per_sparse_core_shard=stack.rows_per_shard,
                unsharded_shape=[layout.vocabulary_size, layout.dimension],
                unsharded_padded_shape=[layout.padded_rows, layout.padded_dimension],
                sparse_core_shard_row_offset=layout.row_offset,
                sparse_core_shard_rotation=layout.rotation)
    return bytes(message.SerializeToString())


def from_bytes(serialized: bytes) -> tuple[TableStack, ...]:
    """Parses layouts; stacks are in the order of their first tables.

    Raises:
        google.protobuf.message.DecodeError: if the bytes are not serialized layouts.
    """
    message = _layouts_class()()
    message.ParseFromString(serialized)
    by_stack: dict[str, list[StackedTableLayout]] = {}
    for table in message.tables:
        cores = SparseCores(table.num_partitions, table.num_sparse_cores // table.num_partitions)
        vocabulary_size, dimension = table.unsharded_shape
        by_stack.setdefault(table.stacked_table_name, []).append(StackedTableLayout(
            table.table_name, vocabulary_size, dimension, cores,
            table.sparse_core_shard_row_offset, table.sparse_core_shard_rotation))
    return tuple(TableStack(name, tuple(sorted(layouts, key=lambda layout: layout.row_offset)))
                 for name, layouts in by_stack.items())


@functools.cache  # building a class is slow, and a name can be declared once
def _layouts_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}/sparse_core_layout.proto", package=_PACKAGE, syntax="proto3")
    table = file.message_type.add(name="TableLayout")
    for name, number, kind, repeated in _FIELDS:
        table.field.add(name=name, number=number, type=kind, label=(
            _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL))
    file.message_type.add(name="TableLayouts").field.add(
        name="tables", number=1, type=_Field.TYPE_MESSAGE, label=_Field.LABEL_REPEATED,
        type_name=f".{_PACKAGE}.TableLayout")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{_PACKAGE}.TableLayouts"))
