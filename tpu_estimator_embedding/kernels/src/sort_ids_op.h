// SPDX-License-Identifier: Apache-2.0
// The op that sorts the ids of a host into the runs of an update, where it got them unsorted.
#ifndef TPU_ESTIMATOR_EMBEDDING_SORT_IDS_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_SORT_IDS_OP_H_

#include <algorithm>
#include <atomic>
#include <numeric>
#include <string>
#include <vector>

#include "attribute_checks.h"
#include "parallel_for.h"
#include "prepare_attributes.h"
#include "prepared_ids.h"
#include "sorted_tables.h"

namespace tpu_estimator_embedding {

// The runs are those of `PrepareIdsOp`, except that rows of activations are numbered as the
// host has them.
template <class Id>
class SortIdsOp : public tensorflow::OpKernel {
 public:
  explicit SortIdsOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, Read(construction));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 private:
  using Tables = std::vector<TableIds<Id>>;

  absl::Status Read(tensorflow::OpKernelConstruction* construction) {
    std::vector<int64_t> vocabulary_sizes;
    std::string strategy;
    int64_t num_hosts;
    TF_RETURN_IF_ERROR(construction->GetAttr("updates_core_by_core", &core_by_core_));
    TF_RETURN_IF_ERROR(construction->GetAttr("vocabulary_sizes", &vocabulary_sizes));
    TF_RETURN_IF_ERROR(construction->GetAttr("partition_strategy", &strategy));
    TF_RETURN_IF_ERROR(construction->GetAttr("num_hosts", &num_hosts));
    TF_RETURN_IF_ERROR(construction->GetAttr("host", &host_));
    TF_RETURN_IF_ERROR(CheckCount("updates_core_by_core", "table", vocabulary_sizes.size(),
                                  core_by_core_.size()));
    TF_RETURN_IF_ERROR(CheckAll("vocabulary_sizes", vocabulary_sizes, host_ + 1, kMostRows));
    TF_RETURN_IF_ERROR(CheckRange("host", host_, 0, num_hosts - 1));
    for (int64_t size : vocabulary_sizes) {
      partitions_.emplace_back(size, num_hosts,
                               strategy == "mod" ? Strategy::kMod : Strategy::kDiv);
    }
    return absl::OkStatus();
  }

  absl::Status Run(tensorflow::OpKernelContext* context) {
    Tables tables;
    TF_RETURN_IF_ERROR(View(context, &tables));
    std::vector<Cores> cores;
    TF_RETURN_IF_ERROR(ReadCores(context, tables, &cores));
    tensorflow::Tensor unused_ids, unused_ends;
    TF_RETURN_IF_ERROR(Allocate(context, &tables, &unused_ids, &unused_ends));
    SortedTables<Id> sorted(context, &scratch_);
    AddAll(cores, &tables, &sorted);
    TF_RETURN_IF_ERROR(sorted.Sort());
    TF_RETURN_IF_ERROR(AllocateRuns(context, &tables));
    const absl::Status status = sorted.CopyRuns();
    scratch_.Trim();
    return status;
  }

