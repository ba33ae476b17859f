// SPDX-License-Identifier: Apache-2.0
#include "exchanged_rows.h"

namespace tpu_estimator_embedding {

bool AddSums(const ExchangedSums& host, int64_t dim, int64_t begin, int64_t end,
             float* activations) {
  const int32_t* const last = host.rows + host.num_rows;
  for (const int32_t* row = std::lower_bound(host.rows, last, begin); row < last && *row < end;
       ++row) {
    if (*row < begin) return false;
    const float* from = host.values + (row - host.rows) * dim;
    float* __restrict__ to = activations + *row * dim;
    for (int64_t column = 0; column < dim; ++column) to[column] += from[column];
  }
  return true;
}

bool GatherRows(const float* gradients, int64_t num_rows, int64_t dim, const int32_t* rows,
                int64_t begin, int64_t end, float* values) {
  for (int64_t i = begin; i < end; ++i) {
    if (rows[i] < 0 || rows[i] >= num_rows) return false;
    std::copy_n(gradients + rows[i] * dim, dim, values + i * dim);
  }
  return true;
}

}  // namespace tpu_estimator_embedding
