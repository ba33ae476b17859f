// SPDX-License-Identifier: Apache-2.0
// Sums rows of a table into activations.
#ifndef TPU_ESTIMATOR_EMBEDDING_LOOKUP_ROWS_H_
#define TPU_ESTIMATOR_EMBEDDING_LOOKUP_ROWS_H_

#include "blocks.h"
#include "row_kernels.h"

namespace tpu_estimator_embedding {
namespace {

// Prefetch distance: far enough to hide memory latency, near enough for the row to stay in cache.
constexpr int32_t kLookupAhead = 64;

// Computes the columns of a row of activations, block by block.
template <class Id>
struct SumColumns {
  const Lookup<Id>& task;
  int64_t dim;
  int32_t begin, end;  // ids of the row
  float scale;
  float* row;

  template <class T, int kCount>
  TPU_EMBEDDING_INLINE void Do(int64_t column) const {
    T sums[kCount] = {};
    const float* table = task.table + column;
    for (int32_t i = begin; i < end; ++i) {
      const float* from = table + static_cast<int64_t>(task.ids.ids[i]) * dim;
      if (task.ids.weights == nullptr) {
        AddScaled<T, kCount, false>(from, 1.0f, sums);
      } else {
        AddScaled<T, kCount, true>(from, task.ids.weights[i], sums);
      }
    }
    StoreScaled<T, kCount>(sums, scale, row + column);
  }
};

template <class Id>
TPU_EMBEDDING_INLINE void LookupRowsOf(const Lookup<Id> task, const int64_t dim, int64_t begin_row,
                                       int64_t end_row) {
  const LookupIds<Id>& ids = task.ids;
  const int32_t last = begin_row < end_row ? ids.row_ends[end_row - 1] : 0;
  int32_t begin = begin_row == 0 ? 0 : ids.row_ends[begin_row - 1];
  for (int32_t i = begin; i < last && i < begin + kLookupAhead; ++i) {
    Prefetch(task.table + static_cast<int64_t>(ids.ids[i]) * dim, dim);
  }
  for (int64_t row = begin_row; row < end_row; ++row) {
    const int32_t end = ids.row_ends[row];
    for (int32_t i = begin + kLookupAhead; i < last && i < end + kLookupAhead; ++i) {
      Prefetch(task.table + static_cast<int64_t>(ids.ids[i]) * dim, dim);
    }
    const float scale = ids.scales == nullptr ? 1.0f : ids.scales[row];
    ForEachBlock(dim, SumColumns<Id>{task, dim, begin, end, scale,
                                     task.activations + row * task.stride});
    begin = end;
  }
}

template <class Id>
void LookupRows(const Lookup<Id>& task, int64_t begin_row, int64_t end_row) {
  WithDim(task.dim, [&](int64_t dim) TPU_EMBEDDING_INLINE_LAMBDA {
    LookupRowsOf<Id>(task, dim, begin_row, end_row);
  });
}

}  // namespace
}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_LOOKUP_ROWS_H_
