// SPDX-License-Identifier: Apache-2.0
// What the structs of rules.h say of themselves.
#ifndef TPU_ESTIMATOR_EMBEDDING_RULE_RECORDS_H_
#define TPU_ESTIMATOR_EMBEDDING_RULE_RECORDS_H_

#include <string>
#include <vector>

namespace tpu_estimator_embedding {

struct RuleRecord {
  std::string name;  // of the class in Python
  std::vector<std::string> slots;
  std::vector<std::string> hyperparameters;  // the numbers that it is given, in order
  bool may_move_untouched;
};

const std::vector<RuleRecord>& RuleRecords();

// Returns the place of the rule of that name, -1 if there is none.
int FindRule(const std::string& name);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_RULE_RECORDS_H_
