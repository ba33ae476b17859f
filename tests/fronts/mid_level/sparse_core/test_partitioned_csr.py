# SPDX-License-Identifier: Apache-2.0
"""Ids sorted for SparseCores: the worked example, reading back, room, and where they can go."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tpu_estimator_embedding.mid_level.sparse_core.partitioned_csr import (
    CsrFormat,
    PartitionedCsrFormatTensor,
    StackIds,
    from_csr,
    sort_ids,
    to_csr,
)

EXAMPLE = CsrFormat("a", num_shards=8, num_cores=4, rows_per_shard=8, sample_count=8)
PADDING = np.iinfo(np.int32).max


def stack_ids(ids, rows, gains, num_shards):
    ids = np.asarray(ids, np.int64)
    return StackIds(tf.constant(ids % num_shards), tf.constant(ids // num_shards),
                    tf.constant(rows, tf.int64), tf.constant(gains, tf.float32))


def example_ids():
    """8 samples on 2 × 4 cores: rows, ids and weights over the sum of a row's weights."""
    return stack_ids([5, 5, 3, 9, 1, 1, 7, 2], [0, 0, 1, 2, 2, 2, 5, 7],
                     [1 / 3, 2 / 3, 1, 0.5, 0.25, 0.25, 1, 1], 8)


def test_worked_example():
    tensor, pointers, used = to_csr(sort_ids(example_ids(), EXAMPLE), EXAMPLE)
    assert (int(pointers), int(used), tensor.sample_count) == (32, 40, 8)
    np.testing.assert_array_equal(tensor.row_pointers[:32].numpy().reshape(4, 8), [
        [0, 0, 0, 1, 8, 9, 16, 16], [16, 18, 24, 24, 24, 24, 24, 24],
        [24, 24, 24, 24, 24, 24, 24, 25], [32, 32, 33, 40, 40, 40, 40, 40]])
    tokens, samples, gains = (tensor.sorted_token_ids.numpy(), tensor.sorted_sample_ids.numpy(),
                              tensor.sorted_gains.numpy())
    places = [0, 8, 16, 17, 24, 32]
    np.testing.assert_array_equal(tokens[places], [0, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(samples[places], [1, 0, 0, 0, 1, 1])
    np.testing.assert_allclose(gains[places], [1, 1, 0.5, 0.5, 1, 1], rtol=1e-6)
    unused = np.delete(np.arange(len(tokens)), places)
    assert set(tokens[unused]) == set(samples[unused]) == {PADDING}
    assert set(gains[unused]) == {np.float32(PADDING)}


@st.composite
def ids_of_a_stack(draw):
    num_cores = draw(st.sampled_from([1, 2, 4]))
    num_shards = num_cores * draw(st.sampled_from([1, 2, 4]))
    csr = CsrFormat("a", num_shards, num_cores, draw(st.sampled_from([8, 16])),
                    num_cores * draw(st.integers(1, 4)))
    entry = st.tuples(st.integers(0, csr.rows_per_shard * num_shards - 1),
                      st.integers(0, csr.sample_count - 1), st.integers(-8, 8))
    return csr, draw(st.lists(entry, max_size=40))


@pytest.mark.slow
@given(ids_of_a_stack())
@settings(max_examples=40, deadline=None)
def test_ids_are_read_back_in_the_order_of_activations(drawn):
    csr, entries = drawn
    ids, rows, gains = zip(*entries, strict=True) if entries else ([], [], [])
    sorted_ids = sort_ids(stack_ids(ids, rows, gains, csr.num_shards), csr)
    read = from_csr(to_csr(sorted_ids, csr)[0], csr)
    expected = {}
    for id, row, gain in entries:
        expected[row, id] = expected.get((row, id), 0) + gain
    found = {(int(row), int(token) * csr.num_shards + int(shard)): float(gain)
             for shard, token, row, gain in zip(*read, strict=True)}
    assert found == expected and len(read.rows) == len(expected)
    assert sorted(read.rows.numpy()) == read.rows.numpy().tolist()


def test_ids_without_room_are_dropped_if_allowed():
    csr = CsrFormat("clicks", 4, 4, 8, 4, max_ids_per_sample=2, allow_id_dropping=True)
    ids = stack_ids([0, 1, 2], [0, 0, 0], [1.0] * 3, 4)
    tensor, _, used = to_csr(sort_ids(ids, csr), csr)
    read = from_csr(tensor, csr)
    assert int(used) == 8 and read.shards.numpy().tolist() == [0]


@pytest.mark.slow
def test_tensor_passes_through_functions_datasets_and_loops():
    tensor, *_ = to_csr(sort_ids(example_ids(), EXAMPLE), EXAMPLE)
    [element] = tf.data.Dataset.from_tensors(tensor).map(lambda csr: csr)
    assert isinstance(element, PartitionedCsrFormatTensor)

    @tf.function
    def loop(csr):
        for _ in tf.range(3):
            csr = to_csr(sort_ids(from_csr(csr, EXAMPLE), EXAMPLE), EXAMPLE)[0]
        return csr

    again = loop(element)
    assert again.sample_count == 8
    for name in ("row_pointers", "sorted_sample_ids", "sorted_token_ids", "sorted_gains"):
        np.testing.assert_array_equal(getattr(again, name), getattr(tensor, name))
