// SPDX-License-Identifier: Apache-2.0
// The prepared ids of one table on one host: views, nothing is owned.
#ifndef TPU_ESTIMATOR_EMBEDDING_TABLE_IDS_H_
#define TPU_ESTIMATOR_EMBEDDING_TABLE_IDS_H_

#include <cstdint>
#include <limits>

namespace tpu_estimator_embedding {

// The most ids, or rows of activations, of a table in a step. Range ends are int32, and prefetching
// loops look some ids ahead.
constexpr int64_t kMostInStep = std::numeric_limits<int32_t>::max() - 1024;

// `Id` is int32_t, or int64_t if a part of a table has more rows than int32_t can index.
// Row r of the activations sums the rows ids[row_ends[r - 1]] ... ids[row_ends[r] - 1] of the
// table. The same ids, sorted, are grouped into the runs of an update: run u updates row run_ids[u]
// of the table with the gradients of the activations run_rows[run_ends[u - 1]] ...
// run_rows[run_ends[u] - 1]. An id has one run, or one per core if every core makes its own update;
// the runs of an id are adjacent, in the order of the updates.

// The input of a lookup.
template <class Id>
struct LookupIds {
  int64_t num_table_rows = 0;  // of this host's part
  int64_t num_ids = 0;
  int64_t num_rows = 0;  // of activations

  const Id* ids = nullptr;
  const int32_t* row_ends = nullptr;
  const float* weights = nullptr;  // of each id; null: 1 everywhere
  const float* scales = nullptr;   // of each row of activations; null: 1 everywhere
};

// The input of an update.
template <class Id>
struct UpdateIds {
  int64_t num_table_rows = 0;
  int64_t num_ids = 0;
  int64_t num_rows = 0;
  int64_t num_runs = 0;

  const Id* run_ids = nullptr;
  const int32_t* run_ends = nullptr;
  const int32_t* run_rows = nullptr;
  const float* run_weights = nullptr;  // null if `weights` is
  const float* scales = nullptr;
};

// Both, during preparation.
template <class Id>
struct TableIds {
  int64_t num_table_rows = 0;
  int64_t num_ids = 0;
  int64_t num_rows = 0;
  int64_t num_runs = 0;

  Id* ids = nullptr;
  int32_t* row_ends = nullptr;
  float* weights = nullptr;
  float* scales = nullptr;

  Id* run_ids = nullptr;
  int32_t* run_ends = nullptr;
  int32_t* run_rows = nullptr;
  float* run_weights = nullptr;

  LookupIds<Id> for_lookup() const {
    return {num_table_rows, num_ids, num_rows, ids, row_ends, weights, scales};
  }
  UpdateIds<Id> for_update() const {
    return {num_table_rows, num_ids,  num_rows,    num_runs, run_ids,
            run_ends,       run_rows, run_weights, scales};
  }
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_TABLE_IDS_H_
