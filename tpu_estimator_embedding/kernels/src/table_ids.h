// SPDX-License-Identifier: Apache-2.0
// The prepared ids of one table on one host: views, nothing is owned.
#ifndef TPU_ESTIMATOR_EMBEDDING_TABLE_IDS_H_
#define TPU_ESTIMATOR_EMBEDDING_TABLE_IDS_H_

#include <cstdint>

namespace tpu_estimator_embedding {

// `Id` is int32_t, or int64_t where a part of a table has more rows than that can number.
//
// Row r of the activations sums the rows ids[row_ends[r - 1]] ... ids[row_ends[r] - 1] of the
// table. The same ids again, sorted, make the runs of an update: run u updates row run_ids[u] of
// the table with the gradients of the activations run_rows[run_ends[u - 1]] and so on. An id has
// one run, or one for each core where every core makes its own update; runs of an id are
// neighbours, in the order in which they are to be made.
template <class Id>
struct TableIds {
  int64_t num_table_rows = 0;  // of this host's part
  int64_t num_ids = 0;
  int64_t num_rows = 0;  // of activations
  int64_t num_runs = 0;

  Id* ids = nullptr;
  int32_t* row_ends = nullptr;
  float* weights = nullptr;  // of each id; null: 1 everywhere
  float* scales = nullptr;   // of each row of activations; null: 1 everywhere

  Id* run_ids = nullptr;
  int32_t* run_ends = nullptr;
  int32_t* run_rows = nullptr;
  float* run_weights = nullptr;  // null as `weights` is
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_TABLE_IDS_H_
