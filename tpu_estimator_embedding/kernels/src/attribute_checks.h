// SPDX-License-Identifier: Apache-2.0
// Checks of an op's inputs and attributes: they come from a graph that anybody can edit.
#ifndef TPU_ESTIMATOR_EMBEDDING_ATTRIBUTE_CHECKS_H_
#define TPU_ESTIMATOR_EMBEDDING_ATTRIBUTE_CHECKS_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tpu_estimator_embedding {

constexpr int64_t kMostColumns = std::numeric_limits<int32_t>::max();  // of a table

// Returns an error unless `name` has `wanted` elements, one for each thing.
inline absl::Status CheckCount(const std::string& name, const std::string& thing, int64_t wanted,
                               int64_t got) {
  if (got == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("`", name, "` must be one for each ", thing, ", ", wanted, ", got ", got, "."));
}

inline absl::Status CheckRange(const std::string& name, int64_t value, int64_t least,
                               int64_t most) {
  if (least <= value && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("`", name, "` must be in [", least, ", ", most,
                                                 "], got ", value, "."));
}

template <class T>
absl::Status CheckAll(const std::string& name, const std::vector<T>& values, int64_t least,
                      int64_t most) {
  for (const T value : values) TF_RETURN_IF_ERROR(CheckRange(name, value, least, most));
  return absl::OkStatus();
}

inline absl::Status CheckDims(const std::string& name, const tensorflow::Tensor& tensor, int least,
                              int most) {
  return CheckRange(absl::StrCat("rank of ", name), tensor.dims(), least, most);
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_ATTRIBUTE_CHECKS_H_
