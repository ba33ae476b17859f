// SPDX-License-Identifier: Apache-2.0
// The op that chooses what prepared ids are sent to a host.
#ifndef TPU_ESTIMATOR_EMBEDDING_COMPACT_IDS_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_COMPACT_IDS_OP_H_

#include <algorithm>
#include <atomic>
#include <numeric>
#include <vector>

#include "attribute_checks.h"
#include "distinct_ids.h"
#include "parallel_for.h"
#include "prepared_ids.h"
#include "scratch_pool.h"

namespace tpu_estimator_embedding {

// A table is exchanged in the form that takes fewer bytes: sums, a row for every row of activations
// that has an id on the host, or rows, one for every distinct id. To the host, the second is a table
// with one id per row of activations, of weight 1.
template <class Id>
class CompactIdsOp : public tensorflow::OpKernel {
 public:
  explicit CompactIdsOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, Read(construction));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 private:
  struct Table {
    LookupIds<Id> ids;
    int64_t num_runs = 0;
    const Id* run_ids = nullptr;
    int64_t num_kept = 0;  // rows of activations with an id
    bool sends_rows = false;

    bool IsKept(int64_t row) const {
      return ids.row_ends[row] != (row == 0 ? 0 : ids.row_ends[row - 1]);
    }
    int64_t num_sent_ids() const { return sends_rows ? num_runs : ids.num_ids; }
    int64_t num_sent_rows() const { return sends_rows ? num_runs : num_kept; }
    // Other tasks may send sums of the same table, so that rows have weights and scales too.
    int64_t num_sent_weights() const { return ids.weights == nullptr ? 0 : num_sent_ids(); }
    int64_t num_sent_scales() const { return ids.scales == nullptr ? 0 : num_sent_rows(); }
    // What the host does not get: rows of activations of sums, or the position of every id.
    int64_t num_places() const { return sends_rows ? ids.num_ids : num_kept; }
  };
  using Tables = std::vector<Table>;

  absl::Status Read(tensorflow::OpKernelConstruction* construction) {
    TF_RETURN_IF_ERROR(construction->GetAttr("dims", &dims_));
    TF_RETURN_IF_ERROR(construction->GetAttr("may_send_rows", &may_send_rows_));
    TF_RETURN_IF_ERROR(CheckCount("dims", "table", may_send_rows_.size(), dims_.size()));
    return CheckAll("dims", dims_, 1, kMostColumns);
  }

  absl::Status Run(tensorflow::OpKernelContext* context) {
    Tables tables;
    TF_RETURN_IF_ERROR(View(context, &tables));
    TF_RETURN_IF_ERROR(ParallelFor(context, tables.size(), [&](int64_t i) {
      Table& table = tables[i];
      for (int64_t row = 0; row < table.ids.num_rows; ++row) table.num_kept += table.IsKept(row);
      table.sends_rows = may_send_rows_[i] && table.num_runs > 0 && AreRowsSmaller(table, dims_[i]);
    }));
    TF_RETURN_IF_ERROR(OutputSizes(context, tables));
    const absl::Status status = OutputTables(context, tables);
    scratch_.Trim();
    return status;
  }

  // Bytes of ids, ends, weights and scales, and of the values in both directions.
  static bool AreRowsSmaller(const Table& table, double dim) {
    const double of_weight = table.ids.weights == nullptr ? 0 : sizeof(float);
    const double of_scale = table.ids.scales == nullptr ? 0 : sizeof(float);
    const double of_id = sizeof(Id) + of_weight;
    const double of_row = sizeof(int32_t) + of_scale + 2 * sizeof(float) * dim;
    return table.num_runs * (of_id + of_row) < table.ids.num_ids * of_id + table.num_kept * of_row;
  }

  absl::Status View(tensorflow::OpKernelContext* context, Tables* tables) const {
    std::vector<LookupIds<Id>> ids;
    TF_RETURN_IF_ERROR(ViewTables(context, &ids));
    TF_RETURN_IF_ERROR(CheckCount("tables of the prepared ids", "table", dims_.size(), ids.size()));
    Pieces<Id> run_ids;
    TF_RETURN_IF_ERROR(run_ids.Open(context, "run_ids"));
    TF_RETURN_IF_ERROR(ForEachTable(context, [&](const int64_t* sizes) {
      tables->push_back({ids[tables->size()], sizes[kRuns], run_ids.Take(sizes[kRuns])});
    }));
    if (!run_ids.is_used_up()) return DoNotFit();
    const tensorflow::Tensor* counts;
    TF_RETURN_IF_ERROR(context->input("row_counts", &counts));
    if (counts->dims() != 2 || counts->dim_size(0) != static_cast<int64_t>(tables->size())) {
      return DoNotFit();
    }
    for (size_t i = 0; i < tables->size(); ++i) {
      int64_t left = (*tables)[i].ids.num_rows;
      for (int64_t replica = 0; replica < counts->dim_size(1); ++replica) {
        const int64_t count = counts->matrix<int64_t>()(i, replica);
        if (count < 0 || count > left) return DoNotFit();
        left -= count;
      }
      if (left != 0) return DoNotFit();
    }
    return absl::OkStatus();
  }

