// SPDX-License-Identifier: Apache-2.0
// The checks of a step's ids, before anything is built on them.
#ifndef TPU_ESTIMATOR_EMBEDDING_CHECK_IDS_H_
#define TPU_ESTIMATOR_EMBEDDING_CHECK_IDS_H_

#include <string>

#include "feature_ids.h"

namespace tpu_estimator_embedding {

struct CheckedFeature {
  std::string complaint;  // empty where every check passed
  bool has_negative_ids = false;
};

// After a feature has passed, every index that `RowReader` makes of it is in range.
CheckedFeature CheckFeature(const FeaturePlan& plan, const FeatureIds& ids);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_CHECK_IDS_H_
