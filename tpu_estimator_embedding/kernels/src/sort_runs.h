// SPDX-License-Identifier: Apache-2.0
// Sorts the ids of a table into the runs of an update.
#ifndef TPU_ESTIMATOR_EMBEDDING_SORT_RUNS_H_
#define TPU_ESTIMATOR_EMBEDDING_SORT_RUNS_H_

#include <cstdint>
#include <vector>

#include "partition.h"
#include "table_ids.h"

namespace tpu_estimator_embedding {

// Whose gradients a run sums: those of all cores, or of one core after another. In the latter
// case, row i of the table lives on core i mod N; its updates come from cores i mod N,
// i mod N + 1, ... around the ring.
struct Cores {
  std::vector<int64_t> row_ends;  // the rows of activations of each core end here; empty: as one
  const Partition* partition = nullptr;
  int part = 0;

  int64_t number() const { return row_ends.empty() ? 1 : static_cast<int64_t>(row_ends.size()); }
};

// Fills the runs of `table` from its ids, and returns how many there are. The order of the
// gradients within a run is that of the rows of activations.
template <class Id>
int64_t SortRuns(const TableIds<Id>& table, const Cores& cores);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_SORT_RUNS_H_
