# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks exchange`: bytes of a step, counted from the tensors."""

import numpy as np

from benchmarks import exchange
from benchmarks.batches import Batch
from benchmarks.exchange import Bytes
from benchmarks.workloads import Workload

# Two samples of two ids; id 3 is in both. Values are exchanged in both directions.
WORKLOAD = Workload("small", rows=8, dim=16, batch_size=2, ids_per_sample=(2,))
BATCH = Batch([np.array([3, 0, 3, 4])], [np.array([0, 2, 4])])


def test_bytes_are_those_of_the_smaller_form():
    def num_bytes(servers, may_send_rows):
        return exchange.num_bytes(WORKLOAD, BATCH, servers, may_send_rows=may_send_rows)

    sizes = 6 * 8, 2 * 8  # of the ids, and learning rate, multiplier and step; by kernels
    of_value, of_id, of_end = 2 * 4 * 16, 4, 4
    in_sums = 2 * (of_value + of_end) + 4 * of_id
    assert 0 <= num_bytes(1, True) - in_sums <= sum(sizes)
    # Even ids are on server 0: two sums or rows; server 1 has two sums of one row.
    assert num_bytes(2, False) - num_bytes(2, True) == of_value + of_end + of_id


def test_the_table_has_a_line_for_each_number_of_ids():
    printed = exchange.text({10: {1: Bytes(1_200_000, 1_200_000), 4: Bytes(4_200_000, 2_900_000)}})
    assert printed.splitlines()[1].split() == ["ids", "per", "sample", "1", "servers", "4",
                                              "servers"]
    assert printed.splitlines()[2].split() == ["10", "1.20", "(1.20)", "2.90", "(4.20)"]
