// SPDX-License-Identifier: Apache-2.0
#include "measured_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "update_shares.h"
#include "vectors.h"

namespace tpu_estimator_embedding {
namespace {

// Few enough rows to stay in the cache until they are compared, with slots and gradients.
constexpr int64_t kRunsOfBlock = 64;
constexpr int64_t kRunsAhead = 16;
constexpr int64_t kFloatsPerLine = 16;

// The sum of the squares of one row: few enough numbers to add them in floats.
class Squares {
 public:
  void Add(Vector values) { lanes_ += values * values; }
  void Add(float value) { rest_ += value * value; }
  float total() const {
    float sum = rest_;
    for (int lane = 0; lane < kLanes; ++lane) sum += lanes_[lane];
    return sum;
  }

 private:
  Vector lanes_ = {};
  float rest_ = 0;
};

template <class Id>
class MeasuredBlock {
 public:
  MeasuredBlock(const Update<Id>& task, int64_t begin, int64_t end)
      : task_(task), begin_(begin), end_(end), before_((end - begin) * task.dim) {}

  // Keeps the rows, and measures their gradients.
  void Before(RowSums* sums) {
    std::vector<float> gradient(task_.dim);
    for (int64_t run = begin_; run < end_; ++run) {
      if (run + kRunsAhead < end_) Prefetch(RowOf(run + kRunsAhead));
      std::copy_n(RowOf(run), task_.dim, &before_[(run - begin_) * task_.dim]);
      SumGradients(run, gradient.data());
      MeasureGradient(gradient.data(), sums);
    }
  }

  // Compares the rows with what they were. An id may have one run for each core: its row counts
  // once.
  void After(float* norms, RowSums* sums) const {
    const Id* ids = task_.ids.run_ids;
    for (int64_t run = begin_; run < end_; ++run) {
      if (run > begin_ && ids[run] == ids[run - 1]) {
        norms[run] = norms[run - 1];
        continue;
      }
      norms[run] = MeasureRow(RowOf(run), &before_[(run - begin_) * task_.dim], sums);
    }
  }

 private:
  const float* RowOf(int64_t run) const {
    return task_.table + static_cast<int64_t>(task_.ids.run_ids[run]) * task_.dim;
  }

  void Prefetch(const float* row) const {
    for (int64_t i = 0; i < task_.dim; i += kFloatsPerLine) __builtin_prefetch(row + i);
  }

  void SumGradients(int64_t run, float* sum) const {
    const UpdateIds<Id>& ids = task_.ids;
    std::fill_n(sum, task_.dim, 0.0f);
    for (int32_t i = run == 0 ? 0 : ids.run_ends[run - 1]; i < ids.run_ends[run]; ++i) {
      const int64_t row = ids.run_rows[i];
      const float scale = ids.scales == nullptr ? 1.0f : ids.scales[row];
      const float factor = ids.run_weights == nullptr ? scale : scale * ids.run_weights[i];
      const float* gradient = task_.gradients + row * task_.dim;
      for (int64_t k = 0; k < task_.dim; ++k) sum[k] += gradient[k] * factor;
    }
  }

  void MeasureGradient(const float* gradient, RowSums* sums) const {
    const RowOptimizer& optimizer = task_.optimizer;
    Squares squares, clipped_squares, differences;
    ForEachVector([&](auto zero, int64_t k) {
      auto value = zero;
      Load(gradient + k, &value);
      value = value * optimizer.multiplier;
      const auto clipped = Clip(value, zero + optimizer.gradient_min, zero + optimizer.gradient_max);
      squares.Add(value);
      clipped_squares.Add(clipped);
      differences.Add(clipped != value ? zero + 1.0f : zero);
    });
    sums->squared_gradients += squares.total();
    sums->squared_clipped_gradients += clipped_squares.total();
    sums->clipped_rows += differences.total() > 0;
  }

  float MeasureRow(const float* after, const float* before, RowSums* sums) const {
    Squares squares, squares_before, updates;
    ForEachVector([&](auto zero, int64_t k) {
      auto now = zero, then = zero;
      Load(after + k, &now);
      Load(before + k, &then);
      squares.Add(now);
      squares_before.Add(then);
      updates.Add(now - then);
    });
    sums->squared_rows += squares_before.total();
    sums->squared_updates += updates.total();
    return std::sqrt(squares.total());
  }

  // Calls work(zeros, column) for vectors of columns, then for single ones.
  template <class Work>
  void ForEachVector(const Work& work) const {
    int64_t k = 0;
    for (; k + kLanes <= task_.dim; k += kLanes) work(Vector{}, k);
    for (; k < task_.dim; ++k) work(0.0f, k);
  }

  const Update<Id> task_;
  const int64_t begin_, end_;
  std::vector<float> before_;
};

}  // namespace

template <class Id>
void UpdateAndMeasure(const Update<Id>& task, const Range& range, float* norms, RowSums* sums) {
  const RowKernels& kernels = BestRowKernels();
  if (range.begin_run == range.end_run) return kernels(task, range);
  const Id* ids = task.ids.run_ids;
  for (int64_t begin = range.begin_run, end; begin < range.end_run; begin = end) {
    end = NextId(task.ids, std::min(begin + kRunsOfBlock, range.end_run));
    MeasuredBlock<Id> block(task, begin, end);
    block.Before(sums);
    // Rows between those of two blocks are in the range of the first one.
    kernels(task, {begin, end, begin == range.begin_run ? range.begin_row : int64_t{ids[begin]},
                   end == range.end_run ? range.end_row : int64_t{ids[end]}});
    block.After(norms, sums);
  }
}

template void UpdateAndMeasure(const Update<int32_t>&, const Range&, float*, RowSums*);
template void UpdateAndMeasure(const Update<int64_t>&, const Range&, float*, RowSums*);

}  // namespace tpu_estimator_embedding
