// SPDX-License-Identifier: Apache-2.0
// The ops between the activations of a worker and the rows that it exchanges with hosts.
#ifndef TPU_ESTIMATOR_EMBEDDING_EXCHANGE_OPS_H_
#define TPU_ESTIMATOR_EMBEDDING_EXCHANGE_OPS_H_

#include <algorithm>
#include <atomic>
#include <vector>

#include "attribute_checks.h"
#include "exchanged_rows.h"
#include "parallel_for.h"
#include "prepare_attributes.h"
#include "prepared_ids.h"

namespace tpu_estimator_embedding {

constexpr int64_t kFloatsOfShare = 1 << 16;  // fewer are not worth another thread

struct RowRange {
  size_t table;
  int64_t begin, end;
};

inline void AddRanges(size_t table, int64_t num_rows, int64_t dim, std::vector<RowRange>* ranges) {
  const int64_t rows = kFloatsOfShare / dim + 1;
  for (int64_t begin = 0; begin < num_rows; begin += rows) {
    ranges->push_back({table, begin, std::min(begin + rows, num_rows)});
  }
}

// Views the rows of every table of a host; without values if `values` is null.
inline absl::Status ViewRows(const tensorflow::Tensor& sizes, const tensorflow::Tensor& rows,
                             const tensorflow::Tensor* values, const std::vector<int64_t>& dims,
                             std::vector<ExchangedRows>* tables) {
  if (sizes.dims() != 2 || sizes.dim_size(1) != kNumSizes ||
      sizes.dim_size(0) != static_cast<int64_t>(dims.size())) {
    return DoNotFit();
  }
  Pieces<int32_t> row_pieces(rows);
  Pieces<float> value_pieces;
  if (values != nullptr) value_pieces = Pieces<float>(*values);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t count = sizes.matrix<int64_t>()(i, kRows);
    if (count < 0 || count > kMostInStep) return DoNotFit();
    tables->push_back({count, row_pieces.Take(count),
                       values == nullptr ? nullptr : value_pieces.Take(count * dims[i])});
  }
  const bool fits =
      row_pieces.is_used_up() && (values == nullptr || value_pieces.is_used_up());
  return fits ? absl::OkStatus() : DoNotFit();
}

// Adds up the partial activations of the hosts.
class CombineOp : public tensorflow::OpKernel {
 public:
  explicit CombineOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, Read(construction));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 private:
  using Hosts = std::vector<std::vector<ExchangedRows>>;  // of every table

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

  absl::Status Run(tensorflow::OpKernelContext* context) const {
    Hosts hosts(dims_.size());
    TF_RETURN_IF_ERROR(View(context, &hosts));
    std::vector<float*> activations;
    std::vector<RowRange> ranges;
    TF_RETURN_IF_ERROR(Allocate(context, &activations, &ranges));
    std::atomic<bool> fit{true};
    TF_RETURN_IF_ERROR(ParallelFor(context, ranges.size(), [&](int64_t i) {
      const RowRange& range = ranges[i];
      if (!CombineRows(hosts[range.table], dims_[range.table], range.begin, range.end,
                       activations[range.table])) {
        fit = false;
      }
    }));
    return fit ? absl::OkStatus() : DoNotFit();
  }

  absl::Status View(tensorflow::OpKernelContext* context, Hosts* hosts) const {
    tensorflow::OpInputList sizes, rows, values;
    TF_RETURN_IF_ERROR(context->input_list("sizes", &sizes));
    TF_RETURN_IF_ERROR(context->input_list("rows", &rows));
    TF_RETURN_IF_ERROR(context->input_list("partial_activations", &values));
    for (int host = 0; host < sizes.size(); ++host) {
      std::vector<size_t> tables;
      std::vector<int64_t> dims;
      for (size_t i = 0; i < dims_.size(); ++i) {
        if (host >= num_parts_[i]) continue;
        tables.push_back(i);
        dims.push_back(dims_[i]);
      }
      std::vector<ExchangedRows> of_host;
      TF_RETURN_IF_ERROR(ViewRows(sizes[host], rows[host], &values[host], dims, &of_host));
      for (size_t i = 0; i < tables.size(); ++i) (*hosts)[tables[i]].push_back(of_host[i]);
    }
    return absl::OkStatus();
  }

  absl::Status Allocate(tensorflow::OpKernelContext* context, std::vector<float*>* activations,
                        std::vector<RowRange>* ranges) const {
    const tensorflow::Tensor* counts;
    TF_RETURN_IF_ERROR(context->input("row_counts", &counts));
    if (counts->dims() != 2 || counts->dim_size(0) != static_cast<int64_t>(dims_.size())) {
      return DoNotFit();
    }
    for (size_t i = 0; i < dims_.size(); ++i) {
      int64_t num_rows = 0;
      for (int64_t replica = 0; replica < counts->dim_size(1); ++replica) {
        const int64_t count = counts->matrix<int64_t>()(i, replica);
        if (count < 0 || count > kMostInStep - num_rows) return DoNotFit();
        num_rows += count;
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

  std::vector<int64_t> dims_, num_parts_;
};

// Gathers the gradients of the rows of a host.
class GatherGradientsOp : public tensorflow::OpKernel {
 public:
  explicit GatherGradientsOp(tensorflow::OpKernelConstruction* construction)
      : OpKernel(construction) {}

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 private:
  static absl::Status Run(tensorflow::OpKernelContext* context) {
    tensorflow::OpInputList gradients;
    TF_RETURN_IF_ERROR(context->input_list("gradients", &gradients));
    std::vector<int64_t> dims;
    for (const tensorflow::Tensor& gradient : gradients) {
      if (gradient.dims() != 2) return DoNotFit();
      dims.push_back(gradient.dim_size(1));
      TF_RETURN_IF_ERROR(CheckRange("columns of a gradient", dims.back(), 1, kMostColumns));
    }
    const tensorflow::Tensor *sizes, *rows;
    TF_RETURN_IF_ERROR(context->input("sizes", &sizes));
    TF_RETURN_IF_ERROR(context->input("rows", &rows));
    std::vector<ExchangedRows> tables;
    TF_RETURN_IF_ERROR(ViewRows(*sizes, *rows, nullptr, dims, &tables));
    std::vector<RowRange> ranges;
    std::vector<int64_t> begins;
    int64_t num_values = 0;
    for (size_t i = 0; i < tables.size(); ++i) {
      begins.push_back(num_values);
      num_values += tables[i].num_rows * dims[i];
      AddRanges(i, tables[i].num_rows, dims[i], &ranges);
    }
    tensorflow::Tensor* output;
    TF_RETURN_IF_ERROR(context->allocate_output(0, {num_values}, &output));
    float* const values = output->flat<float>().data();
    std::atomic<bool> fit{true};
    TF_RETURN_IF_ERROR(ParallelFor(context, ranges.size(), [&](int64_t i) {
      const size_t table = ranges[i].table;
      const tensorflow::Tensor& gradient = gradients[table];
      if (!GatherRows(gradient.flat<float>().data(), gradient.dim_size(0), dims[table],
                      tables[table].rows, ranges[i].begin, ranges[i].end,
                      values + begins[table])) {
        fit = false;
      }
    }));
    return fit ? absl::OkStatus() : DoNotFit();
  }
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_EXCHANGE_OPS_H_
