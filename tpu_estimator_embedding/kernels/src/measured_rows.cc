// SPDX-License-Identifier: Apache-2.0
#include "measured_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "update_shares.h"

namespace tpu_estimator_embedding {
namespace {

// Few enough rows to stay in the cache until they are compared, with slots and gradients.
constexpr int64_t kRunsOfBlock = 64;
constexpr int64_t kRunsAhead = 16;
constexpr int64_t kFloatsPerLine = 16;

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
    double squares = 0, clipped_squares = 0;
    bool is_clipped = false;
    for (int64_t k = 0; k < task_.dim; ++k) {
      const float value = gradient[k] * optimizer.multiplier;
      float clipped = value < optimizer.gradient_min ? optimizer.gradient_min : value;
      clipped = clipped > optimizer.gradient_max ? optimizer.gradient_max : clipped;
      is_clipped |= clipped < value || clipped > value;
      squares += static_cast<double>(value) * value;
      clipped_squares += static_cast<double>(clipped) * clipped;
    }
    sums->squared_gradients += squares;
    sums->squared_clipped_gradients += clipped_squares;
    sums->clipped_rows += is_clipped;
  }

  float MeasureRow(const float* after, const float* before, RowSums* sums) const {
    double squares = 0, squares_before = 0, squared_updates = 0;
    for (int64_t k = 0; k < task_.dim; ++k) {
      const double difference = static_cast<double>(after[k]) - before[k];
      squares += static_cast<double>(after[k]) * after[k];
      squares_before += static_cast<double>(before[k]) * before[k];
      squared_updates += difference * difference;
    }
    sums->squared_rows += squares_before;
    sums->squared_updates += squared_updates;
    return static_cast<float>(std::sqrt(squares));
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
