// SPDX-License-Identifier: Apache-2.0
// A step of one table without TensorFlow: check, lay out, look up, sort, update.
//
// Every array has exactly the size that it is said to have, so that AddressSanitizer sees the
// first byte beyond it.
#ifndef TPU_ESTIMATOR_EMBEDDING_TESTS_WHOLE_STEP_H_
#define TPU_ESTIMATOR_EMBEDDING_TESTS_WHOLE_STEP_H_

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "check_ids.h"
#include "check_prepared.h"
#include "from_threads.h"
#include "lay_out_ids.h"
#include "row_kernels.h"
#include "run_sorter.h"
#include "update_shares.h"

namespace tpu_estimator_embedding {

// A feature that owns its ids.
struct Feature {
  FeaturePlan plan;
  Placement placement = Placement::kRowSplits;
  int64_t batch_size = 0;
  int64_t num_coordinates = 1;
  std::vector<int64_t> ids, places;
  std::vector<float> weights;  // empty: none

  FeatureIds View() const {
    FeatureIds view;
    view.placement = placement;
    view.batch_size = batch_size;
    view.ids = {ids.data(), static_cast<int64_t>(ids.size()), true};
    view.places = {places.data(), static_cast<int64_t>(places.size()), true};
    view.num_coordinates = num_coordinates;
    view.weights = weights.empty() ? nullptr : weights.data();
    view.num_weights = weights.size();
    return view;
  }
};

struct TablePlan {
  int64_t vocabulary_size = 1;
  int64_t dim = 1;
  int num_hosts = 1;
  Strategy strategy = Strategy::kDiv;
  Combiner combiner = Combiner::kSum;
  RowOptimizer optimizer;
  int num_cores = 1;          // more: each makes its own update
  bool asks_each_id = false;  // lays ids out the general way, even where every id is kept
};

struct StepResult {
  std::string complaint;        // where ids were refused; then there is nothing else
  bool keeps_every_id = false;  // then whole features were laid out at once
  std::vector<float> activations;
  std::vector<std::vector<float>> parts;  // of the table, one for each host
};

// The prepared ids of one host.
template <class Id>
struct Host {
  std::vector<Id> ids, run_ids, all_run_ids;
  std::vector<int32_t> row_ends, run_ends, run_rows, all_run_ends;
  std::vector<float> weights, run_weights, table, slots[kMaxSlots];

  Host(const TablePlan& plan, int64_t num_table_rows, int64_t num_ids, int64_t num_rows,
       bool is_weighted)
      : ids(num_ids),
        run_ids(num_ids),
        row_ends(num_rows),
        run_ends(num_ids),
        run_rows(num_ids),
        weights(is_weighted ? num_ids : 0),
        run_weights(is_weighted ? num_ids : 0),
        table(num_table_rows * plan.dim) {
    for (size_t i = 0; i < table.size(); ++i) table[i] = 0.01f * static_cast<float>(i % 101);
    for (std::vector<float>& slot : slots) slot.assign(table.size(), 0.1f);
  }

  TableIds<Id> View(int64_t num_table_rows, float* scales) {
    TableIds<Id> view;
    view.num_table_rows = num_table_rows;
    view.num_ids = ids.size();
    view.num_rows = row_ends.size();
    view.ids = ids.data();
    view.row_ends = row_ends.data();
    view.weights = weights.empty() ? nullptr : weights.data();
    view.scales = scales;
    view.run_ids = run_ids.data();
    view.run_ends = run_ends.data();
    view.run_rows = run_rows.data();
    view.run_weights = run_weights.empty() ? nullptr : run_weights.data();
    return view;
  }
};

template <class Id>
class Step {
 public:
  Step(const TablePlan& plan, const std::vector<Feature>& features, const RowKernels& kernels,
       int num_threads)
      : plan_(plan),
        kernels_(kernels),
        num_threads_(num_threads),
        partition_(plan.vocabulary_size, plan.num_hosts, plan.strategy) {
    for (const Feature& feature : features) {
      ids_.push_back(feature.View());
      is_weighted_ = is_weighted_ || !feature.weights.empty();
    }
    for (size_t i = 0; i < features.size(); ++i) {
      shares_.push_back({&features[i].plan, &ids_[i]});
    }
  }

  StepResult Run() {
    StepResult result;
    for (size_t i = 0; i < shares_.size(); ++i) {
      const FeaturePlan& plan = *shares_[i].plan;
      CheckedFeature checked = CheckFeature(plan, ids_[i]);
      if (checked.is_unsorted) {
        sorted_.push_back(SortIds(plan, &ids_[i]));
        checked = CheckFeature(plan, ids_[i]);
      }
      if (!checked.complaint.empty()) {
        result.complaint = checked.complaint;
        return result;
      }
    }
    Prepare();
    result.keeps_every_id = keeps_every_id_;
    result.activations = LookupAll();
    UpdateAll();
    for (Host<Id>& host : hosts_) result.parts.push_back(host.table);
    return result;
  }

