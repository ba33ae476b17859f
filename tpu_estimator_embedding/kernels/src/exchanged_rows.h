// SPDX-License-Identifier: Apache-2.0
// The values that a worker exchanges with the host of a table: sums of rows, or distinct rows.
#ifndef TPU_ESTIMATOR_EMBEDDING_EXCHANGED_ROWS_H_
#define TPU_ESTIMATOR_EMBEDDING_EXCHANGED_ROWS_H_

#include <algorithm>
#include <cstdint>

namespace tpu_estimator_embedding {

// One table on one host, exchanged as sums: one for every row of activations with an id there.
struct ExchangedSums {
  int64_t num_rows = 0;
  const int32_t* rows = nullptr;    // row of the table's activations, increasing
  const float* values = nullptr;    // [num_rows, dim]
};

// Adds the sums of a host to the rows of the activations from `begin` to `end`. Returns false if a
// row that it reads is not in order; then it stops.
bool AddSums(const ExchangedSums& host, int64_t dim, int64_t begin, int64_t end,
             float* activations);

// Copies `gradients[rows[i]]`, for i from `begin` to `end`, to row i of `values`. Returns false if
// a row is not below `num_rows`; then it stops.
bool GatherRows(const float* gradients, int64_t num_rows, int64_t dim, const int32_t* rows,
                int64_t begin, int64_t end, float* values);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_EXCHANGED_ROWS_H_
