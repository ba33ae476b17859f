// SPDX-License-Identifier: Apache-2.0
// Checks of a step's ids, before they are used.
#ifndef TPU_ESTIMATOR_EMBEDDING_CHECK_IDS_H_
#define TPU_ESTIMATOR_EMBEDDING_CHECK_IDS_H_

#include <string>
#include <vector>

#include "feature_ids.h"

namespace tpu_estimator_embedding {

struct CheckedFeature {
  std::string complaint;  // empty if every check passed
  bool has_negative_ids = false;
  bool is_unsorted = false;  // coordinates that decrease; sort them and check again
};

// After these checks, if the ids are sorted, every index that `RowReader` computes for the feature
// is in range.
CheckedFeature CheckFeature(const FeaturePlan& plan, const FeatureIds& ids);

// Copies of the ids of a feature in the order of their coordinates.
struct SortedIds {
  std::vector<int64_t> ids, places;
  std::vector<float> weights;
};

// Sorts ids that `CheckFeature` found unsorted by sample, and those of a sequence by position, and
// makes the view show the result. Ids of equal coordinates keep their order.
SortedIds SortIds(const FeaturePlan& plan, FeatureIds* ids);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_CHECK_IDS_H_
