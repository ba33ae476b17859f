# SPDX-License-Identifier: Apache-2.0
"""Which host holds which id, tried out for every small table."""

import numpy as np
import pytest
import tensorflow as tf

from tests.spec.oracle import cut
from tpu_estimator_embedding.plan.partition_strategy import (
    ids_of_rows,
    part_sizes,
    saved_rows,
    shard_of_id,
)

SMALL = [(rows, hosts) for rows in range(1, 26) for hosts in range(1, 12)]


@pytest.fixture(params=["div", "mod"])
def strategy(request):
    return request.param


def test_parts_of_the_worked_example():
    assert part_sizes(13, 5) == [3, 3, 3, 2, 2]
    assert part_sizes(10, 3) == [4, 3, 3]
    mod = [np.arange(13)[[shard_of_id(id, 13, 5, "mod")[0] == part for id in range(13)]].tolist()
           for part in range(5)]
    assert mod == [[0, 5, 10], [1, 6, 11], [2, 7, 12], [3, 8], [4, 9]]
    assert saved_rows(13, 5, "mod")[4] == 11


@pytest.mark.parametrize("rows, hosts, sizes", [
    (1, 1, [1]), (3, 8, [1, 1, 1]), (8, 8, [1] * 8), (9, 8, [2] + [1] * 7), (12, 4, [3] * 4)])
def test_sizes_differ_by_at_most_one_and_no_part_is_empty(rows, hosts, sizes):
    assert part_sizes(rows, hosts) == sizes


def test_every_id_has_the_place_that_dealing_out_gives_it(strategy):
    for rows, hosts in SMALL:
        dealt = cut(np.arange(rows), hosts, strategy)
        assert part_sizes(rows, hosts) == [len(part) for part in dealt]
        for part, ids in enumerate(dealt):
            for row, id in enumerate(ids):
                assert shard_of_id(int(id), rows, hosts, strategy) == (part, row)


def test_ids_of_rows_is_the_inverse(strategy):
    for rows, hosts in SMALL:
        for part, ids in enumerate(cut(np.arange(rows), hosts, strategy)):
            np.testing.assert_array_equal(
                ids_of_rows(np.arange(len(ids)), part, rows, hosts, strategy), ids)


def test_saved_rows_are_the_parts_one_after_another(strategy):
    for rows, hosts in SMALL:
        saved = np.concatenate(cut(np.arange(rows), hosts, strategy))
        np.testing.assert_array_equal(saved[saved_rows(rows, hosts, strategy)], np.arange(rows))


def test_div_saves_rows_in_the_order_of_ids():
    for rows, hosts in SMALL:
        np.testing.assert_array_equal(saved_rows(rows, hosts, "div"), np.arange(rows))


@pytest.mark.parametrize("rows, hosts", [(13, 5), (24, 3), (2, 8), (1, 1), (17, 2)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_tensors_arrays_and_ints_agree(strategy, rows, hosts, dtype):
    ids = np.arange(rows, dtype=dtype)
    parts, places = shard_of_id(ids, rows, hosts, strategy)
    tensors = shard_of_id(tf.constant(ids), rows, hosts, strategy)
    for array, tensor in zip((parts, places), tensors, strict=True):
        np.testing.assert_array_equal(array, tensor)
        assert tensor.dtype == dtype
    assert [shard_of_id(int(id), rows, hosts, strategy) for id in ids] == [
        (part, place) for part, place in zip(parts, places, strict=True)]


def test_a_large_table_has_places_beyond_32_bits(strategy):
    rows, last = 2**40, 2**40 - 1
    part, row = shard_of_id(tf.constant(last), rows, 3, strategy)
    assert ids_of_rows(int(row), int(part), rows, 3, strategy) == last
