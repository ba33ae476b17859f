// SPDX-License-Identifier: Apache-2.0
// Builds the prepared ids of a step, checked before, for every host.
#ifndef TPU_ESTIMATOR_EMBEDDING_PREPARED_STEP_H_
#define TPU_ESTIMATOR_EMBEDDING_PREPARED_STEP_H_

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lay_out_ids.h"
#include "parallel_for.h"
#include "prepare_attributes.h"
#include "prepared_ids.h"
#include "run_shares.h"

namespace tpu_estimator_embedding {

template <class Id>
class PreparedStep {
 public:
  PreparedStep(tensorflow::OpKernelContext* context, const PrepareAttributes& attributes,
               const std::vector<FeatureIds>& inputs, const std::vector<bool>& has_negative_ids)
      : context_(context),
        attributes_(attributes),
        inputs_(inputs),
        has_negative_ids_(has_negative_ids),
        tables_(attributes.tables.size()) {}

  absl::Status Build() {
    Count();
    TF_RETURN_IF_ERROR(CheckSizes());
    std::vector<Scratch> scratch(attributes_.num_hosts);
    for (int host = 0; host < attributes_.num_hosts; ++host) {
      TF_RETURN_IF_ERROR(Allocate(host, &scratch[host]));
    }
    const std::vector<int64_t> order = LargestFirst();
    ParallelFor(context_, order.size(), [&](int64_t i) { LayOut(order[i]); });
    if (attributes_.is_training) Sort(order);
    for (int host = 0; host < attributes_.num_hosts; ++host) {
      TF_RETURN_IF_ERROR(Finish(host));
    }
    return absl::OkStatus();
  }

 private:
  struct Table {
    std::vector<Share> shares;
    std::vector<TableIds<Id>> parts;  // of the hosts that have one
    std::vector<int64_t> counts;      // ids of each part
    int64_t num_rows = 0;
    bool keeps_every_id = false;  // in one part
  };

  // Runs before it is known how many there are.
  struct Scratch {
    std::unique_ptr<Id[]> run_ids;
    std::unique_ptr<int32_t[]> run_ends;
  };

  void Count() {
    std::vector<int64_t> uncounted;
    for (size_t i = 0; i < tables_.size(); ++i) {
      AddShares(i);
      if (!tables_[i].keeps_every_id) uncounted.push_back(i);
    }
    ParallelFor(context_, uncounted.size(), [&](int64_t i) {
      Table& table = tables_[uncounted[i]];
      table.counts = CountIds(table.shares, attributes_.tables[uncounted[i]].partition);
    });
  }

  void AddShares(int64_t i) {
    const TablePlan& plan = attributes_.tables[i];
    Table& table = tables_[i];
    const size_t num_features = attributes_.features.size();
    table.keeps_every_id = plan.partition.num_parts() == 1 && !plan.has_sequences;
    int64_t total = 0;
    for (size_t replica = 0; replica < inputs_.size(); replica += num_features) {
      for (int feature : plan.features) {
        const FeatureIds& ids = inputs_[replica + feature];
        table.shares.push_back({&attributes_.features[feature], &ids});
        table.num_rows += table.shares.back().num_rows();
        table.keeps_every_id &= !has_negative_ids_[replica + feature];
        total += ids.ids.size;
      }
    }
    table.counts = {total};  // counted anew where some are left out
  }

  absl::Status CheckSizes() const {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    for (const Table& table : tables_) {
      for (int64_t size :
           {table.num_rows, *std::max_element(table.counts.begin(), table.counts.end())}) {
        if (size > kMost) {
          return absl::InvalidArgumentError(
              absl::StrCat("`ids` of the features of a table must be at most ", kMost,
                           " in a step, got ", size, ". Give smaller batches."));
        }
      }
    }
    return absl::OkStatus();
  }

  std::vector<int64_t> LargestFirst() const {
    std::vector<int64_t> order(tables_.size()), sizes;
    std::iota(order.begin(), order.end(), 0);
    for (const Table& table : tables_) {
      sizes.push_back(std::accumulate(table.counts.begin(), table.counts.end(), int64_t{0}));
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return sizes[a] > sizes[b]; });
    return order;
  }

  template <class T>
  absl::Status Output(const char* name, int host, int64_t size, T** data) {
    tensorflow::OpOutputList outputs;
    TF_RETURN_IF_ERROR(context_->output_list(name, &outputs));
    tensorflow::Tensor* output;
    TF_RETURN_IF_ERROR(outputs.allocate(host, {size}, &output));
    *data = output->flat<T>().data();
    return absl::OkStatus();
  }