 private:
  void Prepare() {
    for (const Share& share : shares_) num_rows_ += share.num_rows();
    if (plan_.combiner != Combiner::kSum) scales_.resize(num_rows_);
    const std::vector<int64_t> counts = CountIds(shares_, partition_);
    for (int part = 0; part < partition_.num_parts(); ++part) {
      hosts_.emplace_back(plan_, partition_.num_rows(part), counts[part], num_rows_, is_weighted_);
    }
    float* scales = scales_.empty() ? nullptr : scales_.data();
    for (int part = 0; part < partition_.num_parts(); ++part) {
      views_.push_back(hosts_[part].View(partition_.num_rows(part), scales));
    }
    keeps_every_id_ = KeepsEveryId(counts);
    LayOutIds(shares_, partition_, views_, scales, keeps_every_id_ && !plan_.asks_each_id);
  }

  bool KeepsEveryId(const std::vector<int64_t>& counts) const {
    int64_t given = 0;
    bool has_sequences = false;
    for (const Share& share : shares_) {
      given += share.ids->ids.size;
      has_sequences |= share.plan->sequence_length > 0;
    }
    return counts.size() == 1 && counts[0] == given && !has_sequences;
  }

  // Leaves the runs of a host where all of them stand without gaps.
  void SortRuns(size_t host, const Cores& cores) {
    TableIds<Id>& table = views_[host];
    RunSorter<Id> sorter(table, cores, num_threads_, &scratch_);
    const auto for_each = [&](void (RunSorter<Id>::*work)(int64_t)) {
      FromThreads(num_threads_, sorter.num_shares(), [&](int64_t i) { (sorter.*work)(i); });
    };
    if (sorter.is_shared()) {
      for_each(&RunSorter<Id>::Count);
      sorter.ComputeRanges();
      for_each(&RunSorter<Id>::Scatter);
    }
    for_each(&RunSorter<Id>::Sort);
    table.num_runs = sorter.num_runs();
    hosts_[host].all_run_ids.resize(table.num_runs);
    hosts_[host].all_run_ends.resize(table.num_runs);
    table.run_ids = hosts_[host].all_run_ids.data();
    table.run_ends = hosts_[host].all_run_ends.data();
    FromThreads(num_threads_, sorter.num_shares(),
                [&](int64_t i) { sorter.CopyRuns(i, table.run_ids, table.run_ends); });
  }

  std::vector<float> LookupAll() {
    constexpr int64_t kShares = 7;
    std::vector<float> sum(num_rows_ * plan_.dim), part(sum.size());
    for (size_t host = 0; host < views_.size(); ++host) {
      Lookup<Id> task;
      task.ids = views_[host].for_lookup();
      if (num_rows_ > 0 && !IsWithin(task.ids, 0, num_rows_)) std::abort();
      if (!IsComplete(task.ids)) std::abort();
      task.dim = plan_.dim;
      task.table = hosts_[host].table.data();
      task.activations = part.data();
      task.stride = plan_.dim;
      FromThreads(num_threads_, kShares, [&](int64_t i) {
        kernels_(task, num_rows_ * i / kShares, num_rows_ * (i + 1) / kShares);
      });
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    return sum;
  }

  void UpdateAll() {
    Cores cores;
    for (int core = 1; plan_.num_cores > 1 && core <= plan_.num_cores; ++core) {
      cores.row_ends.push_back(num_rows_ * core / plan_.num_cores);
    }
    cores.partition = &partition_;
    std::vector<float> gradients(num_rows_ * plan_.dim);
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = 0.01f * static_cast<float>(i % 13) - 0.05f;
    }
    std::vector<Update<Id>> tasks;
    for (size_t host = 0; host < views_.size(); ++host) {
      cores.part = static_cast<int>(host);
      SortRuns(host, cores);
      tasks.push_back(Task(host, gradients));
    }
    const std::vector<UpdateShare<Id>> shares = ShareOut(tasks, num_threads_);
    FromThreads(num_threads_, shares.size(),
                [&](int64_t i) { kernels_(*shares[i].task, shares[i].range); });
  }

  Update<Id> Task(size_t host, const std::vector<float>& gradients) {
    Update<Id> task;
    task.ids = views_[host].for_update();
    if (task.ids.num_runs > 0 && !IsWithin(task.ids, 0, task.ids.num_runs)) std::abort();
    if (!IsComplete(task.ids)) std::abort();
    task.dim = plan_.dim;
    task.table = hosts_[host].table.data();
    for (int slot = 0; slot < kMaxSlots; ++slot) task.slots[slot] = hosts_[host].slots[slot].data();
    task.gradients = gradients.data();
    task.gradient_stride = plan_.dim;
    task.optimizer = plan_.optimizer;
    return task;
  }

  const TablePlan plan_;
  const RowKernels& kernels_;
  const int num_threads_;
  const Partition partition_;
  ScratchPool scratch_;
  bool is_weighted_ = false, keeps_every_id_ = false;
  int64_t num_rows_ = 0;
  std::vector<FeatureIds> ids_;
  std::vector<SortedIds> sorted_;
  std::vector<Share> shares_;
  std::vector<float> scales_;
  std::vector<Host<Id>> hosts_;
  std::vector<TableIds<Id>> views_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_TESTS_WHOLE_STEP_H_
