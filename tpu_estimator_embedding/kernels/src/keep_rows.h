// SPDX-License-Identifier: Apache-2.0
// Copies the rows that an update is about to write, for the snapshots that have not read them.
#ifndef TPU_ESTIMATOR_EMBEDDING_KEEP_ROWS_H_
#define TPU_ESTIMATOR_EMBEDDING_KEEP_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel_for.h"
#include "row_kernels.h"
#include "row_snapshots.h"

namespace tpu_estimator_embedding {

template <class Id>
class RowsToKeep {
 public:
  // Adds the rows that `task` writes in one variable, its table or a slot.
  void Add(const Update<Id>& task, const SnapshotPart& part) {
    constexpr int64_t kRowsOfShare = 1 << 12;
    const bool writes_all = task.optimizer.moves_untouched_rows;
    const int64_t count = writes_all ? task.ids.num_table_rows : task.ids.num_runs;
    for (int64_t begin = 0; begin < count; begin += kRowsOfShare) {
      shares_.push_back({part, writes_all ? nullptr : task.ids.run_ids, begin,
                         std::min(begin + kRowsOfShare, count)});
    }
    num_rows_ += count;
    num_floats_ += count * task.dim;
  }

  // Copies them. The op holds the locks of all variables for writing.
  absl::Status Keep(tensorflow::OpKernelContext* context) {
    constexpr int64_t kNanosecondsOfRow = 10, kFloatsPerNanosecond = 1;
    TF_RETURN_IF_ERROR(ParallelFor(
        context, NumThreads(context, num_rows_ * kNanosecondsOfRow), shares_.size(),
        [this](int64_t i) {
          Share& share = shares_[i];
          ForEachRow(share, [&share](int64_t) { ++share.count; });
        }));
    for (Share& share : shares_) {
      const int64_t before = share.part.rows->kept_bytes();
      share.place = share.part.rows->Reserve(share.count);
      share.part.snapshot->Count(share.part.rows->kept_bytes() - before);
    }
    return ParallelFor(context, NumThreads(context, num_floats_ / kFloatsPerNanosecond),
                       shares_.size(), [this](int64_t i) {
                         Share& share = shares_[i];
                         ForEachRow(share, [&share](int64_t row) {
                           share.part.rows->Keep(row, share.place++);
                         });
                       });
  }

 private:
  struct Share {
    SnapshotPart part;
    const Id* run_ids;  // null: rows are numbered from `begin` to `end`, else runs
    int64_t begin, end;
    int64_t count = 0, place = 0;
  };

  // Calls keep(row) once for every row that is still to be kept.
  template <class Keep>
  static void ForEachRow(const Share& share, const Keep& keep) {
    for (int64_t i = share.begin; i < share.end; ++i) {
      if (share.run_ids != nullptr && i > 0 && share.run_ids[i] == share.run_ids[i - 1]) continue;
      const int64_t row = share.run_ids == nullptr ? i : static_cast<int64_t>(share.run_ids[i]);
      if (share.part.rows->IsToKeep(row)) keep(row);
    }
  }

  std::vector<Share> shares_;
  int64_t num_rows_ = 0, num_floats_ = 0;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_KEEP_ROWS_H_
