// SPDX-License-Identifier: Apache-2.0
// Checks of prepared ids: they come from another op, or from a graph that somebody edited.
#ifndef TPU_ESTIMATOR_EMBEDDING_CHECK_PREPARED_H_
#define TPU_ESTIMATOR_EMBEDDING_CHECK_PREPARED_H_

#include <cstdint>

#include "table_ids.h"

namespace tpu_estimator_embedding {

// Whether a lookup of one or more rows of activations reads within the ids and the table.
template <class Id>
bool IsWithin(const LookupIds<Id>& ids, int64_t begin_row, int64_t end_row);

// Whether one or more runs are in order, and their reads and writes are within the table, the
// slots and the gradients.
template <class Id>
bool IsWithin(const UpdateIds<Id>& ids, int64_t begin_run, int64_t end_run);

// Whether every id belongs to a row of activations, or to a run.
template <class Id>
bool IsComplete(const LookupIds<Id>& ids) {
  return ids.num_ids == (ids.num_rows == 0 ? 0 : ids.row_ends[ids.num_rows - 1]);
}
template <class Id>
bool IsComplete(const UpdateIds<Id>& ids) {
  return ids.num_ids == (ids.num_runs == 0 ? 0 : ids.run_ends[ids.num_runs - 1]);
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_CHECK_PREPARED_H_
