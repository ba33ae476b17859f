// SPDX-License-Identifier: Apache-2.0
// What happens to a row in one step, as values.
#ifndef TPU_ESTIMATOR_EMBEDDING_ROW_OPTIMIZER_H_
#define TPU_ESTIMATOR_EMBEDDING_ROW_OPTIMIZER_H_

namespace tpu_estimator_embedding {

constexpr int kMaxSlots = 2;
constexpr int kMaxHyperparameters = 8;

// A rule with the settings that every rule shares, for one step. The summed gradient is
// multiplied and clipped, the row decays, the rule moves both, the row is clipped.
struct RowOptimizer {
  int rule = 0;  // its place in `RuleRecords()`
  float hyperparameters[kMaxHyperparameters] = {};  // those of its record, in that order
  bool moves_untouched_rows = false;  // as a gradient of 0 does, without clip or decay
  float learning_rate = 0;
  float step = 0;
  float multiplier = 1;
  float decay = 0;  // share of the row that is taken off
  float gradient_min = 0, gradient_max = 0;
  float weight_min = 0, weight_max = 0;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_ROW_OPTIMIZER_H_
