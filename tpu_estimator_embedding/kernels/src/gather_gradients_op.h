// SPDX-License-Identifier: Apache-2.0
// The op that makes the gradients for a host from those of a worker's activations.
#ifndef TPU_ESTIMATOR_EMBEDDING_GATHER_GRADIENTS_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_GATHER_GRADIENTS_OP_H_

#include <atomic>
#include <vector>

#include "attribute_checks.h"
#include "exchanged_tables.h"
#include "parallel_for.h"
#include "row_kernels.h"
#include "scratch_pool.h"

namespace tpu_estimator_embedding {

// The gradients of sums are copied. The gradient of a row is the sum over its run, in the order and
// with the factors of an update.
class GatherGradientsOp : public tensorflow::OpKernel {
 public:
  explicit GatherGradientsOp(tensorflow::OpKernelConstruction* construction)
      : OpKernel(construction) {}

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 private:
  struct Table {
    bool has_rows = false;
    ExchangedSums sums;         // without values
    Lookup<int32_t> lookup;     // of gradients of activations, for every run
    const float* scales = nullptr;
    float* factors = nullptr;   // of each id of the runs, if there are scales
  };
  using Tables = std::vector<Table>;

  absl::Status Run(tensorflow::OpKernelContext* context) {
    Tables tables;
    TF_RETURN_IF_ERROR(View(context, &tables));
    int64_t num_factors = 0;
    for (const Table& table : tables) num_factors += NumFactors(table);
    const ScratchPool::Buffer buffer = scratch_.Take(num_factors * sizeof(float));
    float* factors = buffer.as<float>();
    for (Table& table : tables) {
      table.factors = factors;
      factors += NumFactors(table);
    }
    std::vector<RowRange> ranges;
    TF_RETURN_IF_ERROR(Allocate(context, &tables, &ranges));
    std::atomic<bool> fit{true};
    TF_RETURN_IF_ERROR(ParallelFor(context, ranges.size(), [&](int64_t i) {
      const RowRange& range = ranges[i];
      const Table& table = tables[range.table];
      const Lookup<int32_t>& task = table.lookup;
      const bool fits =
          table.has_rows ? SumRuns(table, range.begin, range.end)
                         : GatherRows(task.table, task.ids.num_table_rows, task.dim,
                                      table.sums.rows, range.begin, range.end, task.activations);
      if (!fits) fit = false;
    }));
    return fit ? absl::OkStatus() : DoNotFit();
  }

  static int64_t NumFactors(const Table& table) {
    return table.has_rows && table.scales != nullptr ? table.lookup.ids.num_ids : 0;
  }

  static absl::Status View(tensorflow::OpKernelContext* context, Tables* tables) {
    tensorflow::OpInputList gradients;
    TF_RETURN_IF_ERROR(context->input_list("gradients", &gradients));
    const tensorflow::Tensor *sent_sizes, *sizes, *places;
    TF_RETURN_IF_ERROR(context->input("sent_sizes", &sent_sizes));
    TF_RETURN_IF_ERROR(context->input("sizes", &sizes));
    TF_RETURN_IF_ERROR(context->input("places", &places));
    std::vector<ExchangedTable> exchanged;
    TF_RETURN_IF_ERROR(ViewExchanged(*sent_sizes, *sizes, *places, &exchanged));
    TF_RETURN_IF_ERROR(
        CheckCount("gradients", "table", exchanged.size(), gradients.size()));
    Pieces<int32_t> run_ends, run_rows;
    Pieces<float> run_weights, scales;
    TF_RETURN_IF_ERROR(run_ends.Open(context, "run_ends"));
    TF_RETURN_IF_ERROR(run_rows.Open(context, "run_rows"));
    TF_RETURN_IF_ERROR(run_weights.Open(context, "run_weights"));
    TF_RETURN_IF_ERROR(scales.Open(context, "scales"));
    for (size_t i = 0; i < exchanged.size(); ++i) {
      const ExchangedTable& from = exchanged[i];
      const int64_t* own = from.own_sizes;
      const tensorflow::Tensor& gradient = gradients[i];
      if (gradient.dims() != 2 || gradient.dim_size(0) != own[kRows]) return DoNotFit();
      const int64_t dim = gradient.dim_size(1);
      TF_RETURN_IF_ERROR(CheckRange("columns of a gradient", dim, 1, kMostColumns));
      Table table = {from.has_rows, {from.num_sent, from.places, nullptr}, {}, nullptr, nullptr};
      LookupIds<int32_t>& ids = table.lookup.ids;
      ids = {own[kRows], own[kIds], own[kRuns], run_rows.Take(own[kIds]),
             run_ends.Take(own[kRuns]), run_weights.TakeAllOrNone(own[kWeights], own[kIds]),
             nullptr};
      table.lookup.dim = dim;
      table.lookup.stride = dim;
      table.lookup.table = gradient.flat<float>().data();
      table.scales = scales.TakeAllOrNone(own[kScales], own[kRows]);
      tables->push_back(table);
    }
    bool fits = run_ends.is_used_up() && run_rows.is_used_up() && run_weights.is_used_up() &&
                scales.is_used_up();
    for (size_t i = 0; fits && i < tables->size(); ++i) fits = IsComplete((*tables)[i].lookup.ids);
    return fits ? absl::OkStatus() : DoNotFit();
  }

  static absl::Status Allocate(tensorflow::OpKernelContext* context, Tables* tables,
                               std::vector<RowRange>* ranges) {
    int64_t num_values = 0;
    for (const Table& table : *tables) num_values += table.sums.num_rows * table.lookup.dim;
    tensorflow::Tensor* output;
    TF_RETURN_IF_ERROR(context->allocate_output(0, {num_values}, &output));
    float* values = output->flat<float>().data();
    for (size_t i = 0; i < tables->size(); ++i) {
      Table& table = (*tables)[i];
      table.lookup.activations = values;
      values += table.sums.num_rows * table.lookup.dim;
      AddRanges(i, table.sums.num_rows, table.lookup.dim, ranges);
    }
    return absl::OkStatus();
  }

  // Sums the gradients of a range of runs; returns false if something does not fit.
  static bool SumRuns(const Table& table, int64_t begin, int64_t end) {
    Lookup<int32_t> task = table.lookup;
    if (!IsWithin(task.ids, begin, end)) return false;
    if (table.scales != nullptr) {
      const float* weights = task.ids.weights;
      for (int32_t i = begin == 0 ? 0 : task.ids.row_ends[begin - 1];
           i < task.ids.row_ends[end - 1]; ++i) {
        const float scale = table.scales[task.ids.ids[i]];
        table.factors[i] = weights == nullptr ? scale : scale * weights[i];
      }
      task.ids.weights = table.factors;
    }
    BestRowKernels()(task, begin, end);
    return true;
  }

  ScratchPool scratch_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_GATHER_GRADIENTS_OP_H_
