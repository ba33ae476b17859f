// SPDX-License-Identifier: Apache-2.0
// Finds the feature that a key of an example belongs to.
#ifndef TPU_ESTIMATOR_EMBEDDING_KEY_LOOKUP_H_
#define TPU_ESTIMATOR_EMBEDDING_KEY_LOOKUP_H_

#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "example_feature.h"

namespace tpu_estimator_embedding {

// Most examples have the same keys in the same order, so the key at the same place in the example
// before is compared first.
class KeyLookup {
 public:
  static constexpr int kUnknown = -1;

  explicit KeyLookup(const std::vector<ExampleFeature>& features) {
    for (size_t i = 0; i < features.size(); ++i) features_[features[i].key] = static_cast<int>(i);
  }

  // Returns the feature of the key at `place`, or kUnknown. Keys must stay valid.
  int Find(size_t place, std::string_view key) {
    if (place >= before_.size()) before_.resize(place + 1);
    Found& before = before_[place];
    if (before.key.data() == nullptr || before.key != key) {
      const auto found = features_.find(key);
      before = {key, found == features_.end() ? kUnknown : found->second};
    }
    return before.feature;
  }

 private:
  struct Found {
    std::string_view key;
    int feature = kUnknown;
  };

  std::unordered_map<std::string_view, int> features_;
  std::vector<Found> before_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_KEY_LOOKUP_H_
