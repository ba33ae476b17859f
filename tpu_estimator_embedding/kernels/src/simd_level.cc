// SPDX-License-Identifier: Apache-2.0
// Which instruction set runs: the best of this machine, or a lesser one by request.
#include <cstdlib>
#include <cstring>

#include "row_kernels.h"

namespace tpu_estimator_embedding {
namespace {

const RowKernels& Choose() {
#ifndef TPU_EMBEDDING_BASELINE_ONLY
  const char* wanted = std::getenv("TPU_ESTIMATOR_EMBEDDING_SIMD");
  const bool is_baseline_wanted = wanted != nullptr && std::strcmp(wanted, "baseline") == 0;
  const bool is_avx2_wanted = wanted != nullptr && std::strcmp(wanted, "avx2") == 0;
  if (is_baseline_wanted) return kBaselineKernels;
  __builtin_cpu_init();
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  if (has_avx512 && !is_avx2_wanted) return kAvx512Kernels;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kAvx2Kernels;
#endif
  return kBaselineKernels;
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
