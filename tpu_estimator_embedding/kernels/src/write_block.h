// SPDX-License-Identifier: Apache-2.0
// Writes the values of a parsed block where the tensors of a batch have them.
#ifndef TPU_ESTIMATOR_EMBEDDING_WRITE_BLOCK_H_
#define TPU_ESTIMATOR_EMBEDDING_WRITE_BLOCK_H_

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "example_feature.h"
#include "parse_block.h"

namespace tpu_estimator_embedding {

// The tensors of one feature; null are those that it has not.
template <class String>
struct FeatureOutput {
  int64_t* ints = nullptr;
  float* floats = nullptr;
  String* strings = nullptr;
  int64_t* wide_splits = nullptr;  // [batch + 1], of ragged features
  int32_t* splits = nullptr;
  int64_t* indices = nullptr;           // [values, 2], of sparse features
  std::vector<int64_t> first_of_block;  // the number of values before each block
};

// The places of one feature that are written next.
template <class String>
class FeatureWriter {
 public:
  FeatureWriter(const FeatureOutput<String>& output, const ExampleFeature& feature,
                const DefaultValues& defaults, int64_t first_value, int64_t first_example)
      : output_(output),
        feature_(feature),
        defaults_(defaults),
        next_(first_value),
        example_(first_example) {}

  void Write(const ValueList& list, const char* end_of_record) {
    const bool has_default = feature_.is_dense && list.data == nullptr;
    const int64_t count = has_default ? feature_.num_values : list.count;
    if (has_default) {
      WriteDefaults();
    } else if (output_.ints != nullptr) {
      WriteValues(list, end_of_record, output_.ints + next_);
    } else if (output_.floats != nullptr) {
      WriteValues(list, end_of_record, output_.floats + next_);
    } else if (output_.strings != nullptr) {
      WriteValues(list, end_of_record, output_.strings + next_);
    }
    if (output_.indices != nullptr) WriteIndices(count);
    next_ += count;
    ++example_;
    if (output_.wide_splits != nullptr) output_.wide_splits[example_] = next_;
    if (output_.splits != nullptr) output_.splits[example_] = static_cast<int32_t>(next_);
  }

 private:
  void WriteDefaults() const {
    const int64_t count = feature_.num_values;
    if (output_.ints != nullptr) {
      std::copy_n(defaults_.ints, count, output_.ints + next_);
    } else if (output_.floats != nullptr) {
      std::copy_n(defaults_.floats, count, output_.floats + next_);
    } else {
      String* value = output_.strings + next_;
      for (const std::string_view text : defaults_.strings) {
        (value++)->assign(text.data(), text.size());
      }
    }
  }

  void WriteIndices(int64_t count) const {
    int64_t* index = output_.indices + 2 * next_;
    for (int64_t position = 0; position < count; ++position) {
      *index++ = example_;
      *index++ = position;
    }
  }

  const FeatureOutput<String>& output_;
  const ExampleFeature& feature_;
  const DefaultValues& defaults_;
  int64_t next_, example_;
};

// Different blocks may be written at the same time.
template <class String>
void WriteBlock(const std::vector<ExampleFeature>& features,
                const std::vector<DefaultValues>& defaults,
                const std::vector<std::string_view>& records, const ParsedBlock& block,
                int64_t number, const std::vector<FeatureOutput<String>>& outputs) {
  std::vector<FeatureWriter<String>> writers;
  writers.reserve(features.size());
  for (size_t i = 0; i < features.size(); ++i) {
    writers.emplace_back(outputs[i], features[i], defaults[i], outputs[i].first_of_block[number],
                         block.first);
  }
  const ValueList* list = block.lists.data();
  for (int64_t example = 0; example < block.num_examples; ++example) {
    const std::string_view record = records[block.first + example];
    const char* const end_of_record = record.data() + record.size();
    for (FeatureWriter<String>& writer : writers) writer.Write(*list++, end_of_record);
  }
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_WRITE_BLOCK_H_
