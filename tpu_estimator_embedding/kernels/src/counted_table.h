// SPDX-License-Identifier: Apache-2.0
// Counts the ids and rows of a table in a step, before memory is allocated.
#ifndef TPU_ESTIMATOR_EMBEDDING_COUNTED_TABLE_H_
#define TPU_ESTIMATOR_EMBEDDING_COUNTED_TABLE_H_

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lay_out_ids.h"
#include "parallel_for.h"
#include "prepare_attributes.h"

namespace tpu_estimator_embedding {

struct CountedTable {
  std::vector<Share> shares;
  std::vector<int64_t> counts;  // ids of each part
  int64_t num_rows = 0;         // of activations
  bool keeps_every_id = false;  // in one part

  int64_t num_ids() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
};

// Returns the table with all of its ids, before any are dropped.
inline CountedTable ShareTable(const PrepareAttributes& attributes, const TablePlan& plan,
                               const std::vector<FeatureIds>& inputs,
                               const std::vector<bool>& has_negative_ids) {
  CountedTable table;
  const size_t num_features = attributes.features.size();
  table.keeps_every_id = plan.partition.num_parts() == 1 && !plan.has_sequences;
  int64_t total = 0;
  for (size_t replica = 0; replica < inputs.size(); replica += num_features) {
    for (int feature : plan.features) {
      const FeatureIds& ids = inputs[replica + feature];
      table.shares.push_back({&attributes.features[feature], &ids});
      // Stops at a count that is too large already, so that it cannot overflow.
      if (table.num_rows <= kMostInStep) table.num_rows += table.shares.back().num_rows();
      table.keeps_every_id = table.keeps_every_id && !has_negative_ids[replica + feature];
      total += ids.ids.size;
    }
  }
  table.counts = {total};
  return table;
}

// Range ends are int32.
inline absl::Status CheckSize(int64_t size) {
  if (size <= kMostInStep) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Ids of the features of a table must be at most ", kMostInStep, " in a step, got ",
                   size, ". Give smaller batches."));
}

// Counts the lookups of every table of a step. Only tables that may drop ids, or distribute them
// over several hosts, have to read their ids.
inline absl::Status CountTables(tensorflow::OpKernelContext* context,
                                const PrepareAttributes& attributes,
                                const std::vector<FeatureIds>& inputs,
                                const std::vector<bool>& has_negative_ids,
                                std::vector<CountedTable>* tables) {
  std::vector<int64_t> uncounted;
  int64_t num_ids = 0;
  for (const TablePlan& plan : attributes.tables) {
    tables->push_back(ShareTable(attributes, plan, inputs, has_negative_ids));
    TF_RETURN_IF_ERROR(CheckSize(tables->back().num_rows));
    TF_RETURN_IF_ERROR(CheckSize(tables->back().num_ids()));
    if (tables->back().keeps_every_id) continue;
    uncounted.push_back(tables->size() - 1);
    num_ids += tables->back().num_ids();
  }
  const int num_threads = NumThreads(context, kNanosecondsPerId * num_ids);
  return ParallelFor(context, num_threads, uncounted.size(), [&](int64_t i) {
    CountedTable& table = (*tables)[uncounted[i]];
    table.counts = CountIds(table.shares, attributes.tables[uncounted[i]].partition);
  });
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_COUNTED_TABLE_H_
