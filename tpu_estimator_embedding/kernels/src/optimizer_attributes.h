// SPDX-License-Identifier: Apache-2.0
// The optimizers of a host's tables, as attributes of the update op.
#ifndef TPU_ESTIMATOR_EMBEDDING_OPTIMIZER_ATTRIBUTES_H_
#define TPU_ESTIMATOR_EMBEDDING_OPTIMIZER_ATTRIBUTES_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attribute_checks.h"
#include "row_optimizer.h"
#include "rule_records.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tpu_estimator_embedding {

class OptimizerAttributes {
 public:
  absl::Status Read(tensorflow::OpKernelConstruction* construction, int64_t num_tables) {
    TF_RETURN_IF_ERROR(ReadRules(construction, num_tables));
    TF_RETURN_IF_ERROR(ReadHyperparameters(construction));
    TF_RETURN_IF_ERROR(CheckSlots(construction));
    TF_RETURN_IF_ERROR(ReadLimits(construction));
    TF_RETURN_IF_ERROR(construction->GetAttr("decay_factors", &decay_factors_));
    TF_RETURN_IF_ERROR(construction->GetAttr("multiply_decay_by_learning_rate",
                                             &multiply_decay_by_learning_rate_));
    TF_RETURN_IF_ERROR(CheckCount("decay_factors", "table", num_tables, decay_factors_.size()));
    return CheckCount("multiply_decay_by_learning_rate", "table", num_tables,
                      multiply_decay_by_learning_rate_.size());
  }

  int num_slots(int table) const { return RecordOf(table).slots.size(); }

  // Returns the optimizers with the inputs of the step.
  absl::Status ForStep(tensorflow::OpKernelContext* context,
                       std::vector<RowOptimizer>* optimizers) const {
    const tensorflow::Tensor *learning_rates, *multipliers, *step;
    TF_RETURN_IF_ERROR(context->input("learning_rates", &learning_rates));
    TF_RETURN_IF_ERROR(context->input("multipliers", &multipliers));
    TF_RETURN_IF_ERROR(context->input("step", &step));
    const int64_t count = optimizers_.size();
    const tensorflow::TensorShape one_each({count});
    if (learning_rates->shape() != one_each || multipliers->shape() != one_each ||
        step->NumElements() != 1) {
      return absl::InvalidArgumentError(
          "`learning_rates` and `multipliers` must be one for each table, `step` a scalar.");
    }
    *optimizers = optimizers_;
    for (int64_t i = 0; i < count; ++i) {
      RowOptimizer& optimizer = (*optimizers)[i];
      optimizer.learning_rate = learning_rates->flat<float>()(i);
      optimizer.multiplier = multipliers->flat<float>()(i);
      optimizer.step = step->flat<float>()(0);
      optimizer.decay = decay_factors_[i];
      if (multiply_decay_by_learning_rate_[i]) optimizer.decay *= optimizer.learning_rate;
    }
    return absl::OkStatus();
  }

 private:
  using Names = std::vector<std::string>;

  const RuleRecord& RecordOf(int table) const { return RuleRecords()[optimizers_[table].rule]; }

  absl::Status ReadRules(tensorflow::OpKernelConstruction* construction, int64_t num_tables) {
    Names names;
    std::vector<bool> move_untouched_rows;
    TF_RETURN_IF_ERROR(construction->GetAttr("rules", &names));
    TF_RETURN_IF_ERROR(construction->GetAttr("move_untouched_rows", &move_untouched_rows));
    TF_RETURN_IF_ERROR(CheckCount("rules", "table", num_tables, names.size()));
    TF_RETURN_IF_ERROR(
        CheckCount("move_untouched_rows", "table", num_tables, move_untouched_rows.size()));
    for (size_t i = 0; i < names.size(); ++i) {
      RowOptimizer optimizer;
      optimizer.rule = FindRule(names[i]);
      if (optimizer.rule < 0) {
        return absl::InvalidArgumentError(absl::StrCat("No rule is named ", names[i], "."));
      }
      optimizer.moves_untouched_rows = move_untouched_rows[i];
      optimizers_.push_back(optimizer);
      if (move_untouched_rows[i] && !RecordOf(i).may_move_untouched) {
        return absl::InvalidArgumentError(
            absl::StrCat("`move_untouched_rows` must be false for ", names[i], "."));
      }
    }
    return absl::OkStatus();
  }

  // Values have the names that they have in Python, and the order of the C++ struct.
  absl::Status ReadHyperparameters(tensorflow::OpKernelConstruction* construction) {
    Names names;
    std::vector<float> values;
    TF_RETURN_IF_ERROR(construction->GetAttr("hyperparameter_names", &names));
    TF_RETURN_IF_ERROR(construction->GetAttr("hyperparameters", &values));
    TF_RETURN_IF_ERROR(CheckNames("hyperparameter_names", &RuleRecord::hyperparameters, names));
    TF_RETURN_IF_ERROR(CheckCount("hyperparameters", "name", names.size(), values.size()));
    auto next = values.begin();
    for (size_t i = 0; i < optimizers_.size(); ++i) {
      const int64_t count = RecordOf(i).hyperparameters.size();
      std::copy_n(next, count, optimizers_[i].hyperparameters);
      next += count;
    }
    return absl::OkStatus();
  }

  absl::Status CheckSlots(tensorflow::OpKernelConstruction* construction) {
    Names names;
    int64_t num_slots;
    TF_RETURN_IF_ERROR(construction->GetAttr("slot_names", &names));
    TF_RETURN_IF_ERROR(construction->GetAttr("num_slots", &num_slots));
    TF_RETURN_IF_ERROR(CheckNames("slot_names", &RuleRecord::slots, names));
    return CheckCount("slots", "name", names.size(), num_slots);
  }

  absl::Status CheckNames(const std::string& attribute, Names RuleRecord::*of_rule,
                          const Names& got) const {
    Names wanted;
    for (size_t i = 0; i < optimizers_.size(); ++i) {
      const Names& names = RecordOf(i).*of_rule;
      wanted.insert(wanted.end(), names.begin(), names.end());
    }
    if (got == wanted) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("`", attribute, "` must be [",
                                                   absl::StrJoin(wanted, ", "), "], got [",
                                                   absl::StrJoin(got, ", "), "]."));
  }

  absl::Status ReadLimits(tensorflow::OpKernelConstruction* construction) {
    constexpr int kLimits = 4;
    std::vector<float> limits;
    TF_RETURN_IF_ERROR(construction->GetAttr("limits", &limits));
    TF_RETURN_IF_ERROR(
        CheckCount("limits", "side of each table", kLimits * optimizers_.size(), limits.size()));
    for (size_t i = 0; i < optimizers_.size(); ++i) {
      const float* of_table = &limits[kLimits * i];
      optimizers_[i].gradient_min = of_table[0];
      optimizers_[i].gradient_max = of_table[1];
      optimizers_[i].weight_min = of_table[2];
      optimizers_[i].weight_max = of_table[3];
    }
    return absl::OkStatus();
  }

  std::vector<RowOptimizer> optimizers_;
  std::vector<float> decay_factors_;
  std::vector<bool> multiply_decay_by_learning_rate_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_OPTIMIZER_ATTRIBUTES_H_
