// SPDX-License-Identifier: Apache-2.0
// From the ids of a table's features to the ids of its hosts, row of activations by row.
#ifndef TPU_ESTIMATOR_EMBEDDING_LAY_OUT_IDS_H_
#define TPU_ESTIMATOR_EMBEDDING_LAY_OUT_IDS_H_

#include <cstdint>
#include <vector>

#include "feature_ids.h"
#include "partition.h"
#include "table_ids.h"

namespace tpu_estimator_embedding {

// One feature in one replica. The activations of a table are those of its shares in order.
struct Share {
  const FeaturePlan* plan;
  const FeatureIds* ids;

  int64_t num_rows() const { return ids->batch_size * plan->rows_per_sample(); }
};

// Returns how many ids each part of the table has to look up. Negative ids mark padding, they
// and ids beyond the length of a sequence are dropped.
std::vector<int64_t> CountIds(const std::vector<Share>& shares, const Partition& partition);

// Fills `ids`, `row_ends` and, where they are not null, `weights` of each part, and `scales`,
// null where none are wanted. `keeps_every_id` is a promise that there is one part, no sequence and
// no negative id.
template <class Id>
void LayOutIds(const std::vector<Share>& shares, const Partition& partition,
               const std::vector<TableIds<Id>>& parts, float* scales, bool keeps_every_id);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_LAY_OUT_IDS_H_
