// SPDX-License-Identifier: Apache-2.0
// A feature of `tf.train.Example`s to be parsed.
#ifndef TPU_ESTIMATOR_EMBEDDING_EXAMPLE_FEATURE_H_
#define TPU_ESTIMATOR_EMBEDDING_EXAMPLE_FEATURE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tpu_estimator_embedding {

// The type of values, as the tag of the field of a `tf.train.Feature` that has them.
enum class ValueType : uint8_t { kNone = 0, kBytes = 0x0a, kFloat = 0x12, kInt64 = 0x1a };

// What to parse. A dense feature has the same number of values in every example.
struct ExampleFeature {
  std::string key;
  ValueType type = ValueType::kInt64;
  bool is_dense = false;
  int64_t num_values = 0;  // of a dense feature, as is the rest
  bool is_required = true;
};

// The values of a dense feature in examples without it, of the one type that it has.
struct DefaultValues {
  const int64_t* ints = nullptr;
  const float* floats = nullptr;
  std::vector<std::string_view> strings;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_EXAMPLE_FEATURE_H_
