// SPDX-License-Identifier: Apache-2.0
#include "rule_records.h"

#include <cstddef>

#include "rules.h"

namespace tpu_estimator_embedding {
namespace {

// "momenta, velocities" -> the names in it.
std::vector<std::string> Split(const std::string& names) {
  std::vector<std::string> split;
  const std::string separator = ", ";
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(separator, begin), names.size());
    split.push_back(names.substr(begin, end - begin));
    begin = end + separator.size();
  }
  return split;
}

std::string Join(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : " ") + name;
  return joined;
}

// One line for each rule: "name|slots|hyperparameters|whether it may move untouched rows".
std::string Describe() {
  std::string lines;
  for (const RuleRecord& record : RuleRecords()) {
    lines += record.name + "|" + Join(record.slots) + "|" + Join(record.hyperparameters) + "|" +
             (record.may_move_untouched ? "1" : "0") + "\n";
  }
  return lines;
}

}  // namespace

const std::vector<RuleRecord>& RuleRecords() {
#define TPU_EMBEDDING_RECORD(Rule) \
  {#Rule, Split(Rule::kSlots), Split(Rule::kHyperparameters), Rule::kMayMoveUntouched},
  static const auto& records =
      *new std::vector<RuleRecord>{TPU_EMBEDDING_RULES(TPU_EMBEDDING_RECORD)};
#undef TPU_EMBEDDING_RECORD
  return records;
}

int FindRule(const std::string& name) {
  const std::vector<RuleRecord>& records = RuleRecords();
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace tpu_estimator_embedding

extern "C" const char* tpu_embedding_rules() {
  static const std::string& lines = *new std::string(tpu_estimator_embedding::Describe());
  return lines.c_str();
}
