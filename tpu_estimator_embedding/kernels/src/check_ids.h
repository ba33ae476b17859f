// SPDX-License-Identifier: Apache-2.0
// Checks of a step's ids, before they are used.
#ifndef TPU_ESTIMATOR_EMBEDDING_CHECK_IDS_H_
#define TPU_ESTIMATOR_EMBEDDING_CHECK_IDS_H_

#include <string>

#include "feature_ids.h"

namespace tpu_estimator_embedding {

struct CheckedFeature {
  std::string complaint;  // empty if every check passed
  bool has_negative_ids = false;
};

// After these checks, every index that `RowReader` computes for the feature is in range.
CheckedFeature CheckFeature(const FeaturePlan& plan, const FeatureIds& ids);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_CHECK_IDS_H_
