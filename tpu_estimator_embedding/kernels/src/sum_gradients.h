// SPDX-License-Identifier: Apache-2.0
// Sums the gradients of the rows that an update changes, tile by tile.
#ifndef TPU_ESTIMATOR_EMBEDDING_SUM_GRADIENTS_H_
#define TPU_ESTIMATOR_EMBEDDING_SUM_GRADIENTS_H_

#include <algorithm>

#include "blocks.h"
#include "row_kernels.h"

namespace tpu_estimator_embedding {
namespace {

constexpr int64_t kTileFloats = 1024;    // the sums of a tile stay in the L1 cache
constexpr int32_t kGradientsAhead = 32;  // prefetch distance

// Some runs of a range with all their columns, or some columns of one run.
struct Tile {
  int64_t begin_run, end_run;
  int64_t column, num_columns;
  int64_t last_gradient;  // of the range
};

// Calls work(tile) for tiles that cover the runs of a range, in their order.
template <class Id, class Work>
TPU_EMBEDDING_INLINE void ForEachTile(const Update<Id>& task, const Range& range,
                                      const Work& work) {
  if (range.begin_run == range.end_run) return;
  const int64_t last_gradient = task.ids.run_ends[range.end_run - 1] - 1;
  const int64_t num_runs = std::max<int64_t>(kTileFloats / task.dim, 1);
  for (int64_t run = range.begin_run; run < range.end_run; run += num_runs) {
    const int64_t end_run = std::min(run + num_runs, range.end_run);
    for (int64_t column = 0; column < task.dim; column += kTileFloats) {
      work(Tile{run, end_run, column, std::min(task.dim - column, kTileFloats), last_gradient});
    }
  }
}

// Columns of one run.
template <class Id, bool kHasWeights, bool kHasScales>
struct SumColumnsOfRun {
  const Update<Id>& task;
  const float* gradients;  // the first column of the tile
  int32_t begin, end;      // gradients of the run
  int32_t last;            // gradient of the range
  float* sums;

  template <class T, int kCount>
  TPU_EMBEDDING_INLINE void Do(int64_t column) const {
    const int32_t* rows = task.ids.run_rows;
    const float* from = gradients + column;
    T totals[kCount] = {};
    for (int32_t i = begin; i < end; ++i) {
      const int32_t ahead = i + kGradientsAhead < last ? i + kGradientsAhead : last;
      Prefetch(from + rows[ahead] * task.gradient_stride, kCount * Lanes<T>());
      const int64_t row = rows[i];
      AddScaled<T, kCount, kHasWeights || kHasScales>(from + row * task.gradient_stride,
                                                      Factor(i, row), totals);
    }
#pragma GCC unroll 16
    for (int k = 0; k < kCount; ++k) Store(totals[k], sums + column + k * Lanes<T>());
  }

 private:
  TPU_EMBEDDING_INLINE float Factor(int32_t i, int64_t row) const {
    if (kHasWeights && kHasScales) return task.ids.scales[row] * task.ids.run_weights[i];
    if (kHasWeights) return task.ids.run_weights[i];
    return kHasScales ? task.ids.scales[row] : 1.0f;
  }
};

template <class Id>
TPU_EMBEDDING_INLINE void PrefetchColumns(const Update<Id>& task, int num_slots, int64_t offset,
                                          int64_t num_columns) {
  Prefetch(task.table + offset, num_columns);
  for (int slot = 0; slot < num_slots; ++slot) Prefetch(task.slots[slot] + offset, num_columns);
}

template <class Id, bool kHasWeights, bool kHasScales>
TPU_EMBEDDING_INLINE void SumRuns(const Update<Id> task, int num_slots, const Tile tile,
                                  const int64_t num_columns, float* sums) {
  const UpdateIds<Id>& ids = task.ids;
  const int32_t last = static_cast<int32_t>(tile.last_gradient);
  int32_t begin = tile.begin_run == 0 ? 0 : ids.run_ends[tile.begin_run - 1];
  for (int64_t run = tile.begin_run; run < tile.end_run; ++run, sums += num_columns) {
    const int64_t row = ids.run_ids[run];
    PrefetchColumns(task, num_slots, row * task.dim + tile.column, num_columns);
    const int32_t end = ids.run_ends[run];
    ForEachBlock(num_columns, SumColumnsOfRun<Id, kHasWeights, kHasScales>{
                                  task, task.gradients + tile.column, begin, end, last, sums});
    begin = end;
  }
}

template <class Id, bool kHasWeights, bool kHasScales>
void SumTile(const Update<Id>& task, int num_slots, const Tile& tile, float* sums) {
  WithDim(tile.num_columns, [&](int64_t num_columns) TPU_EMBEDDING_INLINE_LAMBDA {
    SumRuns<Id, kHasWeights, kHasScales>(task, num_slots, tile, num_columns, sums);
  });
}

// Writes the summed gradients of the runs of a tile to `sums`, `[runs, columns]`, and prefetches
// their columns of the table and its slots.
template <class Id>
void SumGradients(const Update<Id>& task, int num_slots, const Tile& tile, float* sums) {
  const bool has_scales = task.ids.scales != nullptr;
  if (task.ids.run_weights != nullptr) {
    return has_scales ? SumTile<Id, true, true>(task, num_slots, tile, sums)
                      : SumTile<Id, true, false>(task, num_slots, tile, sums);
  }
  return has_scales ? SumTile<Id, false, true>(task, num_slots, tile, sums)
                    : SumTile<Id, false, false>(task, num_slots, tile, sums);
}

}  // namespace
}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_SUM_GRADIENTS_H_
