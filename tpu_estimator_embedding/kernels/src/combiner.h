// SPDX-License-Identifier: Apache-2.0
// The factor of the sum of a row of activations.
#ifndef TPU_ESTIMATOR_EMBEDDING_COMBINER_H_
#define TPU_ESTIMATOR_EMBEDDING_COMBINER_H_

#include <cmath>
#include <cstdint>

namespace tpu_estimator_embedding {

enum class Combiner { kSum, kMean, kSqrtn };

// The sums of the weights of a row's ids.
struct RowWeights {
  float sum = 0, squares = 0;

  // For ids without weights: every weight is 1.
  static RowWeights OfCount(int64_t count) {
    return {static_cast<float>(count), static_cast<float>(count)};
  }
  void Add(float weight) {
    sum += weight;
    squares += weight * weight;
  }
};

// Returns one over the denominator of the combiner, 0 for a denominator of 0.
inline float Scale(Combiner combiner, const RowWeights& weights) {
  if (combiner == Combiner::kSum) return 1.0f;
  const float denominator = combiner == Combiner::kMean ? weights.sum : std::sqrt(weights.squares);
  return denominator == 0 ? 0.0f : 1.0f / denominator;
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_COMBINER_H_
