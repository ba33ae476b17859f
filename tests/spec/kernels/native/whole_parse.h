// SPDX-License-Identifier: Apache-2.0
// Parses a batch of records as the op does, into buffers of exactly the size of the values.
#ifndef TPU_ESTIMATOR_EMBEDDING_TESTS_WHOLE_PARSE_H_
#define TPU_ESTIMATOR_EMBEDDING_TESTS_WHOLE_PARSE_H_

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "parse_block.h"
#include "write_block.h"

namespace tpu_estimator_embedding {

struct ParsedBatch {
  bool is_valid = true;
  std::vector<std::vector<int64_t>> ints, splits, indices;  // of every feature
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<std::string>> strings;
};

// Features of every kind and type; 0 values are allowed.
inline std::vector<ExampleFeature> EveryFeature() {
  std::vector<ExampleFeature> features;
  for (const ValueType type : {ValueType::kInt64, ValueType::kFloat, ValueType::kBytes}) {
    for (const bool is_dense : {false, true}) {
      ExampleFeature feature;
      feature.key = std::string(1, static_cast<char>('a' + features.size()));
      feature.type = type;
      feature.is_dense = is_dense;
      feature.num_values = is_dense ? 2 : 0;
      feature.is_required = false;
      features.push_back(feature);
    }
  }
  return features;
}

// `run(count, work)` calls work(i) for every i below `count`.
template <class Run>
ParsedBatch ParseBatch(const std::vector<std::string_view>& records, int64_t block_size,
                       const Run& run) {
  const std::vector<ExampleFeature> features = EveryFeature();
  const int64_t ints[] = {1, 2};
  const float floats[] = {3, 4};
  std::vector<DefaultValues> defaults(features.size(), {ints, floats, {"five", "six"}});
  const int64_t batch_size = records.size();
  std::vector<ParsedBlock> blocks((batch_size + block_size - 1) / block_size);
  run(blocks.size(), [&](int64_t i) {
    blocks[i] = ParseBlock(features, records, i * block_size,
                           std::min(batch_size, (i + 1) * block_size));
  });
  ParsedBatch batch;
  for (const ParsedBlock& block : blocks) {
    if (block.is_valid) continue;
    batch.is_valid = false;
    return batch;
  }
  std::vector<FeatureOutput<std::string>> outputs(features.size());
  for (auto* numbers : {&batch.ints, &batch.splits, &batch.indices}) numbers->resize(outputs.size());
  batch.floats.resize(outputs.size());
  batch.strings.resize(outputs.size());
  for (size_t i = 0; i < features.size(); ++i) {
    int64_t size = 0;
    for (const ParsedBlock& block : blocks) {
      outputs[i].first_of_block.push_back(features[i].is_dense ? block.first * 2 : size);
      size += block.sizes[i];
    }
    if (features[i].is_dense) size = batch_size * 2;
    const ValueType type = features[i].type;
    if (type == ValueType::kInt64) batch.ints[i].resize(size);
    if (type == ValueType::kFloat) batch.floats[i].resize(size);
    if (type == ValueType::kBytes) batch.strings[i].resize(size);
    outputs[i].ints = type == ValueType::kInt64 ? batch.ints[i].data() : nullptr;
    outputs[i].floats = type == ValueType::kFloat ? batch.floats[i].data() : nullptr;
    outputs[i].strings = type == ValueType::kBytes ? batch.strings[i].data() : nullptr;
    if (features[i].is_dense) continue;
    batch.splits[i].resize(batch_size + 1);
    batch.indices[i].resize(2 * size);
    outputs[i].wide_splits = batch.splits[i].data();
    outputs[i].indices = batch.indices[i].data();
  }
  run(blocks.size(), [&](int64_t i) {
    WriteBlock(features, defaults, records, blocks[i], i, outputs);
  });
  return batch;
}

// A copy that ends where its bytes end, so that a sanitizer sees what reads on.
class ExactCopies {
 public:
  std::string_view Add(const std::string& bytes) {
    copies_.emplace_back(new char[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), copies_.back().get());
    return {copies_.back().get(), bytes.size()};
  }

 private:
  std::vector<std::unique_ptr<char[]>> copies_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_TESTS_WHOLE_PARSE_H_
