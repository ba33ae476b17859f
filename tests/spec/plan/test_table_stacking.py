# SPDX-License-Identifier: Apache-2.0
"""The layout of tables on SparseCores: examples, properties, and TensorFlow's own stacker."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tpu_estimator_embedding.plan.stacked_rows import join_shards, pieces
from tpu_estimator_embedding.plan.table_stacking import (
    SparseCores,
    StackableTable,
    StackLimits,
    stack_tables,
)

EIGHT = SparseCores(num_chips=2, num_sc_per_chip=4)


def table(name, rows, dimension=8, samples=16, group=None):
    return StackableTable(name, rows, dimension, samples, group)


def names(stacks):
    return [stack.name for stack in stacks]


def stack_rows(stack, tables):
    """Returns the rows of a stack, written piece by piece."""
    rows = np.full(stack.shape, np.nan, np.float32)
    by_chip = np.split(rows, stack.cores.num_chips)
    for layout in stack.tables:
        for chip, begin, piece in pieces(stack, layout.name, tables[layout.name].__getitem__):
            by_chip[chip][begin:begin + len(piece)] = piece
    return tf.constant(rows)


def unstack_rows(stack, rows):
    """Returns the tables of a stack by name."""
    shards = tf.split(rows, stack.cores.count)
    return {layout.name: join_shards(layout, [
        shard[layout.row_offset:layout.row_offset + layout.padded_rows // stack.cores.count]
        for shard in shards]) for layout in stack.tables}


@st.composite
def stacks_with_values(draw):
    cores = SparseCores(draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 4])))
    tables = [table(f"t{k}", draw(st.integers(1, 200)), draw(st.integers(1, 17)))
              for k in range(draw(st.integers(1, 5)))]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    values = {t.name: rng.normal(size=[t.vocabulary_size, t.dimension]).astype(np.float32)
              for t in tables}
    return stack_tables(tables, cores), values


@given(stacks_with_values())
@settings(max_examples=40, deadline=None)
def test_stacked_tables_come_apart_as_they_were(stacks_and_values):
    stacks, values = stacks_and_values
    apart = {}
    for stack in stacks:
        apart.update(unstack_rows(stack, stack_rows(stack, values)))
    assert apart.keys() == values.keys()
    for name, rows in values.items():
        np.testing.assert_array_equal(apart[name], rows)


@given(stacks_with_values())
@settings(max_examples=40, deadline=None)
def test_every_id_is_where_its_row_says_and_nowhere_else(stacks_and_values):
    stacks, values = stacks_and_values
    for stack in stacks:
        rows = stack_rows(stack, values).numpy()
        places = []
        for layout in stack.tables:
            ids = np.arange(layout.vocabulary_size)
            places.append(stack.row(layout.name, ids))
            np.testing.assert_array_equal(rows[places[-1], :layout.dimension],
                                          values[layout.name])
        taken = np.concatenate(places)
        assert len(set(taken.tolist())) == len(taken)
        assert taken.max() < stack.shape[0]
        np.testing.assert_array_equal(np.delete(rows, taken, axis=0), 0.0)


def test_worked_example_on_two_chips():
    [stack] = stack_tables([table("a", 100, 6), table("b", 64, 6), table("c", 65, 6)], EIGHT)
    assert (stack.name, stack.shape, stack.rows_per_shard) == ("a_b_c", (320, 8), 40)
    assert [(t.padded_rows, t.row_offset, t.rotation) for t in stack.tables] == [
        (128, 0, 0), (64, 16, 4), (128, 24, 0)]
    assert stack.table("b").place(5) == (1, 16)
    assert stack.row("b", 5) == 56


def test_one_chip_rotates_nothing():
    [stack] = stack_tables([table("a", 9), table("b", 9), table("c", 9)], SparseCores())
    assert {layout.rotation for layout in stack.tables} == {0}


def test_tables_of_other_width_or_group_stand_apart():
    stacks = stack_tables([table("a", 9, 8), table("b", 9, 9), table("c", 9, 8, group="other"),
                           table("d", 9, 7)], SparseCores())
    assert names(stacks) == ["a_d", "b", "c"]


def test_a_table_goes_to_the_first_stack_with_room():
    stacks = stack_tables([table("a", 100), table("b", 10000), table("c", 100)], SparseCores(),
                          limits=StackLimits(shard_bytes=50000))
    assert names(stacks) == ["a_c", "b"]


@pytest.mark.parametrize("limits, expected", [
    (StackLimits(activation_bytes=256), ["a", "b"]),
    (StackLimits(activation_bytes=257), ["a_b"]),
    (StackLimits(shard_bytes=8192), ["a", "b"]),
    (StackLimits(shard_bytes=8193), ["a_b"]),
    (StackLimits(rows=255), ["a", "b"]),
    (StackLimits(rows=256), ["a_b"])])
def test_limits_of_a_stack(limits, expected):
    stacks = stack_tables([table("a", 100), table("b", 100)], SparseCores(), limits=limits)
    assert names(stacks) == expected


def test_without_stacking_every_table_is_a_stack():
    assert names(stack_tables([table("b", 9), table("a", 9)], EIGHT, stacking=False)) == ["a", "b"]


@pytest.mark.parametrize("chips, per_chip, sentence", [
    (3, 4, r"`num_chips \* num_sc_per_chip` must be a power of two, got 12"),
    (0, 4, "`num_chips` must be an int of at least 1, got 0"),
    (1, 2.0, "`num_sc_per_chip` must be an int of at least 1, got 2.0")])
def test_impossible_topologies_are_refused(chips, per_chip, sentence):
    with pytest.raises(ValueError, match=sentence):
        SparseCores(chips, per_chip)


def tensorflows_layouts(tables, cores, limits):
    module = pytest.importorskip("tensorflow.python.tpu._pywrap_sparse_core_layout",
                                 reason="TensorFlow 2.15 has no stacker")
    stacker = module.SparseCoreLayoutStacker(
        num_partitions=cores.num_chips, disable_table_stacking=False,
        sparse_cores_per_partition=cores.num_sc_per_chip)
    stacker.SetActivationMemoryBytesLimit(limits.activation_bytes)
    stacker.SetVariableShardBytesLimit(limits.shard_bytes)
    for t in sorted(tables, key=lambda t: t.name):
        stacker.AddTable(table_name=t.name, table_height=t.vocabulary_size,
                         table_width=t.dimension, group=str(t.group), output_samples=t.samples,
                         num_features=1)
    return {t.table_name: (t.stacked_table_name, t.sparse_core_shard_row_offset,
                           t.sparse_core_shard_rotation, list(t.unsharded_padded_shape))
            for t in stacker.GetLayouts().tables}


@pytest.mark.skipif(tf.__version__.startswith("2.15"), reason="TensorFlow 2.15 has no stacker")
def test_layout_is_tensorflows():
    rng = np.random.default_rng(0)
    for cores in (SparseCores(), EIGHT, SparseCores(4, 2)):
        for limits in (StackLimits(), StackLimits(2000, 30000)):
            tables = [table(f"t{k}", int(rng.integers(1, 500)), int(rng.integers(1, 20)),
                            8 * int(rng.integers(1, 9)), int(rng.integers(0, 2)))
                      for k in range(9)]
            ours = {layout.name: (stack.name, layout.row_offset, layout.rotation,
                                  [layout.padded_rows, layout.padded_dimension])
                    for stack in stack_tables(tables, cores, limits=limits)
                    for layout in stack.tables}
            assert ours == tensorflows_layouts(tables, cores, limits)
