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

struct IdRange {
  int64_t begin, end;
};

// Some runs of a table: where they begin among the places for all, and how many there are.
struct Runs {
  int64_t begin, count;
};

// Fills the runs of the ids of `table` that lie in the range, at the places that they have when
// all are sorted; ranges can be sorted at the same time. The order of the gradients within a run
// is that of the rows of activations.
template <class Id>
Runs SortRuns(const TableIds<Id>& table, const Cores& cores, const IdRange& range);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_SORT_RUNS_H_
