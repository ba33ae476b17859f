// SPDX-License-Identifier: Apache-2.0
// Sums the gradients of rows and updates the rows and their slots.
#ifndef TPU_ESTIMATOR_EMBEDDING_UPDATE_ROWS_H_
#define TPU_ESTIMATOR_EMBEDDING_UPDATE_ROWS_H_

#include "blocks.h"
#include "row_kernels.h"
#include "rules.h"

namespace tpu_estimator_embedding {
namespace {

template <class MyRule>
constexpr int kNumSlots = CountNames(MyRule::kSlots);

constexpr int64_t kRunsAhead = 16;  // prefetch distance
constexpr int32_t kGradientsAhead = 32;

// The columns of one row of the table.
template <class MyRule, class Id, bool kIsTouched>
struct UpdateColumns {
  const Update<Id>& task;
  const MyRule& rule;
  int32_t begin, end;  // gradients of the run
  int32_t last;        // gradient of the range
  int64_t offset;      // of the row in table and slots

  template <class T, int kCount>
  TPU_EMBEDDING_INLINE void Do(int64_t column) const {
    T sums[kCount] = {};
    if (kIsTouched) SumGradients<T, kCount>(column, sums);
#pragma GCC unroll 16
    for (int k = 0; k < kCount; ++k) UpdateOne<T>(offset + column + k * Lanes<T>(), sums[k]);
  }

 private:
  // The form of the weights is checked once per run: per gradient it would cost as much as the sum.
  template <class T, int kCount>
  TPU_EMBEDDING_INLINE void SumGradients(int64_t column, T* sums) const {
    const float* weights = task.ids.run_weights;
    const float* scales = task.ids.scales;
    if (weights != nullptr && scales != nullptr) {
      AddGradients<T, kCount, true>(
          column, sums, [=](int32_t i, int64_t row) { return scales[row] * weights[i]; });
    } else if (weights != nullptr) {
      AddGradients<T, kCount, true>(column, sums, [=](int32_t i, int64_t) { return weights[i]; });
    } else if (scales != nullptr) {
      AddGradients<T, kCount, true>(column, sums,
                                    [=](int32_t, int64_t row) { return scales[row]; });
    } else {
      AddGradients<T, kCount, false>(column, sums, [](int32_t, int64_t) { return 1.0f; });
    }
  }

  template <class T, int kCount, bool kIsScaled, class Factor>
  TPU_EMBEDDING_INLINE void AddGradients(int64_t column, T* sums, const Factor& factor) const {
    const int32_t* rows = task.ids.run_rows;
    const float* gradients = task.gradients + column;
    for (int32_t i = begin; i < end; ++i) {
      const int32_t ahead = i + kGradientsAhead < last ? i + kGradientsAhead : last;
      Prefetch(gradients + rows[ahead] * task.gradient_stride, kCount * Lanes<T>());
      const int64_t row = rows[i];
      AddScaled<T, kCount, kIsScaled>(gradients + row * task.gradient_stride, factor(i, row), sums);
    }
  }

  template <class T>
  TPU_EMBEDDING_INLINE void UpdateOne(int64_t at, T gradient) const {
    const RowOptimizer& optimizer = task.optimizer;
    T weights, slots[kNumSlots<MyRule> > 0 ? kNumSlots<MyRule> : 1];
    Load(task.table + at, &weights);
    for (int slot = 0; slot < kNumSlots<MyRule>; ++slot) {
      Load(task.slots[slot] + at, &slots[slot]);
    }
    if (kIsTouched) {
      gradient = Clip(gradient * optimizer.multiplier, Fill<T>(optimizer.gradient_min),
                      Fill<T>(optimizer.gradient_max));
      if (optimizer.decay != 0) weights = weights - optimizer.decay * weights;
    }
    rule(gradient, weights, slots);
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
TPU_EMBEDDING_INLINE void PrefetchRow(const Update<Id>& task, int64_t run) {
  const int64_t offset = static_cast<int64_t>(task.ids.run_ids[run]) * task.dim;
  Prefetch(task.table + offset, task.dim);
  for (int slot = 0; slot < kNumSlots<MyRule>; ++slot) {
    Prefetch(task.slots[slot] + offset, task.dim);
  }
}

template <class MyRule, class Id>
void UpdateUntouched(const Update<Id> task, const MyRule rule, int64_t begin_row, int64_t end_row) {
  for (int64_t row = begin_row; row < end_row; ++row) {
    ForEachBlock(task.dim, UpdateColumns<MyRule, Id, false>{task, rule, 0, 0, 0, row * task.dim});
  }
}

template <class MyRule, class Id>
void UpdateRange(const Update<Id> task, const Range range) {
  const UpdateIds<Id>& ids = task.ids;
  const MyRule rule(task.optimizer);
  int64_t next_row = range.begin_row;  // the first row not yet updated
  int32_t begin = range.begin_run == 0 ? 0 : ids.run_ends[range.begin_run - 1];
  const int32_t last =
      (range.begin_run < range.end_run ? ids.run_ends[range.end_run - 1] : begin) - 1;
  for (int64_t run = range.begin_run; run < range.end_run; ++run) {
    const int64_t row = ids.run_ids[run];
    const int32_t end = ids.run_ends[run];
    if (run + kRunsAhead < range.end_run) PrefetchRow<MyRule>(task, run + kRunsAhead);
    if constexpr (MyRule::kMayMoveUntouched) {
      if (task.optimizer.moves_untouched_rows) UpdateUntouched(task, rule, next_row, row);
    }
    ForEachBlock(task.dim,
                 UpdateColumns<MyRule, Id, true>{task, rule, begin, end, last, row * task.dim});
    next_row = row + 1;
    begin = end;
  }
  if constexpr (MyRule::kMayMoveUntouched) {
    if (task.optimizer.moves_untouched_rows) UpdateUntouched(task, rule, next_row, range.end_row);
  }
}

template <class Id>
void UpdateRows(const Update<Id>& task, const Range& range) {
#define TPU_EMBEDDING_UPDATE(MyRule) &UpdateRange<MyRule, Id>,
  static constexpr void (*kUpdates[])(Update<Id>, Range) = {
      TPU_EMBEDDING_RULES(TPU_EMBEDDING_UPDATE)};
#undef TPU_EMBEDDING_UPDATE
  kUpdates[task.optimizer.rule](task, range);
}

}  // namespace
}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_UPDATE_ROWS_H_
