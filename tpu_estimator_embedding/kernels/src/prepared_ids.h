// SPDX-License-Identifier: Apache-2.0
// The prepared ids of one host as tensors: those of all its tables one after another.
#ifndef TPU_ESTIMATOR_EMBEDDING_PREPARED_IDS_H_
#define TPU_ESTIMATOR_EMBEDDING_PREPARED_IDS_H_

#include <vector>

#include "table_ids.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tpu_estimator_embedding {

// The columns of `sizes`, of which every table of the host has a row.
enum Size { kTableRows, kIds, kRows, kRuns, kWeights, kScales, kNumSizes };

// Hands a tensor out piece by piece, each where the one before ended.
template <class T>
class Pieces {
 public:
  explicit Pieces(const tensorflow::Tensor& tensor)
      : data_(const_cast<T*>(tensor.flat<T>().data())), left_(tensor.NumElements()) {}

  T* Take(int64_t size) {
    T* piece = data_;
    data_ += size;
    left_ -= size;
    return piece;
  }
  // As `Take`, but null where there are none.
  T* TakeAny(int64_t size) { return size == 0 ? nullptr : Take(size); }
  bool is_used_up() const { return left_ == 0; }

 private:
  T* data_;
  int64_t left_;
};

// The tensors that a lookup needs; those of an update besides.
struct PreparedTensors {
  const tensorflow::Tensor *sizes, *scales;
  const tensorflow::Tensor *ids = nullptr, *row_ends = nullptr, *weights = nullptr;
  const tensorflow::Tensor *run_ids = nullptr, *run_ends = nullptr, *run_rows = nullptr,
                           *run_weights = nullptr;
};

// Returns the views of every table; an error where sizes and tensors do not fit together.
template <class Id>
absl::Status ViewTables(const PreparedTensors& tensors, std::vector<TableIds<Id>>* tables) {
  const auto is_bad = [] {
    return absl::InvalidArgumentError("Prepared ids do not fit together.");
  };
  if (!tensorflow::TensorShapeUtils::IsMatrix(tensors.sizes->shape()) ||
      tensors.sizes->dim_size(1) != kNumSizes) {
    return is_bad();
  }
  const tensorflow::Tensor no_ids(tensorflow::DataTypeToEnum<Id>::value, {0});
  const tensorflow::Tensor no_ends(tensorflow::DT_INT32, {0});
  const tensorflow::Tensor no_floats(tensorflow::DT_FLOAT, {0});
  const bool is_lookup = tensors.ids != nullptr;
  Pieces<Id> ids(is_lookup ? *tensors.ids : no_ids);
  Pieces<int32_t> row_ends(is_lookup ? *tensors.row_ends : no_ends);
  Pieces<float> weights(is_lookup ? *tensors.weights : no_floats), scales(*tensors.scales);
  Pieces<Id> run_ids(is_lookup ? no_ids : *tensors.run_ids);
  Pieces<int32_t> run_ends(is_lookup ? no_ends : *tensors.run_ends);
  Pieces<int32_t> run_rows(is_lookup ? no_ends : *tensors.run_rows);
  Pieces<float> run_weights(is_lookup ? no_floats : *tensors.run_weights);
  const auto sizes = tensors.sizes->matrix<int64_t>();
  for (int64_t i = 0; i < tensors.sizes->dim_size(0); ++i) {
    TableIds<Id> table;
    table.num_table_rows = sizes(i, kTableRows);
    table.num_ids = sizes(i, kIds);
    table.num_rows = sizes(i, kRows);
    table.num_runs = sizes(i, kRuns);
    table.scales = scales.TakeAny(sizes(i, kScales));
    if (is_lookup) {
      table.ids = ids.Take(table.num_ids);
      table.row_ends = row_ends.Take(table.num_rows);
      table.weights = weights.TakeAny(sizes(i, kWeights));
    } else {
      table.run_ids = run_ids.Take(table.num_runs);
      table.run_ends = run_ends.Take(table.num_runs);
      table.run_rows = run_rows.Take(table.num_ids);
      table.run_weights = run_weights.TakeAny(sizes(i, kWeights));
    }
    tables->push_back(table);
  }
  const bool fits = ids.is_used_up() && row_ends.is_used_up() && weights.is_used_up() &&
                    scales.is_used_up() && run_ids.is_used_up() && run_ends.is_used_up() &&
                    run_rows.is_used_up() && run_weights.is_used_up();
  return fits ? absl::OkStatus() : is_bad();
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PREPARED_IDS_H_
