// SPDX-License-Identifier: Apache-2.0
// Updates rows of a table and measures the changes, with one instruction set.
#ifndef TPU_ESTIMATOR_EMBEDDING_MEASURE_ROWS_H_
#define TPU_ESTIMATOR_EMBEDDING_MEASURE_ROWS_H_

#include <algorithm>
#include <cmath>
#include <new>

#include "update_rows.h"
#include "update_shares.h"

namespace tpu_estimator_embedding {
namespace {

// Few enough rows to stay in the cache, with slots and gradients, until they are compared.
constexpr int64_t kRunsOfBlock = 64;

inline float Total(float value) { return value; }
inline float Total(Vector values) {
  float sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += values[lane];
  return sum;
}

// Sums over the columns of one gradient: few enough to sum them in float.
struct GradientSums {
  float squares = 0, clipped_squares = 0, clipped = 0;
};

// Measures columns of a summed gradient.
struct MeasureColumns {
  const RowOptimizer& optimizer;
  const float* gradient;
  GradientSums* sums;

  template <class T, int kCount>
  TPU_EMBEDDING_INLINE void Do(int64_t column) const {
    const T low = Fill<T>(optimizer.gradient_min), high = Fill<T>(optimizer.gradient_max);
    T of_all{}, of_clipped{}, of_differences{};
    for (int k = 0; k < kCount; ++k) {
      T value;
      Load(gradient + column + k * Lanes<T>(), &value);
      value = value * optimizer.multiplier;
      const T clipped = Clip(value, low, high);
      of_all = of_all + value * value;
      of_clipped = of_clipped + clipped * clipped;
      of_differences = of_differences + (clipped != value ? Fill<T>(1.0f) : T{});
    }
    sums->squares += Total(of_all);
    sums->clipped_squares += Total(of_clipped);
    sums->clipped += Total(of_differences);
  }
};

// The sum of the squares of one row: few enough to sum them in float.
class Squares {
 public:
  void Add(Vector values) { lanes_ += values * values; }
  void Add(float value) { rest_ += value * value; }
  float total() const {
    return rest_ + Total(lanes_);
  }

 private:
  Vector lanes_ = {};
  float rest_ = 0;
};

// Memory for floats. A std::vector is code of all units, of which the linker keeps any one copy:
// that of this unit may have instructions that other machines lack.
class Floats {
 public:
  explicit Floats(int64_t size)
      : data_(static_cast<float*>(::operator new(size * sizeof(float)))) {}
  ~Floats() { ::operator delete(data_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  float* data() const { return data_; }

 private:
  float* const data_;
};

template <class Id>
class MeasuredBlock {
 public:
  MeasuredBlock(const Update<Id>& task, int64_t begin, int64_t end)
      : task_(task), begin_(begin), end_(end), before_((end - begin) * task.dim) {}

  // Measures the gradients, and keeps the rows.
  void Before(RowSums* sums) {
    MeasureGradients(sums);
    for (int64_t run = begin_; run < end_; ++run) {
      std::copy_n(RowOf(run), task_.dim, RowBefore(run));
    }
  }

  // Compares the rows with their previous values. An id may have one run per core: its row counts
  // once.
  void After(float* norms, RowSums* sums) const {
    const Id* ids = task_.ids.run_ids;
    for (int64_t run = begin_; run < end_; ++run) {
      if (run > begin_ && ids[run] == ids[run - 1]) {
        norms[run] = norms[run - 1];
        continue;
      }
      norms[run] = MeasureRow(RowOf(run), RowBefore(run), sums);
    }
  }

 private:
  const float* RowOf(int64_t run) const {
    return task_.table + static_cast<int64_t>(task_.ids.run_ids[run]) * task_.dim;
  }

  float* RowBefore(int64_t run) const { return before_.data() + (run - begin_) * task_.dim; }

  void MeasureGradients(RowSums* sums) const {
    constexpr int kNoSlots = 0;  // the update prefetches them
    alignas(64) float gradients[kTileFloats];
    GradientSums of_run;
    ForEachTile(task_, {begin_, end_, 0, 0}, [&](const Tile& tile) {
      SumGradients(task_, kNoSlots, tile, gradients);
      const float* gradient = gradients;
      for (int64_t run = tile.begin_run; run < tile.end_run; ++run) {
        ForEachBlock(tile.num_columns, MeasureColumns{task_.optimizer, gradient, &of_run});
        gradient += tile.num_columns;
        if (tile.column + tile.num_columns < task_.dim) continue;  // its next tile has the others
        sums->squared_gradients += of_run.squares;
        sums->squared_clipped_gradients += of_run.clipped_squares;
        sums->clipped_rows += of_run.clipped > 0;
        of_run = {};
      }
    });
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
  const Floats before_;
};

// Does what `UpdateRows` does with the range, bit for bit, and adds to the sums. Writes the
// Euclidean norm of the row of each run, after all updates of the row, to `norms[run]`.
template <class Id>
void MeasureRows(const Update<Id>& task, const Range& range, float* norms, RowSums* sums) {
  if (range.begin_run == range.end_run) return UpdateRows<Id>(task, range);
  const Id* ids = task.ids.run_ids;
  for (int64_t begin = range.begin_run, end; begin < range.end_run; begin = end) {
    end = NextId(task.ids, std::min(begin + kRunsOfBlock, range.end_run));
    MeasuredBlock<Id> block(task, begin, end);
    block.Before(sums);
    // Rows between those of two blocks are in the range of the first one.
    UpdateRows<Id>(task, {begin, end, begin == range.begin_run ? range.begin_row : int64_t{ids[begin]},
                   end == range.end_run ? range.end_row : int64_t{ids[end]}});
    block.After(norms, sums);
  }
}

}  // namespace
}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_MEASURE_ROWS_H_
