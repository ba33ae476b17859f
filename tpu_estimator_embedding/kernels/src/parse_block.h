// SPDX-License-Identifier: Apache-2.0
// Finds the values in a block of serialized `tf.train.Example`s, without TensorFlow.
#ifndef TPU_ESTIMATOR_EMBEDDING_PARSE_BLOCK_H_
#define TPU_ESTIMATOR_EMBEDDING_PARSE_BLOCK_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "example_feature.h"
#include "value_lists.h"

namespace tpu_estimator_embedding {

// What was found. Lists are views of the records.
struct ParsedBlock {
  int64_t first = 0;             // example
  int64_t num_examples = 0;
  std::vector<ValueList> lists;  // of every feature of an example, example by example
  std::vector<int64_t> sizes;    // for each feature, its number of values in all examples
  std::vector<int64_t> longest;  // for each feature, the most values in one example
  bool is_valid = true;          // whether all examples could be parsed
};

// Parses the examples `first` to `end`, up to the first one that is malformed.
ParsedBlock ParseBlock(const std::vector<ExampleFeature>& features,
                       const std::vector<std::string_view>& records, int64_t first, int64_t end);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PARSE_BLOCK_H_