  // The sorter never writes to what it reads.
  absl::Status View(tensorflow::OpKernelContext* context, Tables* tables) const {
    std::vector<LookupIds<Id>> ids;
    TF_RETURN_IF_ERROR(ViewTables(context, &ids));
    if (ids.size() != partitions_.size()) return DoNotFit();
    std::atomic<bool> fit{true};
    TF_RETURN_IF_ERROR(ParallelFor(context, ids.size(), [&](int64_t i) {
      if (ids[i].num_rows > 0 && !IsWithin(ids[i], 0, ids[i].num_rows)) fit = false;
    }));
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i].num_table_rows != partitions_[i].num_rows(host_)) fit = false;
      TableIds<Id> table;
      table.num_table_rows = ids[i].num_table_rows;
      table.num_ids = ids[i].num_ids;
      table.num_rows = ids[i].num_rows;
      table.ids = const_cast<Id*>(ids[i].ids);
      table.row_ends = const_cast<int32_t*>(ids[i].row_ends);
      table.weights = const_cast<float*>(ids[i].weights);
      tables->push_back(table);
    }
    return fit ? absl::OkStatus() : DoNotFit();
  }

  absl::Status ReadCores(tensorflow::OpKernelContext* context, const Tables& tables,
                         std::vector<Cores>* cores) const {
    const tensorflow::Tensor* ends;
    TF_RETURN_IF_ERROR(context->input("replica_ends", &ends));
    const int64_t count = tables.size();
    if (ends->dims() != 2 || ends->dim_size(0) != count) return DoNotFit();
    const int64_t num_cores = ends->dim_size(1);
    cores->resize(count);
    for (int64_t i = 0; i < count; ++i) {
      if (!core_by_core_[i] || num_cores < 2) continue;
      // Every pair of a row and a core needs a distinct number.
      if (tables[i].num_table_rows > kMostRows / num_cores) return DoNotFit();
      int64_t last = 0;
      for (int64_t core = 0; core < num_cores; ++core) {
        const int64_t end = ends->matrix<int64_t>()(i, core);
        if (end < last) return DoNotFit();
        (*cores)[i].row_ends.push_back(last = end);
      }
      if (last != tables[i].num_rows) return DoNotFit();
      (*cores)[i].partition = &partitions_[i];
      (*cores)[i].part = host_;
    }
    return absl::OkStatus();
  }

  // Until they are counted, an id has room for one run.
  static absl::Status Allocate(tensorflow::OpKernelContext* context, Tables* tables,
                               tensorflow::Tensor* run_ids, tensorflow::Tensor* run_ends) {
    int64_t num_ids = 0, num_weights = 0;
    for (const TableIds<Id>& table : *tables) {
      num_ids += table.num_ids;
      num_weights += table.weights == nullptr ? 0 : table.num_ids;
    }
    tensorflow::Tensor *rows, *weights;
    TF_RETURN_IF_ERROR(context->allocate_output("run_rows", {num_ids}, &rows));
    TF_RETURN_IF_ERROR(context->allocate_output("run_weights", {num_weights}, &weights));
    TF_RETURN_IF_ERROR(
        context->allocate_temp(tensorflow::DataTypeToEnum<Id>::value, {num_ids}, run_ids));
    TF_RETURN_IF_ERROR(context->allocate_temp(tensorflow::DT_INT32, {num_ids}, run_ends));
    int64_t begin = 0, weights_begin = 0;
    for (TableIds<Id>& table : *tables) {
      table.run_rows = rows->flat<int32_t>().data() + begin;
      table.run_ids = run_ids->flat<Id>().data() + begin;
      table.run_ends = run_ends->flat<int32_t>().data() + begin;
      begin += table.num_ids;
      if (table.weights == nullptr) continue;
      table.run_weights = weights->flat<float>().data() + weights_begin;
      weights_begin += table.num_ids;
    }
    return absl::OkStatus();
  }

  static void AddAll(const std::vector<Cores>& cores, Tables* tables, SortedTables<Id>* sorted) {
    std::vector<size_t> order(tables->size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return (*tables)[a].num_ids > (*tables)[b].num_ids;
    });
    int64_t num_ids = 0;
    for (const TableIds<Id>& table : *tables) num_ids += table.num_ids;
    for (size_t i : order) sorted->Add(&(*tables)[i], cores[i], num_ids);
  }

  static absl::Status AllocateRuns(tensorflow::OpKernelContext* context, Tables* tables) {
    const tensorflow::Tensor* given;
    TF_RETURN_IF_ERROR(context->input("sizes", &given));
    int64_t num_runs = 0;
    for (const TableIds<Id>& table : *tables) num_runs += table.num_runs;
    tensorflow::Tensor *sizes, *run_ids, *run_ends;
    TF_RETURN_IF_ERROR(context->allocate_output("run_sizes", given->shape(), &sizes));
    TF_RETURN_IF_ERROR(context->allocate_output("run_ids", {num_runs}, &run_ids));
    TF_RETURN_IF_ERROR(context->allocate_output("run_ends", {num_runs}, &run_ends));
    sizes->matrix<int64_t>() = given->matrix<int64_t>();
    int64_t begin = 0;
    for (size_t i = 0; i < tables->size(); ++i) {
      TableIds<Id>& table = (*tables)[i];
      sizes->matrix<int64_t>()(i, kRuns) = table.num_runs;
      table.run_ids = run_ids->flat<Id>().data() + begin;
      table.run_ends = run_ends->flat<int32_t>().data() + begin;
      begin += table.num_runs;
    }
    return absl::OkStatus();
  }

  std::vector<bool> core_by_core_;
  std::vector<Partition> partitions_;
  int host_ = 0;
  ScratchPool scratch_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_SORT_IDS_OP_H_
