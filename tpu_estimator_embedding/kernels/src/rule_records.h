// SPDX-License-Identifier: Apache-2.0
// The properties of the structs of rules.h.
#ifndef TPU_ESTIMATOR_EMBEDDING_RULE_RECORDS_H_
#define TPU_ESTIMATOR_EMBEDDING_RULE_RECORDS_H_

#include <string>
#include <vector>

namespace tpu_estimator_embedding {

struct RuleRecord {
  std::string name;  // of the class in Python
  std::vector<std::string> slots;
  std::vector<std::string> hyperparameters;  // in the order of its values
  bool may_move_untouched;
};

const std::vector<RuleRecord>& RuleRecords();

// Returns the index of the rule of that name, -1 if there is none.
int FindRule(const std::string& name);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_RULE_RECORDS_H_
