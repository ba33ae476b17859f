// SPDX-License-Identifier: Apache-2.0
// The rows that a worker exchanges with the hosts of a table: those that have an id there.
#ifndef TPU_ESTIMATOR_EMBEDDING_EXCHANGED_ROWS_H_
#define TPU_ESTIMATOR_EMBEDDING_EXCHANGED_ROWS_H_

#include <cstdint>
#include <vector>

namespace tpu_estimator_embedding {

// The rows of one table on one host.
struct ExchangedRows {
  int64_t num_rows = 0;
  const int32_t* rows = nullptr;    // row of the table's activations, increasing
  const float* values = nullptr;    // [num_rows, dim]
};

// Sets the rows of the activations from `begin` to `end` to the sums over the hosts, in the order
// of the hosts. Returns false if a row that it reads is not in order; then it stops.
bool CombineRows(const std::vector<ExchangedRows>& hosts, int64_t dim, int64_t begin, int64_t end,
                 float* activations);

// Copies `gradients[rows[i]]`, for i from `begin` to `end`, to row i of `values`. Returns false if
// a row is not below `num_rows`; then it stops.
bool GatherRows(const float* gradients, int64_t num_rows, int64_t dim, const int32_t* rows,
                int64_t begin, int64_t end, float* values);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_EXCHANGED_ROWS_H_
