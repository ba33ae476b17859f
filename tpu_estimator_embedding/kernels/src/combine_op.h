// SPDX-License-Identifier: Apache-2.0
// The op that makes the activations of a worker from the sums and rows that hosts sent.
#ifndef TPU_ESTIMATOR_EMBEDDING_COMBINE_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_COMBINE_OP_H_

#include <algorithm>
#include <atomic>
#include <vector>

#include "attribute_checks.h"
#include "exchanged_tables.h"
#include "parallel_for.h"
#include "row_kernels.h"
#include "scratch_pool.h"

namespace tpu_estimator_embedding {

// Adds up the hosts in their order.
class CombineOp : public tensorflow::OpKernel {
 public:
  explicit CombineOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, Read(construction));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 private:
  // A table on one host: sums, or rows, from which the sums are looked up.
  struct HostTable {
    bool has_rows = false;
    ExchangedSums sums;
    Lookup<int32_t> lookup;
  };
  using Hosts = std::vector<std::vector<HostTable>>;  // of every table

  absl::Status Read(tensorflow::OpKernelConstruction* construction) {
    int64_t num_tables;
    TF_RETURN_IF_ERROR(construction->GetAttr("num_tables", &num_tables));
    TF_RETURN_IF_ERROR(construction->GetAttr("dims", &dims_));
    TF_RETURN_IF_ERROR(construction->GetAttr("num_parts", &num_parts_));
    TF_RETURN_IF_ERROR(CheckCount("dims", "table", num_tables, dims_.size()));
    TF_RETURN_IF_ERROR(CheckCount("num_parts", "table", num_tables, num_parts_.size()));
    int64_t num_hosts;
    TF_RETURN_IF_ERROR(construction->GetAttr("num_hosts", &num_hosts));
    TF_RETURN_IF_ERROR(CheckAll("num_parts", num_parts_, 1, num_hosts));
    return CheckAll("dims", dims_, 1, kMostColumns);
  }

  absl::Status Run(tensorflow::OpKernelContext* context) {
    Hosts hosts(dims_.size());
    TF_RETURN_IF_ERROR(View(context, &hosts));
    std::vector<float*> activations;
    std::vector<RowRange> ranges;
    TF_RETURN_IF_ERROR(Allocate(context, hosts, &activations, &ranges));
    std::atomic<bool> fit{true};
    const absl::Status status = ParallelFor(context, ranges.size(), [&](int64_t i) {
      const RowRange& range = ranges[i];
      if (!CombineRows(hosts[range.table], dims_[range.table], range,
                       activations[range.table])) {
        fit = false;
      }
    });
    scratch_.Trim();
    TF_RETURN_IF_ERROR(status);
    return fit ? absl::OkStatus() : DoNotFit();
  }

  absl::Status View(tensorflow::OpKernelContext* context, Hosts* hosts) const {
    tensorflow::OpInputList sent_sizes;
    TF_RETURN_IF_ERROR(context->input_list("sent_sizes", &sent_sizes));
    for (int host = 0; host < sent_sizes.size(); ++host) {
      std::vector<size_t> tables;
      for (size_t i = 0; i < dims_.size(); ++i) {
        if (host < num_parts_[i]) tables.push_back(i);
      }
      TF_RETURN_IF_ERROR(ViewHost(context, host, tables, hosts));
    }
    return absl::OkStatus();
  }

