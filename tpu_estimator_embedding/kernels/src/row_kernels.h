// SPDX-License-Identifier: Apache-2.0
// The arithmetic on rows of tables, compiled once for each instruction set.
#ifndef TPU_ESTIMATOR_EMBEDDING_ROW_KERNELS_H_
#define TPU_ESTIMATOR_EMBEDDING_ROW_KERNELS_H_

#include <cstdint>
#include <vector>

#include "row_optimizer.h"
#include "table_ids.h"

namespace tpu_estimator_embedding {

// Looks up rows of activations: row r is scales[r] * sum of weights[i] * table[ids[i]].
template <class Id>
struct Lookup {
  LookupIds<Id> ids;
  int64_t dim = 0;
  const float* table = nullptr;
  float* activations = nullptr;  // [ids.num_rows, dim]
  int64_t stride = 0;            // floats from one row of activations to the next
};

// Updates rows of a table from the gradient of its activations.
template <class Id>
struct Update {
  UpdateIds<Id> ids;
  int64_t dim = 0;
  float* table = nullptr;
  float* slots[kMaxSlots] = {};
  const float* gradients = nullptr;  // [ids.num_rows, dim]
  RowOptimizer optimizer;
  int64_t gradient_stride = 0;  // floats from one row of gradients to the next
};

// A share of an update: its runs, and its rows of the table if untouched ones move too.
struct Range {
  int64_t begin_run, end_run;
  int64_t begin_row, end_row;
};

// Sums over the rows that a step looks up. A gradient is the sum for a row, after the multiplier;
// untouched rows that move are not measured.
struct RowSums {
  double squared_gradients = 0;
  double squared_clipped_gradients = 0;
  double clipped_rows = 0;     // rows with a clipped gradient value
  double squared_updates = 0;  // of the changes of the rows
  double squared_rows = 0;     // before the update

  void Add(const RowSums& other) {
    squared_gradients += other.squared_gradients;
    squared_clipped_gradients += other.squared_clipped_gradients;
    clipped_rows += other.clipped_rows;
    squared_updates += other.squared_updates;
    squared_rows += other.squared_rows;
  }
};

struct RowKernels {
  const char* level;
  void (*lookup_32)(const Lookup<int32_t>&, int64_t begin_row, int64_t end_row);
  void (*lookup_64)(const Lookup<int64_t>&, int64_t begin_row, int64_t end_row);
  void (*update_32)(const Update<int32_t>&, const Range&);
  void (*update_64)(const Update<int64_t>&, const Range&);
  // Update, and measure: see measure_rows.h.
  void (*measure_32)(const Update<int32_t>&, const Range&, float* norms, RowSums* sums);
  void (*measure_64)(const Update<int64_t>&, const Range&, float* norms, RowSums* sums);

  void operator()(const Lookup<int32_t>& task, int64_t begin, int64_t end) const {
    lookup_32(task, begin, end);
  }
  void operator()(const Lookup<int64_t>& task, int64_t begin, int64_t end) const {
    lookup_64(task, begin, end);
  }
  void operator()(const Update<int32_t>& task, const Range& range) const { update_32(task, range); }
  void operator()(const Update<int64_t>& task, const Range& range) const { update_64(task, range); }
  void operator()(const Update<int32_t>& task, const Range& range, float* norms,
                  RowSums* sums) const {
    measure_32(task, range, norms, sums);
  }
  void operator()(const Update<int64_t>& task, const Range& range, float* norms,
                  RowSums* sums) const {
    measure_64(task, range, norms, sums);
  }
};

extern const RowKernels kBaselineKernels;
extern const RowKernels kAvx2Kernels;
extern const RowKernels kAvx512Kernels;

// The kernels of the instruction sets that this machine has, the best one last.
std::vector<const RowKernels*> AvailableRowKernels();

// The kernels in use: of the best instruction set, or of the one requested.
const RowKernels& BestRowKernels();

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_ROW_KERNELS_H_
