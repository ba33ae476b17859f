// SPDX-License-Identifier: Apache-2.0
#include "parse_block.h"

#include <algorithm>

#include "example_entries.h"
#include "key_lookup.h"

namespace tpu_estimator_embedding {
namespace {

class BlockParser {
 public:
  BlockParser(const std::vector<ExampleFeature>& features,
              const std::vector<std::string_view>& records)
      : features_(features),
        records_(records),
        lookup_(features),
        last_example_(features.size(), -1) {}

  ParsedBlock Parse(int64_t first, int64_t end) {
    block_.first = first;
    block_.num_examples = end - first;
    block_.lists.resize(block_.num_examples * features_.size());
    block_.sizes.resize(features_.size());
    block_.longest.resize(features_.size());
    lists_ = block_.lists.data();
    for (example_ = first; example_ < end; ++example_) {
      block_.is_valid = ParseExample();
      if (!block_.is_valid) break;
      lists_ += features_.size();
    }
    return std::move(block_);
  }

 private:
  bool ParseExample() {
    entries_.clear();
    if (!ReadEntries(records_[example_], &entries_)) return false;
    for (size_t place = 0; place < entries_.size(); ++place) {
      // The last entry of a key is valid.
      const ExampleEntry& entry = entries_[entries_.size() - 1 - place];
      const int feature = lookup_.Find(place, entry.key);
      if (feature != KeyLookup::kUnknown && !Take(feature, entry.value)) return false;
    }
    return EndExample();
  }

  bool Take(int i, std::string_view value) {
    const ExampleFeature& feature = features_[i];
    const auto type = static_cast<ValueType>(value.empty() ? 0 : value.front());
    if (!value.empty() && type != ValueType::kBytes && type != ValueType::kFloat &&
        type != ValueType::kInt64) {
      return false;
    }
    if (feature.is_dense && value.empty()) return true;  // as if it were not there
    if (last_example_[i] == example_) return true;
    last_example_[i] = example_;
    if (value.empty()) return true;
    ValueList* list = &lists_[i];
    if (type != feature.type || !Find(type, value.substr(1), list)) return false;
    if (feature.is_dense && list->count != feature.num_values) return false;
    block_.sizes[i] += list->count;
    block_.longest[i] = std::max<int64_t>(block_.longest[i], list->count);
    return true;
  }

  bool Find(ValueType type, std::string_view serialized, ValueList* list) const {
    const std::string_view record = records_[example_];
    switch (type) {
      case ValueType::kBytes:
        return FindStrings(serialized, list);
      case ValueType::kFloat:
        return FindFloats(serialized, list);
      default:
        return FindInt64s(serialized, record.data() + record.size(), list);
    }
  }

  // Whether the example has all features without a default.
  bool EndExample() {
    for (size_t i = 0; i < features_.size(); ++i) {
      const ExampleFeature& feature = features_[i];
      if (feature.is_dense && feature.is_required && last_example_[i] != example_) return false;
    }
    return true;
  }

  const std::vector<ExampleFeature>& features_;
  const std::vector<std::string_view>& records_;
  KeyLookup lookup_;
  std::vector<int64_t> last_example_;  // that had the feature
  std::vector<ExampleEntry> entries_;
  ParsedBlock block_;
  ValueList* lists_ = nullptr;  // of this example
  int64_t example_ = 0;
};

}  // namespace

ParsedBlock ParseBlock(const std::vector<ExampleFeature>& features,
                       const std::vector<std::string_view>& records, int64_t first, int64_t end) {
  return BlockParser(features, records).Parse(first, end);
}

}  // namespace tpu_estimator_embedding
