// SPDX-License-Identifier: Apache-2.0
// The parameters of a row's update in one step.
#ifndef TPU_ESTIMATOR_EMBEDDING_ROW_OPTIMIZER_H_
#define TPU_ESTIMATOR_EMBEDDING_ROW_OPTIMIZER_H_

namespace tpu_estimator_embedding {

constexpr int kMaxSlots = 2;
constexpr int kMaxHyperparameters = 8;

// A rule with the settings that every rule shares, for one step. The summed gradient is
// multiplied and clipped, the row decays, the rule moves both, the row is clipped.
struct RowOptimizer {
  int rule = 0;  // its index in `RuleRecords()`
  float hyperparameters[kMaxHyperparameters] = {};  // those of its record, in that order
  bool moves_untouched_rows = false;  // as with a gradient of 0, without clipping or decay
  float learning_rate = 0;
  float step = 0;
  float multiplier = 1;
  float decay = 0;  // share of the row that is subtracted
  float gradient_min = 0, gradient_max = 0;
  float weight_min = 0, weight_max = 0;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_ROW_OPTIMIZER_H_
