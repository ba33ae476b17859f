// SPDX-License-Identifier: Apache-2.0
// The prepared ids of one host as tensors: those of all its tables concatenated.
#ifndef TPU_ESTIMATOR_EMBEDDING_PREPARED_IDS_H_
#define TPU_ESTIMATOR_EMBEDDING_PREPARED_IDS_H_

#include <vector>

#include "check_prepared.h"
#include "table_ids.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tpu_estimator_embedding {

// The columns of `sizes`, which has a row for every table of the host.
enum Size { kTableRows, kIds, kRows, kRuns, kWeights, kScales, kNumSizes };

inline absl::Status DoNotFit() {
  return absl::InvalidArgumentError(
      "Prepared ids must fit together: give all of them as one TpuEmbeddingPrepareIds made them.");
}

// Returns consecutive pieces of a tensor.
template <class T>
class Pieces {
 public:
  Pieces() = default;
  explicit Pieces(const tensorflow::Tensor& tensor)
      : data_(tensor.flat<T>().data()), left_(tensor.NumElements()) {}

  // Opens an input of the op.
  absl::Status Open(tensorflow::OpKernelContext* context, const char* name) {
    const tensorflow::Tensor* tensor;
    TF_RETURN_IF_ERROR(context->input(name, &tensor));
    *this = Pieces(*tensor);
    return absl::OkStatus();
  }

  // Returns the next piece, null if fewer values are left.
  const T* Take(int64_t size) {
    fits_ = fits_ && size >= 0 && size <= left_;
    if (!fits_) return nullptr;
    const T* piece = data_;
    data_ += size;
    left_ -= size;
    return piece;
  }
  // Like `Take` for optional values: null if there are none.
  const T* TakeAllOrNone(int64_t size, int64_t all) {
    fits_ = fits_ && (size == 0 || size == all);
    const T* piece = Take(size);
    return size == 0 ? nullptr : piece;
  }
  bool is_used_up() const { return fits_ && left_ == 0; }

 private:
  const T* data_ = nullptr;
  int64_t left_ = 0;
  bool fits_ = true;
};

// Calls add(sizes of table) for every table of a host. Only the table itself may have more rows
// than a step: a multiple of any other size cannot overflow.
template <class Add>
absl::Status ForEachTable(const tensorflow::Tensor& sizes, const Add& add) {
  if (sizes.dims() != 2 || sizes.dim_size(1) != kNumSizes) return DoNotFit();
  const int64_t* values = sizes.flat<int64_t>().data();
  for (int64_t i = 0; i < sizes.dim_size(0); ++i) {
    for (int column = 0; column < kNumSizes; ++column) {
      const int64_t size = values[i * kNumSizes + column];
      if (size < 0 || (column != kTableRows && size > kMostInStep)) return DoNotFit();
    }
    add(values + i * kNumSizes);
  }
  return absl::OkStatus();
}
template <class Add>
absl::Status ForEachTable(tensorflow::OpKernelContext* context, const Add& add) {
  const tensorflow::Tensor* sizes;
  TF_RETURN_IF_ERROR(context->input("sizes", &sizes));
  return ForEachTable(*sizes, add);
}

// Returns views of what a lookup reads for every table, or an error if sizes and tensors do not
// match. It does not check the contents of the tensors.
template <class Id>
absl::Status ViewTables(tensorflow::OpKernelContext* context, std::vector<LookupIds<Id>>* tables) {
  Pieces<Id> ids;
  Pieces<int32_t> row_ends;
  Pieces<float> weights, scales;
  TF_RETURN_IF_ERROR(ids.Open(context, "ids"));
  TF_RETURN_IF_ERROR(row_ends.Open(context, "row_ends"));
  TF_RETURN_IF_ERROR(weights.Open(context, "weights"));
  TF_RETURN_IF_ERROR(scales.Open(context, "scales"));
  const tensorflow::Tensor* all_sizes;
  TF_RETURN_IF_ERROR(context->input("sizes", &all_sizes));
  if (all_sizes->dims() > 0) tables->reserve(all_sizes->dim_size(0));
  TF_RETURN_IF_ERROR(ForEachTable(*all_sizes, [&](const int64_t* sizes) {
    tables->push_back({sizes[kTableRows], sizes[kIds], sizes[kRows], ids.Take(sizes[kIds]),
                       row_ends.Take(sizes[kRows]),
                       weights.TakeAllOrNone(sizes[kWeights], sizes[kIds]),
                       scales.TakeAllOrNone(sizes[kScales], sizes[kRows])});
  }));
  bool fits = ids.is_used_up() && row_ends.is_used_up() && weights.is_used_up() &&
              scales.is_used_up();
  for (size_t i = 0; fits && i < tables->size(); ++i) fits = IsComplete((*tables)[i]);
  return fits ? absl::OkStatus() : DoNotFit();
}

// The same for an update.
template <class Id>
absl::Status ViewTables(tensorflow::OpKernelContext* context, std::vector<UpdateIds<Id>>* tables) {
  Pieces<Id> run_ids;
  Pieces<int32_t> run_ends, run_rows;
  Pieces<float> run_weights, scales;
  TF_RETURN_IF_ERROR(run_ids.Open(context, "run_ids"));
  TF_RETURN_IF_ERROR(run_ends.Open(context, "run_ends"));
  TF_RETURN_IF_ERROR(run_rows.Open(context, "run_rows"));
  TF_RETURN_IF_ERROR(run_weights.Open(context, "run_weights"));
  TF_RETURN_IF_ERROR(scales.Open(context, "scales"));
  const tensorflow::Tensor* all_sizes;
  TF_RETURN_IF_ERROR(context->input("sizes", &all_sizes));
  if (all_sizes->dims() > 0) tables->reserve(all_sizes->dim_size(0));
  TF_RETURN_IF_ERROR(ForEachTable(*all_sizes, [&](const int64_t* sizes) {
    tables->push_back({sizes[kTableRows], sizes[kIds], sizes[kRows], sizes[kRuns],
                       run_ids.Take(sizes[kRuns]), run_ends.Take(sizes[kRuns]),
                       run_rows.Take(sizes[kIds]),
                       run_weights.TakeAllOrNone(sizes[kWeights], sizes[kIds]),
                       scales.TakeAllOrNone(sizes[kScales], sizes[kRows])});
  }));
  bool fits = run_ids.is_used_up() && run_ends.is_used_up() && run_rows.is_used_up() &&
              run_weights.is_used_up() && scales.is_used_up();
  for (size_t i = 0; fits && i < tables->size(); ++i) fits = IsComplete((*tables)[i]);
  return fits ? absl::OkStatus() : DoNotFit();
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PREPARED_IDS_H_
