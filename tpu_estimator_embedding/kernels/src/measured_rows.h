// SPDX-License-Identifier: Apache-2.0
// Updates rows of a table and measures what that does to them.
#ifndef TPU_ESTIMATOR_EMBEDDING_MEASURED_ROWS_H_
#define TPU_ESTIMATOR_EMBEDDING_MEASURED_ROWS_H_

#include "row_kernels.h"

namespace tpu_estimator_embedding {

// Sums over the rows that a step looks up. Gradients are those that were summed for a row and
// multiplied; untouched rows that move are not measured.
struct RowSums {
  double squared_gradients = 0;
  double squared_clipped_gradients = 0;
  double clipped_rows = 0;     // with a gradient of which any value was clipped
  double squared_updates = 0;  // of what was added to the rows
  double squared_rows = 0;     // before the update

  void Add(const RowSums& other) {
    squared_gradients += other.squared_gradients;
    squared_clipped_gradients += other.squared_clipped_gradients;
    clipped_rows += other.clipped_rows;
    squared_updates += other.squared_updates;
    squared_rows += other.squared_rows;
  }
};

// Does what `BestRowKernels()` does with the range, bit for bit, and adds to the sums. Writes the
// Euclidean norm of the row of each run, after all updates of the row, to `norms[run]`.
template <class Id>
void UpdateAndMeasure(const Update<Id>& task, const Range& range, float* norms, RowSums* sums);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_MEASURED_ROWS_H_
