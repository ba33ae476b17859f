// SPDX-License-Identifier: Apache-2.0
// The optimizers of a host's tables, as attributes of the update op.
#ifndef TPU_ESTIMATOR_EMBEDDING_OPTIMIZER_ATTRIBUTES_H_
#define TPU_ESTIMATOR_EMBEDDING_OPTIMIZER_ATTRIBUTES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "row_optimizer.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tpu_estimator_embedding {

struct NamedRule {
  Rule rule;
  int num_slots;
};

inline const std::map<std::string, NamedRule>& RulesByName() {
  static const auto& rules = *new std::map<std::string, NamedRule>{
      {"SGD", {Rule::kSgd, 0}},
      {"Adagrad", {Rule::kAdagrad, 1}},
      {"ProximalAdagrad", {Rule::kProximalAdagrad, 1}},
      {"AdagradMomentum", {Rule::kAdagradMomentum, 2}},
      {"Momentum", {Rule::kMomentum, 1}},
      {"RMSProp", {Rule::kRmsProp, 2}},
      {"Adam", {Rule::kAdam, 2}},
      {"FTRL", {Rule::kFtrl, 2}},
      {"ProximalYogi", {Rule::kProximalYogi, 2}},
      {"FrequencyEstimator", {Rule::kFrequencyEstimator, 1}},
  };
  return rules;
}

class OptimizerAttributes {
 public:
  absl::Status Read(tensorflow::OpKernelConstruction* construction) {
    std::vector<std::string> names;
    std::vector<float> hyperparameters, limits;
    std::vector<bool> move_untouched_rows;
    TF_RETURN_IF_ERROR(construction->GetAttr("rules", &names));
    TF_RETURN_IF_ERROR(construction->GetAttr("hyperparameters", &hyperparameters));
    TF_RETURN_IF_ERROR(construction->GetAttr("limits", &limits));
    TF_RETURN_IF_ERROR(construction->GetAttr("decay_factors", &decay_factors_));
    TF_RETURN_IF_ERROR(construction->GetAttr("multiply_decay_by_learning_rate",
                                             &multiply_decay_by_learning_rate_));
    TF_RETURN_IF_ERROR(construction->GetAttr("move_untouched_rows", &move_untouched_rows));
    const size_t count = names.size();
    if (hyperparameters.size() != count * kMaxHyperparameters || limits.size() != 4 * count ||
        decay_factors_.size() != count || multiply_decay_by_learning_rate_.size() != count ||
        move_untouched_rows.size() != count) {
      return absl::InvalidArgumentError("Attributes must be given for every table.");
    }
    for (size_t i = 0; i < count; ++i) {
      const auto named = RulesByName().find(names[i]);
      if (named == RulesByName().end()) {
        return absl::InvalidArgumentError(absl::StrCat("No rule is named ", names[i], "."));
      }
      RowOptimizer optimizer;
      optimizer.rule = named->second.rule;
      std::copy_n(&hyperparameters[i * kMaxHyperparameters], kMaxHyperparameters,
                  optimizer.hyperparameters);
      optimizer.moves_untouched_rows = move_untouched_rows[i];
      optimizer.gradient_min = limits[4 * i];
      optimizer.gradient_max = limits[4 * i + 1];
      optimizer.weight_min = limits[4 * i + 2];
      optimizer.weight_max = limits[4 * i + 3];
      optimizers_.push_back(optimizer);
      num_slots_.push_back(named->second.num_slots);
    }
    return absl::OkStatus();
  }

  int num_slots(int table) const { return num_slots_[table]; }

  // Returns the optimizers with what the step gives them.
  absl::Status ForStep(tensorflow::OpKernelContext* context,
                       std::vector<RowOptimizer>* optimizers) const {
    const tensorflow::Tensor *learning_rates, *multiplier, *step;
    TF_RETURN_IF_ERROR(context->input("learning_rates", &learning_rates));
    TF_RETURN_IF_ERROR(context->input("multiplier", &multiplier));
    TF_RETURN_IF_ERROR(context->input("step", &step));
    const int64_t count = optimizers_.size();
    if (learning_rates->shape() != tensorflow::TensorShape({count}) ||
        multiplier->NumElements() != 1 || step->NumElements() != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`learning_rates` must be one for each table, multiplier and step scalars."));
    }
    *optimizers = optimizers_;
    for (int64_t i = 0; i < count; ++i) {
      RowOptimizer& optimizer = (*optimizers)[i];
      optimizer.learning_rate = learning_rates->flat<float>()(i);
      optimizer.multiplier = multiplier->flat<float>()(0);
      optimizer.step = step->flat<float>()(0);
      optimizer.decay = decay_factors_[i];
      if (multiply_decay_by_learning_rate_[i]) optimizer.decay *= optimizer.learning_rate;
    }
    return absl::OkStatus();
  }

 private:
  std::vector<RowOptimizer> optimizers_;
  std::vector<int> num_slots_;
  std::vector<float> decay_factors_;
  std::vector<bool> multiply_decay_by_learning_rate_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_OPTIMIZER_ATTRIBUTES_H_
