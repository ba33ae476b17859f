# SPDX-License-Identifier: Apache-2.0
"""Layouts as bytes, ours and TensorFlow's."""

import pytest

from tpu_estimator_embedding.plan.layout_proto import from_bytes, to_bytes
from tpu_estimator_embedding.plan.table_stacking import SparseCores, StackableTable, stack_tables

pytestmark = pytest.mark.every_tensorflow

TABLES = [StackableTable("b", 100, 6, 16), StackableTable("a", 64, 8, 16),
          StackableTable("wide", 7, 20, 16)]


@pytest.mark.parametrize("cores", [SparseCores(), SparseCores(2, 4), SparseCores(4, 1)])
def test_layouts_are_read_back(cores):
    stacks = stack_tables(TABLES, cores)
    assert from_bytes(to_bytes(stacks)) == stacks


def test_tensorflow_reads_our_layouts_and_we_its():
    messages = pytest.importorskip("tensorflow.core.tpu.kernels.sparse_core_layout_pb2",
                                   reason="TensorFlow 2.15 has no message for layouts")
    stacks = stack_tables(TABLES, SparseCores(2, 4))
    layouts = messages.SparseCoreTableLayouts.FromString(to_bytes(stacks))
    [b] = [table for table in layouts.tables if table.table_name == "b"]
    assert (b.stacked_table_name, b.sparse_core_shard_row_offset,
            b.sparse_core_shard_rotation) == ("a_b", 8, 4)
    assert list(b.unsharded_padded_shape) == [128, 8]
    assert from_bytes(layouts.SerializeToString()) == stacks
