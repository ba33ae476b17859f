// SPDX-License-Identifier: Apache-2.0
// The entries of the map that a `tf.train.Example` is.
#ifndef TPU_ESTIMATOR_EMBEDDING_EXAMPLE_ENTRIES_H_
#define TPU_ESTIMATOR_EMBEDDING_EXAMPLE_ENTRIES_H_

#include <string_view>
#include <vector>

namespace tpu_estimator_embedding {

struct ExampleEntry {
  std::string_view key;
  std::string_view value;  // a serialized `tf.train.Feature`
};

// Appends the entries of a serialized example in their order. Returns false if it is malformed.
bool ReadEntries(std::string_view record, std::vector<ExampleEntry>* entries);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_EXAMPLE_ENTRIES_H_
