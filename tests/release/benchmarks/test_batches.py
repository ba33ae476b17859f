# SPDX-License-Identifier: Apache-2.0
"""The ids of the workloads."""

import dataclasses

import numpy as np

from benchmarks.batches import make_batches, make_labels, unique_rows
from benchmarks.workloads import TINY, W2, W


def test_batches_are_the_same_in_every_process_and_differ_from_one_another():
    first, second = make_batches(TINY, 2)
    again = make_batches(TINY, 1)[0]
    for table in range(TINY.num_tables):
        np.testing.assert_array_equal(first.ids[table], again.ids[table])
        assert (first.ids[table] != second.ids[table]).any()


def test_w_is_as_large_as_it_is_said_to_be():
    assert W.bytes == 2 * 26 * 100_000 * 32 * 4
    assert W.batch_size * sum(W.ids_per_sample) == 585_728


def test_zipf_ids_of_w2_repeat_as_often_as_they_should():
    [batch] = make_batches(W2, 1)
    [rows] = unique_rows(W2, batch)
    assert 6_000 < rows.size < 7_500
    assert batch.ids[0].min() >= 0 and batch.ids[0].max() < W2.rows


def test_touched_rows_stay_the_same_however_large_the_table():
    for rows in (50, 5_000):
        workload = dataclasses.replace(TINY, rows=rows, touched_rows=10, batch_size=500)
        batches = make_batches(workload, 2)
        for table in range(workload.num_tables):
            ids = np.concatenate([batch.ids[table] for batch in batches])
            assert np.unique(ids).size == 10


def test_unique_rows_come_in_the_order_in_which_they_are_met():
    batch = make_batches(TINY, 1)[0]
    for rows, ids in zip(unique_rows(TINY, batch), batch.ids, strict=True):
        assert rows.tolist() == list(dict.fromkeys(ids.tolist()))


def test_labels_are_zeros_and_ones():
    labels = make_labels(TINY)
    assert labels.shape == (TINY.batch_size, 1) and set(labels.ravel()) == {0.0, 1.0}
