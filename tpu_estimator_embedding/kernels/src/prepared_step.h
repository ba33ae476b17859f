// SPDX-License-Identifier: Apache-2.0
// Builds the prepared ids of a step, checked before, for every host.
#ifndef TPU_ESTIMATOR_EMBEDDING_PREPARED_STEP_H_
#define TPU_ESTIMATOR_EMBEDDING_PREPARED_STEP_H_

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "counted_table.h"
#include "host_outputs.h"
#include "lay_out_ids.h"
#include "parallel_for.h"
#include "prepare_attributes.h"
#include "run_shares.h"

namespace tpu_estimator_embedding {

template <class Id>
class PreparedStep {
 public:
  PreparedStep(tensorflow::OpKernelContext* context, const PrepareAttributes& attributes,
               const std::vector<FeatureIds>& inputs)
      : context_(context),
        attributes_(attributes),
        inputs_(inputs),
        parts_(attributes.tables.size()) {}

  absl::Status Build(const std::vector<bool>& has_negative_ids) {
    TF_RETURN_IF_ERROR(CountTables(context_, attributes_, inputs_, has_negative_ids, &tables_));
    std::vector<HostOutputs<Id>> hosts;
    for (int host = 0; host < attributes_.num_hosts; ++host) {
      hosts.emplace_back(context_, attributes_, host);
      TF_RETURN_IF_ERROR(hosts.back().Allocate(tables_, &parts_));
    }
    const std::vector<int64_t> order = LargestFirst();
    ParallelFor(context_, order.size(), [&](int64_t i) { LayOut(order[i]); });
    if (attributes_.is_training) Sort(order);
    for (HostOutputs<Id>& host : hosts) TF_RETURN_IF_ERROR(host.Finish(parts_));
    return absl::OkStatus();
  }

 private:
  // So that no thread begins the longest work when the others are nearly done.
  std::vector<int64_t> LargestFirst() const {
    std::vector<int64_t> order(tables_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return tables_[a].num_ids() > tables_[b].num_ids();
    });
    return order;
  }

  void LayOut(int64_t i) {
    const TablePlan& plan = attributes_.tables[i];
    const std::vector<TableIds<Id>>& parts = parts_[i];
    LayOutIds(tables_[i].shares, plan.partition, plan.combiner, parts, parts[0].scales,
              tables_[i].keeps_every_id);
    for (size_t host = 1; plan.has_scales && host < parts.size(); ++host) {
      std::copy_n(parts[0].scales, parts[0].num_rows, parts[host].scales);
    }
  }

  void Sort(const std::vector<int64_t>& order) {
    constexpr int64_t kFewIds = 1 << 15;  // fewer are not worth sharing
    int64_t num_ids = 0;
    for (const CountedTable& table : tables_) num_ids += table.num_ids();
    const int64_t ids_of_share = std::max(kFewIds, num_ids / (2 * NumThreads(context_)));
    std::vector<RunShares<Id>> parts;
    for (int64_t i : order) {
      for (size_t host = 0; host < parts_[i].size(); ++host) {
        TableIds<Id>& part = parts_[i][host];
        parts.emplace_back(&part, CoresOf(attributes_.tables[i], host),
                           std::max<int64_t>(1, part.num_ids / ids_of_share));
      }
    }
    std::vector<std::pair<RunShares<Id>*, int64_t>> shares;
    for (RunShares<Id>& part : parts) {
      for (int64_t i = 0; i < part.count(); ++i) shares.emplace_back(&part, i);
    }
    ParallelFor(context_, shares.size(),
                [&](int64_t i) { shares[i].first->Sort(shares[i].second); });
    for (const RunShares<Id>& part : parts) part.Join();
  }

  Cores CoresOf(const TablePlan& plan, int part) const {
    Cores cores;
    const size_t num_features = attributes_.features.size();
    if (!plan.is_updated_core_by_core || inputs_.size() == num_features) return cores;
    cores.partition = &plan.partition;
    cores.part = part;
    int64_t end = 0;
    for (size_t replica = 0; replica < inputs_.size(); replica += num_features) {
      end += inputs_[replica].batch_size * plan.rows_per_sample;
      cores.row_ends.push_back(end);
    }
    return cores;
  }

  tensorflow::OpKernelContext* const context_;
  const PrepareAttributes& attributes_;
  const std::vector<FeatureIds>& inputs_;
  std::vector<CountedTable> tables_;
  Parts<Id> parts_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PREPARED_STEP_H_