  absl::Status ViewHost(tensorflow::OpKernelContext* context, int host,
                        const std::vector<size_t>& tables, Hosts* hosts) const {
    std::vector<tensorflow::OpInputList> lists(7);
    const char* const names[] = {"sent_sizes", "sizes",   "places", "values",
                                 "row_ends",   "weights", "scales"};
    for (size_t i = 0; i < lists.size(); ++i) {
      TF_RETURN_IF_ERROR(context->input_list(names[i], &lists[i]));
    }
    std::vector<ExchangedTable> exchanged;
    TF_RETURN_IF_ERROR(
        ViewExchanged(lists[0][host], lists[1][host], lists[2][host], &exchanged));
    if (exchanged.size() != tables.size()) return DoNotFit();
    Pieces<float> values(lists[3][host]), weights(lists[5][host]), scales(lists[6][host]);
    Pieces<int32_t> row_ends(lists[4][host]);
    for (size_t i = 0; i < tables.size(); ++i) {
      const ExchangedTable& table = exchanged[i];
      const int64_t* sizes = table.own_sizes;
      const int64_t dim = dims_[tables[i]];
      const float* of_table = values.Take(table.num_sent * dim);
      const LookupIds<int32_t> ids = {table.num_sent, sizes[kIds], sizes[kRows], table.places,
                                      row_ends.Take(sizes[kRows]),
                                      weights.TakeAllOrNone(sizes[kWeights], sizes[kIds]),
                                      scales.TakeAllOrNone(sizes[kScales], sizes[kRows])};
      (*hosts)[tables[i]].push_back({table.has_rows, {table.num_sent, table.places, of_table},
                                     {ids, dim, of_table, nullptr}});
    }
    bool fits = values.is_used_up() && row_ends.is_used_up() && weights.is_used_up() &&
                scales.is_used_up();
    for (size_t i = 0; fits && i < tables.size(); ++i) {
      fits = IsComplete((*hosts)[tables[i]].back().lookup.ids);
    }
    return fits ? absl::OkStatus() : DoNotFit();
  }

  absl::Status Allocate(tensorflow::OpKernelContext* context, const Hosts& hosts,
                        std::vector<float*>* activations, std::vector<RowRange>* ranges) const {
    for (size_t i = 0; i < dims_.size(); ++i) {
      const int64_t num_rows = hosts[i][0].lookup.ids.num_rows;
      for (const HostTable& host : hosts[i]) {
        if (host.lookup.ids.num_rows != num_rows) return DoNotFit();
      }
      tensorflow::TensorShape shape;
      TF_RETURN_IF_ERROR(tensorflow::TensorShape::BuildTensorShape({num_rows, dims_[i]}, &shape));
      tensorflow::Tensor* output;
      TF_RETURN_IF_ERROR(context->allocate_output(i, shape, &output));
      activations->push_back(output->flat<float>().data());
      AddRanges(i, num_rows, dims_[i], ranges);
    }
    return absl::OkStatus();
  }

  // Sets a range of rows; returns false if something does not fit.
  bool CombineRows(const std::vector<HostTable>& hosts, int64_t dim, const RowRange& range,
                   float* activations) {
    std::fill(activations + range.begin * dim, activations + range.end * dim, 0.0f);
    for (const HostTable& host : hosts) {
      const bool fits =
          host.has_rows ? AddLookedUp(host.lookup, range, activations)
                        : AddSums(host.sums, dim, range.begin, range.end, activations);
      if (!fits) return false;
    }
    return true;
  }

  // Looks up into scratch memory, for a kernel does not add to what is there.
  bool AddLookedUp(Lookup<int32_t> task, const RowRange& range, float* activations) {
    if (!IsWithin(task.ids, range.begin, range.end)) return false;
    // The row before the range stays in the view: its end is where the range begins.
    const int64_t first = std::max<int64_t>(range.begin - 1, 0);
    task.ids.row_ends += first;
    if (task.ids.scales != nullptr) task.ids.scales += first;
    const ScratchPool::Buffer buffer =
        scratch_.Take((RowsOfShare(task.dim) + 1) * task.dim * sizeof(float));
    task.activations = buffer.as<float>();
    task.stride = task.dim;
    BestRowKernels()(task, range.begin - first, range.end - first);
    const float* from = task.activations + (range.begin - first) * task.dim;
    float* __restrict__ to = activations + range.begin * task.dim;
    for (int64_t i = 0; i < (range.end - range.begin) * task.dim; ++i) to[i] += from[i];
    return true;
  }

  std::vector<int64_t> dims_, num_parts_;
  ScratchPool scratch_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_COMBINE_OP_H_
