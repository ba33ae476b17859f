// SPDX-License-Identifier: Apache-2.0
// Splits the update of a step into shares that write to different rows.
#ifndef TPU_ESTIMATOR_EMBEDDING_UPDATE_SHARES_H_
#define TPU_ESTIMATOR_EMBEDDING_UPDATE_SHARES_H_

#include <algorithm>
#include <vector>

#include "row_kernels.h"

namespace tpu_estimator_embedding {

template <class Id>
struct UpdateShare {
  const Update<Id>* task;
  Range range;
};

// The cost of an update in floats: rows of tables and slots, and gradients.
template <class Id>
int64_t Cost(const Update<Id>& task) {
  const int64_t rows =
      task.optimizer.moves_untouched_rows ? task.ids.num_table_rows : task.ids.num_runs;
  return (4 * rows + task.ids.num_ids) * task.dim;
}

namespace {  // a copy for each unit, because some are for one instruction set

// The first run at or after `run` that begins a new id, so that an id has one writer.
template <class Id>
int64_t NextId(const UpdateIds<Id>& ids, int64_t run) {
  while (run > 0 && run < ids.num_runs && ids.run_ids[run] == ids.run_ids[run - 1]) ++run;
  return run;
}

}  // namespace

template <class Id>
Range CutRange(const Update<Id>& task, int64_t i, int64_t count) {
  const UpdateIds<Id>& ids = task.ids;
  if (!task.optimizer.moves_untouched_rows) {
    return {NextId(ids, ids.num_runs * i / count), NextId(ids, ids.num_runs * (i + 1) / count), 0,
            0};
  }
  const int64_t begin_row = ids.num_table_rows * i / count;
  const int64_t end_row = ids.num_table_rows * (i + 1) / count;
  const Id* end = ids.run_ids + ids.num_runs;
  return {std::lower_bound(ids.run_ids, end, begin_row) - ids.run_ids,
          std::lower_bound(ids.run_ids, end, end_row) - ids.run_ids, begin_row, end_row};
}

// About how many nanoseconds updates take one thread.
template <class Id>
int64_t Nanoseconds(const std::vector<Update<Id>>& tasks) {
  constexpr int64_t kFloatsPerNanosecond = 3;
  int64_t total = 0;
  for (const Update<Id>& task : tasks) total += Cost(task);
  return total / kFloatsPerNanosecond;
}

template <class Id>
std::vector<UpdateShare<Id>> ShareOut(const std::vector<Update<Id>>& tasks, int num_threads) {
  constexpr int64_t kSharesPerThread = 16;  // so that no thread waits long for the last one
  const int64_t num_shares = num_threads == 1 ? 1 : kSharesPerThread * num_threads;
  int64_t total = 0;
  for (const Update<Id>& task : tasks) total += Cost(task);
  const int64_t cost_of_share = total / num_shares + 1;
  std::vector<UpdateShare<Id>> shares;
  shares.reserve(tasks.size() + num_shares);
  for (const Update<Id>& task : tasks) {
    const int64_t count = Cost(task) / cost_of_share + 1;
    for (int64_t i = 0; i < count; ++i) shares.push_back({&task, CutRange(task, i, count)});
  }
  return shares;
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_UPDATE_SHARES_H_
