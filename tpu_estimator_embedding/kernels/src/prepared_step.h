// SPDX-License-Identifier: Apache-2.0
// Builds the prepared ids of a step for every host, after the checks.
#ifndef TPU_ESTIMATOR_EMBEDDING_PREPARED_STEP_H_
#define TPU_ESTIMATOR_EMBEDDING_PREPARED_STEP_H_

#include <algorithm>
#include <numeric>
#include <vector>

#include "counted_table.h"
#include "host_outputs.h"
#include "lay_out_ids.h"
#include "parallel_for.h"
#include "prepare_attributes.h"
#include "sorted_tables.h"

namespace tpu_estimator_embedding {

template <class Id>
class PreparedStep {
 public:
  PreparedStep(tensorflow::OpKernelContext* context, const PrepareAttributes& attributes,
               const std::vector<FeatureIds>& inputs, ScratchPool* scratch)
      : context_(context),
        attributes_(attributes),
        inputs_(inputs),
        parts_(attributes.tables.size()),
        sorted_(context, scratch) {}

  absl::Status Build(const std::vector<bool>& has_negative_ids) {
    TF_RETURN_IF_ERROR(CountTables(context_, attributes_, inputs_, has_negative_ids, &tables_));
    std::vector<HostOutputs<Id>> hosts;
    for (int host = 0; host < attributes_.num_hosts; ++host) {
      hosts.emplace_back(context_, attributes_, host);
      TF_RETURN_IF_ERROR(hosts.back().Allocate(tables_, &parts_));
    }
    const std::vector<int64_t> order = LargestFirst();
    const int num_threads = NumThreads(context_, kNanosecondsPerId * NumIdsAndRows());
    TF_RETURN_IF_ERROR(ParallelFor(context_, num_threads, order.size(),
                                   [&](int64_t i) { LayOut(order[i]); }));
    if (attributes_.is_training) TF_RETURN_IF_ERROR(Sort(order));
    for (HostOutputs<Id>& host : hosts) TF_RETURN_IF_ERROR(host.Finish(&parts_));
    return sorted_.CopyRuns();
  }

 private:
  // Largest first, so that no thread starts the longest work when the others are nearly done.
  std::vector<int64_t> LargestFirst() const {
    std::vector<int64_t> order(tables_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return tables_[a].num_ids() > tables_[b].num_ids();
    });
    return order;
  }

  int64_t NumIdsAndRows() const {
    int64_t total = 0;
    for (const CountedTable& table : tables_) total += table.num_ids() + table.num_rows;
    return total;
  }

  void LayOut(int64_t i) {
    const TablePlan& plan = attributes_.tables[i];
    const std::vector<TableIds<Id>>& parts = parts_[i];
    LayOutIds(tables_[i].shares, plan.partition, parts, parts[0].scales,
              tables_[i].keeps_every_id);
    for (size_t host = 1; plan.has_scales && host < parts.size(); ++host) {
      std::copy_n(parts[0].scales, parts[0].num_rows, parts[host].scales);
    }
  }

  absl::Status Sort(const std::vector<int64_t>& order) {
    int64_t num_ids = 0;
    for (const CountedTable& table : tables_) num_ids += table.num_ids();
    for (int64_t i : order) {
      for (size_t host = 0; host < parts_[i].size(); ++host) {
        sorted_.Add(&parts_[i][host], CoresOf(attributes_.tables[i], host), num_ids);
      }
    }
    return sorted_.Sort();
  }

  Cores CoresOf(const TablePlan& plan, int part) const {
    Cores cores;
    const size_t num_features = attributes_.features.size();
    if (!plan.is_updated_core_by_core || inputs_.size() == num_features) return cores;
    cores.partition = &plan.partition;
    cores.part = part;
    int64_t end = 0;
    for (size_t replica = 0; replica < inputs_.size(); replica += num_features) {
      end += attributes_.NumRows(plan, &inputs_[replica]);
      cores.row_ends.push_back(end);
    }
    return cores;
  }

  tensorflow::OpKernelContext* const context_;
  const PrepareAttributes& attributes_;
  const std::vector<FeatureIds>& inputs_;
  std::vector<CountedTable> tables_;
  Parts<Id> parts_;
  SortedTables<Id> sorted_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PREPARED_STEP_H_
