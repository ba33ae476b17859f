// SPDX-License-Identifier: Apache-2.0
// Converts the ids of a table's features to the ids of its hosts, by row of activations.
#ifndef TPU_ESTIMATOR_EMBEDDING_LAY_OUT_IDS_H_
#define TPU_ESTIMATOR_EMBEDDING_LAY_OUT_IDS_H_

#include <cstdint>
#include <vector>

#include "feature_ids.h"
#include "partition.h"
#include "table_ids.h"

namespace tpu_estimator_embedding {

// About how long one thread takes to check, count, arrange or copy an id.
constexpr int64_t kNanosecondsPerId = 2;

// One feature in one replica. The activations of a table are those of its shares, concatenated.
struct Share {
  const FeaturePlan* plan;
  const FeatureIds* ids;

  int64_t num_rows() const { return ids->batch_size * plan->rows_per_sample(); }
};

// Returns the number of ids that each part of the table looks up. Negative ids, which mark
// padding, and ids beyond the length of a sequence are dropped.
std::vector<int64_t> CountIds(const std::vector<Share>& shares, const Partition& partition);

// Fills `ids`, `row_ends` and, if they are not null, `weights` of each part and `scales`.
// `keeps_every_id` promises that there is one part, no sequence and no negative id.
template <class Id>
void LayOutIds(const std::vector<Share>& shares, const Partition& partition,
               const std::vector<TableIds<Id>>& parts, float* scales, bool keeps_every_id);

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_LAY_OUT_IDS_H_
