// SPDX-License-Identifier: Apache-2.0
// The op that drops the empty rows of a host from prepared ids, before they are sent to it.
#ifndef TPU_ESTIMATOR_EMBEDDING_COMPACT_IDS_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_COMPACT_IDS_OP_H_

#include <algorithm>
#include <limits>
#include <vector>

#include "parallel_for.h"
#include "prepared_ids.h"

namespace tpu_estimator_embedding {

class CompactIdsOp : public tensorflow::OpKernel {
 public:
  explicit CompactIdsOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {}

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 private:
  struct Table {
    int64_t num_rows = 0;
    const int32_t* row_ends = nullptr;
    const float* scales = nullptr;
    int64_t num_kept = 0;

    bool IsKept(int64_t row) const { return row_ends[row] != (row == 0 ? 0 : row_ends[row - 1]); }
  };

  static absl::Status Run(tensorflow::OpKernelContext* context) {
    std::vector<Table> tables;
    TF_RETURN_IF_ERROR(View(context, &tables));
    TF_RETURN_IF_ERROR(ParallelFor(context, tables.size(), [&](int64_t i) {
      for (int64_t row = 0; row < tables[i].num_rows; ++row) {
        tables[i].num_kept += tables[i].IsKept(row);
      }
    }));
    TF_RETURN_IF_ERROR(OutputSizes(context, tables));
    return OutputRows(context, tables);
  }

  static absl::Status View(tensorflow::OpKernelContext* context, std::vector<Table>* tables) {
    Pieces<int32_t> row_ends;
    Pieces<float> scales;
    TF_RETURN_IF_ERROR(row_ends.Open(context, "row_ends"));
    TF_RETURN_IF_ERROR(scales.Open(context, "scales"));
    TF_RETURN_IF_ERROR(ForEachTable(context, [&](const int64_t* sizes) {
      tables->push_back({sizes[kRows], row_ends.Take(sizes[kRows]),
                         scales.TakeAllOrNone(sizes[kScales], sizes[kRows])});
    }));
    if (!row_ends.is_used_up() || !scales.is_used_up()) return DoNotFit();
    const tensorflow::Tensor* counts;
    TF_RETURN_IF_ERROR(context->input("row_counts", &counts));
    if (counts->dims() != 2 || counts->dim_size(0) != static_cast<int64_t>(tables->size())) {
      return DoNotFit();
    }
    for (size_t i = 0; i < tables->size(); ++i) {
      int64_t left = (*tables)[i].num_rows;
      for (int64_t replica = 0; replica < counts->dim_size(1); ++replica) {
        const int64_t count = counts->matrix<int64_t>()(i, replica);
        if (count < 0 || count > left) return DoNotFit();
        left -= count;
      }
      if (left != 0) return DoNotFit();
    }
    return absl::OkStatus();
  }

  static absl::Status OutputSizes(tensorflow::OpKernelContext* context,
                                  const std::vector<Table>& tables) {
    const tensorflow::Tensor* given;
    TF_RETURN_IF_ERROR(context->input("sizes", &given));
    tensorflow::Tensor* output;
    TF_RETURN_IF_ERROR(context->allocate_output("compact_sizes", given->shape(), &output));
    auto sizes = output->matrix<int64_t>();
    sizes = given->matrix<int64_t>();
    for (size_t i = 0; i < tables.size(); ++i) {
      sizes(i, kRows) = tables[i].num_kept;
      sizes(i, kRuns) = 0;  // the host sorts
      sizes(i, kScales) = tables[i].scales == nullptr ? 0 : tables[i].num_kept;
    }
    return absl::OkStatus();
  }

  static absl::Status OutputRows(tensorflow::OpKernelContext* context,
                                 const std::vector<Table>& tables) {
    int64_t num_kept = 0, num_scales = 0;
    for (const Table& table : tables) {
      num_kept += table.num_kept;
      num_scales += table.scales == nullptr ? 0 : table.num_kept;
    }
    const tensorflow::Tensor* counts;
    TF_RETURN_IF_ERROR(context->input("row_counts", &counts));
    tensorflow::Tensor *row_ends, *scales, *rows, *replica_ends;
    TF_RETURN_IF_ERROR(context->allocate_output("compact_row_ends", {num_kept}, &row_ends));
    TF_RETURN_IF_ERROR(context->allocate_output("compact_scales", {num_scales}, &scales));
    TF_RETURN_IF_ERROR(context->allocate_output("rows", {num_kept}, &rows));
    TF_RETURN_IF_ERROR(context->allocate_output("replica_ends", counts->shape(), &replica_ends));
    int32_t* end_to = row_ends->flat<int32_t>().data();
    float* scale_to = scales->flat<float>().data();
    int32_t* row_to = rows->flat<int32_t>().data();
    for (size_t i = 0; i < tables.size(); ++i) {
      const Table& table = tables[i];
      int64_t row = 0, kept = 0, end = 0;
      for (int64_t replica = 0; replica < counts->dim_size(1); ++replica) {
        for (end += counts->matrix<int64_t>()(i, replica); row < end; ++row) {
          if (!table.IsKept(row)) continue;
          *end_to++ = table.row_ends[row];
          if (table.scales != nullptr) *scale_to++ = table.scales[row];
          *row_to++ = static_cast<int32_t>(row);
          ++kept;
        }
        replica_ends->matrix<int64_t>()(i, replica) = kept;
      }
    }
    return absl::OkStatus();
  }
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_COMPACT_IDS_OP_H_
