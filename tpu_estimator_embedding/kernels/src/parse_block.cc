// SPDX-License-Identifier: Apache-2.0
#include "parse_block.h"

#include <algorithm>
#include <cstdio>

#include "example_entries.h"
#include "key_lookup.h"

namespace tpu_estimator_embedding {
namespace {

constexpr size_t kMostShownBytes = 200;  // of a record that is no example

const char* TypeName(ValueType type) {
  switch (type) {
    case ValueType::kBytes:
      return "string";
    case ValueType::kFloat:
      return "float";
    default:
      return "int64";
  }
}

// Messages have to be UTF-8, or Python cannot show them.
std::string Escaped(std::string_view bytes) {
  std::string text;
  for (const char character : bytes.substr(0, kMostShownBytes)) {
    if (character >= ' ' && character <= '~') {
      text += character;
    } else {
      char escaped[5];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(character));
      text += escaped;
    }
  }
  return bytes.size() > kMostShownBytes ? text + "..." : text;
}

class BlockParser {
 public:
  BlockParser(const std::vector<ExampleFeature>& features, const ExampleRecords& examples)
      : features_(features),
        examples_(examples),
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
      if (!ParseExample()) break;
      lists_ += features_.size();
    }
    return std::move(block_);
  }

 private:
  bool ParseExample() {
    entries_.clear();
    if (!ReadEntries(examples_.records[example_], &entries_)) {
      return Complain("Could not parse example input, value: '" +
                      Escaped(examples_.records[example_]) + "'. Name: " + Name() + Index());
    }
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
      return Complain("Unsupported datatype. Name: " + Name() + ", Key: " + feature.key + Index());
    }
    if (feature.is_dense && value.empty()) return true;  // as if it were not there
    if (last_example_[i] == example_) return true;
    last_example_[i] = example_;
    if (value.empty()) return true;
    if (type != feature.type) return ComplainOfType(feature, type);
    ValueList* list = &lists_[i];
    if (!Find(type, value.substr(1), list)) return ComplainOfValue(feature);
    if (feature.is_dense && !CheckCount(feature, list->count)) return false;
    block_.sizes[i] += list->count;
    block_.longest[i] = std::max<int64_t>(block_.longest[i], list->count);
    return true;
  }

  bool Find(ValueType type, std::string_view serialized, ValueList* list) const {
    const std::string_view record = examples_.records[example_];
    switch (type) {
      case ValueType::kBytes:
        return FindStrings(serialized, list);
      case ValueType::kFloat:
        return FindFloats(serialized, list);
      default:
        return FindInt64s(serialized, record.data() + record.size(), list);
    }
  }

  bool CheckCount(const ExampleFeature& feature, int64_t count) {
    if (count == feature.num_values) return true;
    // TensorFlow's parser has no room for a string too many.
    if (feature.type == ValueType::kBytes && count > feature.num_values) {
      return ComplainOfValue(feature);
    }
    const char* type = feature.type == ValueType::kBytes ? "bytes" : TypeName(feature.type);
    return ComplainOf(feature, std::string("Number of ") + type +
                                   " values != expected.  Values size: " + std::to_string(count) +
                                   " but output shape: " + feature.shape);
  }

  bool EndExample() {
    for (size_t i = 0; i < features_.size(); ++i) {
      const ExampleFeature& feature = features_[i];
      if (!feature.is_dense || !feature.is_required || last_example_[i] == example_) continue;
      return Complain("Name: " + Name() + ", Feature: " + feature.key + " (data type: " +
                      TypeName(feature.type) + ") is required but could not be found. Index: " +
                      std::to_string(example_));
    }
    return true;
  }

  bool ComplainOfType(const ExampleFeature& feature, ValueType type) {
    const std::string expected = TypeName(feature.type), actual = TypeName(type);
    return ComplainOf(feature, "Data types don't match. " +
                                   (feature.is_dense
                                        ? "Data type: " + actual + " but expected type: " + expected
                                        : "Expected type: " + expected +
                                              ", Actual type: " + actual));
  }

  bool ComplainOfValue(const ExampleFeature& feature) {
    return ComplainOf(feature, "Can't parse serialized Example.");
  }

  bool ComplainOf(const ExampleFeature& feature, const std::string& sentence) {
    return Complain("Name: " + Name() + ", Key: " + feature.key + Index() + ".  " + sentence);
  }

  bool Complain(std::string complaint) {
    block_.complaint = std::move(complaint);
    return false;
  }

  std::string Name() const {
    return examples_.names.empty() ? "<unknown>" : Escaped(examples_.names[example_]);
  }

  std::string Index() const { return ", Index: " + std::to_string(example_); }

  const std::vector<ExampleFeature>& features_;
  const ExampleRecords& examples_;
  KeyLookup lookup_;
  std::vector<int64_t> last_example_;  // that had the feature
  std::vector<ExampleEntry> entries_;
  ParsedBlock block_;
  ValueList* lists_ = nullptr;  // of this example
  int64_t example_ = 0;
};

}  // namespace

ParsedBlock ParseBlock(const std::vector<ExampleFeature>& features, const ExampleRecords& examples,
                       int64_t first, int64_t end) {
  return BlockParser(features, examples).Parse(first, end);
}

}  // namespace tpu_estimator_embedding