  static absl::Status OutputSizes(tensorflow::OpKernelContext* context, const Tables& tables) {
    const tensorflow::Tensor* given;
    TF_RETURN_IF_ERROR(context->input("sizes", &given));
    tensorflow::Tensor* output;
    TF_RETURN_IF_ERROR(context->allocate_output("sent_sizes", given->shape(), &output));
    auto sizes = output->matrix<int64_t>();
    sizes = given->matrix<int64_t>();
    for (size_t i = 0; i < tables.size(); ++i) {
      sizes(i, kIds) = tables[i].num_sent_ids();
      sizes(i, kRows) = tables[i].num_sent_rows();
      sizes(i, kRuns) = tables[i].sends_rows ? tables[i].num_runs : 0;
      sizes(i, kWeights) = tables[i].num_sent_weights();
      sizes(i, kScales) = tables[i].num_sent_scales();
    }
    return absl::OkStatus();
  }

  // Where the outputs of a table begin.
  struct Outputs {
    Id* ids;
    int32_t* row_ends;
    float *weights, *scales;
    int32_t* places;
    int64_t* replica_ends;
  };

  absl::Status OutputTables(tensorflow::OpKernelContext* context, const Tables& tables) {
    const tensorflow::Tensor* counts;
    TF_RETURN_IF_ERROR(context->input("row_counts", &counts));
    Outputs next;
    TF_RETURN_IF_ERROR(Allocate(context, tables, counts->shape(), &next));
    std::vector<Outputs> outputs;
    for (const Table& table : tables) {
      outputs.push_back(next);
      next.ids += table.num_sent_ids();
      next.row_ends += table.num_sent_rows();
      next.weights += table.num_sent_weights();
      next.scales += table.num_sent_scales();
      next.places += table.num_places();
      next.replica_ends += counts->dim_size(1);
    }
    const int64_t* count = counts->flat<int64_t>().data();
    const int64_t num_replicas = counts->dim_size(1);
    std::atomic<bool> fit{true};
    TF_RETURN_IF_ERROR(ParallelFor(context, tables.size(), [&](int64_t i) {
      SendSums(tables[i], count + i * num_replicas, num_replicas, outputs[i]);
      if (tables[i].sends_rows && !SendRows(tables[i], outputs[i])) fit = false;
    }));
    return fit ? absl::OkStatus() : DoNotFit();
  }

  static absl::Status Allocate(tensorflow::OpKernelContext* context, const Tables& tables,
                               const tensorflow::TensorShape& shape_of_ends, Outputs* outputs) {
    int64_t num_ids = 0, num_rows = 0, num_weights = 0, num_scales = 0, num_places = 0;
    for (const Table& table : tables) {
      num_ids += table.num_sent_ids();
      num_rows += table.num_sent_rows();
      num_weights += table.num_sent_weights();
      num_scales += table.num_sent_scales();
      num_places += table.num_places();
    }
    TF_RETURN_IF_ERROR(Output(context, "sent_ids", {num_ids}, &outputs->ids));
    TF_RETURN_IF_ERROR(Output(context, "sent_row_ends", {num_rows}, &outputs->row_ends));
    TF_RETURN_IF_ERROR(Output(context, "sent_weights", {num_weights}, &outputs->weights));
    TF_RETURN_IF_ERROR(Output(context, "sent_scales", {num_scales}, &outputs->scales));
    TF_RETURN_IF_ERROR(Output(context, "places", {num_places}, &outputs->places));
    return Output(context, "replica_ends", shape_of_ends, &outputs->replica_ends);
  }

  template <class T>
  static absl::Status Output(tensorflow::OpKernelContext* context, const char* name,
                             const tensorflow::TensorShape& shape, T** data) {
    tensorflow::Tensor* output;
    TF_RETURN_IF_ERROR(context->allocate_output(name, shape, &output));
    *data = output->flat<T>().data();
    return absl::OkStatus();
  }

  // Of a table that sends rows, only the ends of the replicas.
  static void SendSums(const Table& table, const int64_t* row_counts, int64_t num_replicas,
                       Outputs to) {
    const LookupIds<Id>& ids = table.ids;
    int64_t row = 0, kept = 0, end = 0;
    for (int64_t replica = 0; replica < num_replicas; ++replica) {
      for (end += row_counts[replica]; row < end; ++row) {
        if (!table.IsKept(row)) continue;
        ++kept;
        if (table.sends_rows) continue;
        *to.row_ends++ = ids.row_ends[row];
        if (ids.scales != nullptr) *to.scales++ = ids.scales[row];
        *to.places++ = static_cast<int32_t>(row);
      }
      to.replica_ends[replica] = kept;
    }
    if (table.sends_rows) return;
    std::copy_n(ids.ids, ids.num_ids, to.ids);
    if (ids.weights != nullptr) std::copy_n(ids.weights, ids.num_ids, to.weights);
  }

  // Returns false if an id has no run.
  bool SendRows(const Table& table, const Outputs& to) {
    std::copy_n(table.run_ids, table.num_runs, to.ids);
    std::iota(to.row_ends, to.row_ends + table.num_runs, 1);
    std::fill_n(to.weights, table.num_sent_weights(), 1.0f);
    std::fill_n(to.scales, table.num_sent_scales(), 1.0f);
    const DistinctIds<Id> distinct(table.run_ids, table.num_runs, &scratch_);
    bool fit = true;
    for (int64_t i = 0; i < table.ids.num_ids; ++i) {
      to.places[i] = distinct.Find(table.ids.ids[i]);
      fit = fit && to.places[i] != distinct.kNone;
    }
    return fit;
  }

  std::vector<int64_t> dims_;
  std::vector<bool> may_send_rows_;
  ScratchPool scratch_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_COMPACT_IDS_OP_H_