  // Makes room for the ids of a host and points the parts of its tables there.
  absl::Status Allocate(int host, Scratch* scratch) {
    int64_t num_ids = 0, num_rows = 0, num_weights = 0, num_scales = 0;
    for (size_t i = 0; i < tables_.size(); ++i) {
      if (!HasPart(i, host)) continue;
      const TablePlan& plan = attributes_.tables[i];
      num_ids += tables_[i].counts[host];
      num_rows += tables_[i].num_rows;
      num_weights += plan.has_weights ? tables_[i].counts[host] : 0;
      num_scales += plan.has_scales ? tables_[i].num_rows : 0;
    }
    const int64_t num_sorted = attributes_.is_training ? num_ids : 0;
    const int64_t num_sorted_weights = attributes_.is_training ? num_weights : 0;
    TableIds<Id> next;
    TF_RETURN_IF_ERROR(Output("host_ids", host, num_ids, &next.ids));
    TF_RETURN_IF_ERROR(Output("row_ends", host, num_rows, &next.row_ends));
    TF_RETURN_IF_ERROR(Output("host_weights", host, num_weights, &next.weights));
    TF_RETURN_IF_ERROR(Output("scales", host, num_scales, &next.scales));
    TF_RETURN_IF_ERROR(Output("run_rows", host, num_sorted, &next.run_rows));
    TF_RETURN_IF_ERROR(Output("run_weights", host, num_sorted_weights, &next.run_weights));
    scratch->run_ids.reset(new Id[num_sorted]);
    scratch->run_ends.reset(new int32_t[num_sorted]);
    next.run_ids = scratch->run_ids.get();
    next.run_ends = scratch->run_ends.get();
    for (size_t i = 0; i < tables_.size(); ++i) {
      if (HasPart(i, host)) AddPart(i, host, &next);
    }
    return absl::OkStatus();
  }

  void AddPart(int64_t i, int host, TableIds<Id>* next) {
    const TablePlan& plan = attributes_.tables[i];
    TableIds<Id> part = *next;
    part.num_table_rows = plan.partition.num_rows(host);
    part.num_ids = tables_[i].counts[host];
    part.num_rows = tables_[i].num_rows;
    if (!plan.has_weights) part.weights = part.run_weights = nullptr;
    if (!plan.has_scales) part.scales = nullptr;
    tables_[i].parts.push_back(part);
    next->ids += part.num_ids;
    next->row_ends += part.num_rows;
    if (plan.has_weights) next->weights += part.num_ids;
    if (plan.has_scales) next->scales += part.num_rows;
    if (!attributes_.is_training) return;
    if (plan.has_weights) next->run_weights += part.num_ids;
    next->run_ids += part.num_ids;
    next->run_ends += part.num_ids;
    next->run_rows += part.num_ids;
  }

  void LayOut(int64_t i) {
    const TablePlan& plan = attributes_.tables[i];
    Table& table = tables_[i];
    LayOutIds(table.shares, plan.partition, plan.combiner, table.parts, table.parts[0].scales,
              table.keeps_every_id);
    for (size_t host = 0; host < table.parts.size(); ++host) {
      TableIds<Id>& part = table.parts[host];
      if (host > 0 && part.scales != nullptr) {
        std::copy_n(table.parts[0].scales, part.num_rows, part.scales);
      }
    }
  }

  void Sort(const std::vector<int64_t>& order) {
    constexpr int64_t kFewIds = 1 << 15;  // fewer are not worth sharing
    int64_t num_ids = 0;
    for (const Table& table : tables_) {
      num_ids += std::accumulate(table.counts.begin(), table.counts.end(), int64_t{0});
    }
    const int64_t ids_of_share = std::max(kFewIds, num_ids / (2 * NumThreads(context_)));
    std::vector<RunShares<Id>> parts;
    for (int64_t i : order) {
      for (size_t host = 0; host < tables_[i].parts.size(); ++host) {
        TableIds<Id>& part = tables_[i].parts[host];
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

  // Hands out the sizes, and the runs now that their number is known.
  absl::Status Finish(int host) {
    tensorflow::OpOutputList outputs;
    TF_RETURN_IF_ERROR(context_->output_list("sizes", &outputs));
    int64_t num_parts = 0, num_runs = 0;
    for (size_t i = 0; i < tables_.size(); ++i) {
      if (!HasPart(i, host)) continue;
      num_parts += 1;
      num_runs += tables_[i].parts[host].num_runs;
    }
    tensorflow::Tensor* sizes;
    TF_RETURN_IF_ERROR(outputs.allocate(host, {num_parts, kNumSizes}, &sizes));
    Id* run_ids;
    int32_t* run_ends;
    TF_RETURN_IF_ERROR(Output("run_ids", host, num_runs, &run_ids));
    TF_RETURN_IF_ERROR(Output("run_ends", host, num_runs, &run_ends));
    int64_t next = 0;
    for (size_t i = 0; i < tables_.size(); ++i) {
      if (!HasPart(i, host)) continue;
      const TableIds<Id>& part = tables_[i].parts[host];
      FillSizes(part, sizes->matrix<int64_t>(), next++);
      run_ids = std::copy_n(part.run_ids, part.num_runs, run_ids);
      run_ends = std::copy_n(part.run_ends, part.num_runs, run_ends);
    }
    return absl::OkStatus();
  }

  static void FillSizes(const TableIds<Id>& part, tensorflow::TTypes<int64_t>::Matrix sizes,
                        int64_t row) {
    sizes(row, kTableRows) = part.num_table_rows;
    sizes(row, kIds) = part.num_ids;
    sizes(row, kRows) = part.num_rows;
    sizes(row, kRuns) = part.num_runs;
    sizes(row, kWeights) = part.weights == nullptr ? 0 : part.num_ids;
    sizes(row, kScales) = part.scales == nullptr ? 0 : part.num_rows;
  }

  bool HasPart(int64_t table, int host) const {
    return host < attributes_.tables[table].partition.num_parts();
  }

  tensorflow::OpKernelContext* const context_;
  const PrepareAttributes& attributes_;
  const std::vector<FeatureIds>& inputs_;
  const std::vector<bool>& has_negative_ids_;
  std::vector<Table> tables_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PREPARED_STEP_H_
