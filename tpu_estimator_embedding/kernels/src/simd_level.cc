// SPDX-License-Identifier: Apache-2.0
// The instruction set in use: the best of this machine, or a lesser one by request.
#include <cstdlib>
#include <cstring>

#include "row_kernels.h"

namespace tpu_estimator_embedding {

std::vector<const RowKernels*> AvailableRowKernels() {
  std::vector<const RowKernels*> available = {&kBaselineKernels};
#ifndef TPU_EMBEDDING_BASELINE_ONLY
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  if (has_avx2) available.push_back(&kAvx2Kernels);
  if (has_avx2 && has_avx512) available.push_back(&kAvx512Kernels);
#endif
  return available;
}

namespace {

// The loader compares the result with the request.
const RowKernels& Choose() {
  const char* wanted = std::getenv("TPU_ESTIMATOR_EMBEDDING_SIMD");
  const std::vector<const RowKernels*> available = AvailableRowKernels();
  for (const RowKernels* kernels : available) {
    if (wanted != nullptr && std::strcmp(wanted, kernels->level) == 0) return *kernels;
  }
  return *available.back();
}

}  // namespace

const RowKernels& BestRowKernels() {
  static const RowKernels& best = Choose();
  return best;
}

}  // namespace tpu_estimator_embedding

extern "C" const char* tpu_embedding_simd_level() {
  return tpu_estimator_embedding::BestRowKernels().level;
}
