// SPDX-License-Identifier: Apache-2.0
// Sums the gradients of rows and updates the rows and their slots.
#ifndef TPU_ESTIMATOR_EMBEDDING_UPDATE_ROWS_H_
#define TPU_ESTIMATOR_EMBEDDING_UPDATE_ROWS_H_

#include "row_kernels.h"
#include "rules.h"
#include "sum_gradients.h"

namespace tpu_estimator_embedding {
namespace {

template <class MyRule>
constexpr int kNumSlots = CountNames(MyRule::kSlots);

// Columns of one row of the table, with its summed gradient, if it has one.
template <class MyRule, class Id, bool kIsTouched>
struct UpdateColumns {
  const Update<Id>& task;
  const MyRule& rule;
  const float* gradient;
  int64_t offset;  // of the first column in table and slots

  template <class T, int kCount>
  TPU_EMBEDDING_INLINE void Do(int64_t column) const {
#pragma GCC unroll 16
    for (int k = 0; k < kCount; ++k) UpdateOne<T>(column + k * Lanes<T>());
  }

 private:
  template <class T>
  TPU_EMBEDDING_INLINE void UpdateOne(int64_t column) const {
    const RowOptimizer& optimizer = task.optimizer;
    const int64_t at = offset + column;
    T weights, slots[kNumSlots<MyRule> > 0 ? kNumSlots<MyRule> : 1], g{};
    Load(task.table + at, &weights);
    for (int slot = 0; slot < kNumSlots<MyRule>; ++slot) {
      Load(task.slots[slot] + at, &slots[slot]);
    }
    if (kIsTouched) {
      Load(gradient + column, &g);
      g = Clip(g * optimizer.multiplier, Fill<T>(optimizer.gradient_min),
               Fill<T>(optimizer.gradient_max));
      if (optimizer.decay != 0) weights = weights - optimizer.decay * weights;
    }
    rule(g, weights, slots);
    if (kIsTouched) {
      weights = Clip(weights, Fill<T>(optimizer.weight_min), Fill<T>(optimizer.weight_max));
    }
    Store(weights, task.table + at);
    for (int slot = 0; slot < kNumSlots<MyRule>; ++slot) {
      Store(slots[slot], task.slots[slot] + at);
    }
  }
};

template <class MyRule, class Id>
void UpdateUntouched(const Update<Id> task, const MyRule rule, int64_t begin_row, int64_t end_row) {
  for (int64_t row = begin_row; row < end_row; ++row) {
    ForEachBlock(task.dim, UpdateColumns<MyRule, Id, false>{task, rule, nullptr, row * task.dim});
  }
}

template <class MyRule, class Id>
TPU_EMBEDDING_INLINE void UpdateRuns(const Update<Id> task, const MyRule rule, const Tile tile,
                                     const int64_t num_columns, const float* gradients) {
  for (int64_t run = tile.begin_run; run < tile.end_run; ++run, gradients += num_columns) {
    const int64_t offset = static_cast<int64_t>(task.ids.run_ids[run]) * task.dim + tile.column;
    ForEachBlock(num_columns, UpdateColumns<MyRule, Id, true>{task, rule, gradients, offset});
  }
}

template <class MyRule, class Id>
void UpdateTile(const Update<Id>& task, const MyRule& rule, const Tile& tile,
                const float* gradients) {
  WithDim(tile.num_columns, [&](int64_t num_columns) TPU_EMBEDDING_INLINE_LAMBDA {
    UpdateRuns(task, rule, tile, num_columns, gradients);
  });
}

// Updates the rows of a range that no id asks for.
template <class MyRule, class Id>
void UpdateUntouchedOf(const Update<Id>& task, const MyRule& rule, const Range& range) {
  int64_t next_row = range.begin_row;
  for (int64_t run = range.begin_run; run < range.end_run; ++run) {
    UpdateUntouched(task, rule, next_row, task.ids.run_ids[run]);
    next_row = int64_t{task.ids.run_ids[run]} + 1;
  }
  UpdateUntouched(task, rule, next_row, range.end_row);
}

// Sums the gradients of a tile, during which its rows arrive from memory, and then updates them.
template <class MyRule, class Id>
void UpdateRange(const Update<Id>& task, const Range& range) {
  const MyRule rule(task.optimizer);
  alignas(64) float sums[kTileFloats];
  ForEachTile(task, range, [&](const Tile& tile) {
    SumGradients(task, kNumSlots<MyRule>, tile, sums);
    UpdateTile(task, rule, tile, sums);
  });
  if constexpr (MyRule::kMayMoveUntouched) {
    if (task.optimizer.moves_untouched_rows) UpdateUntouchedOf(task, rule, range);
  }
}

template <class Id>
void UpdateRows(const Update<Id>& task, const Range& range) {
#define TPU_EMBEDDING_UPDATE(MyRule) &UpdateRange<MyRule, Id>,
  static constexpr void (*kUpdates[])(const Update<Id>&, const Range&) = {
      TPU_EMBEDDING_RULES(TPU_EMBEDDING_UPDATE)};
#undef TPU_EMBEDDING_UPDATE
  kUpdates[task.optimizer.rule](task, range);
}

}  // namespace
}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_UPDATE_ROWS_H_
