// SPDX-License-Identifier: Apache-2.0
// Variables whose rows are read from a checkpoint when they are looked up.
#ifndef TPU_ESTIMATOR_EMBEDDING_STORED_VARIABLES_H_
#define TPU_ESTIMATOR_EMBEDDING_STORED_VARIABLES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel_for.h"
#include "prepared_ids.h"
#include "row_kernels.h"
#include "stored_table.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_encode_decode.h"
#include "tensorflow/core/framework/variant_tensor_data.h"

namespace tpu_estimator_embedding {

// The value of such a variable, in a scalar tensor of dtype variant: TensorFlow's ops, which expect
// float32, refuse to read it.
struct StoredValue {
  std::shared_ptr<StoredTable> table;

  std::string TypeName() const { return "tpu_estimator_embedding::StoredValue"; }
  void Encode(tensorflow::VariantTensorData*) const {}
  bool Decode(tensorflow::VariantTensorData) { return false; }
};

// Returns the table of a variable's value, or null if the tensor holds the rows.
inline std::shared_ptr<StoredTable> FindStoredTable(const tensorflow::Tensor& value) {
  if (value.dtype() != tensorflow::DT_VARIANT || value.NumElements() != 1) return nullptr;
  const auto* const stored = value.flat<tensorflow::Variant>()(0).get<StoredValue>();
  return stored == nullptr ? nullptr : stored->table;
}

// The lookups of an op in such tables. It owns the rows that they read.
template <class Id>
class StoredLookups {
 public:
  // Adds a lookup, which must stay where it is.
  absl::Status Add(std::shared_ptr<StoredTable> table, const std::string& name, Lookup<Id>* task) {
    if (table->num_rows() != task->ids.num_table_rows || table->dim() != task->dim) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`", name, "` must be of shape [", task->ids.num_table_rows, ",", task->dim, "], got [",
          table->num_rows(), ",", table->dim(), "] in the checkpoint."));
    }
    lookups_.push_back({std::move(table), task, {}, nullptr});
    return absl::OkStatus();
  }

  // Reads the rows that are looked up, and lets the lookups read from there.
  absl::Status Fetch(tensorflow::OpKernelContext* context) {
    for (Each& each : lookups_) TF_RETURN_IF_ERROR(Fetch(context, &each));
    return absl::OkStatus();
  }

 private:
  struct Each {
    std::shared_ptr<StoredTable> table;
    Lookup<Id>* task;
    std::unique_ptr<Id[]> places;
    std::shared_ptr<RowCache> rows;
  };

  static absl::Status Fetch(tensorflow::OpKernelContext* context, Each* each) {
    LookupIds<Id>& ids = each->task->ids;
    if (ids.num_ids == 0) return absl::OkStatus();
    if (!IsWithin(ids, 0, ids.num_rows)) return DoNotFit();
    each->places.reset(new Id[ids.num_ids]);
    std::string problem;
    absl::Status status;
    each->rows = each->table->Fetch(
        ids.ids, ids.num_ids, each->places.get(),
        [&](int64_t count, const auto& work) {
          constexpr int64_t kNanosecondsOfShare = 64000;
          status = ParallelFor(context, NumThreads(context, count * kNanosecondsOfShare), count,
                               work);
        },
        &problem);
    TF_RETURN_IF_ERROR(status);
    if (!problem.empty()) {
      return absl::DataLossError(absl::StrCat(
          "`checkpoint` must stay as it is while rows of its tables are read in place, got ",
          problem, ". Evaluate another checkpoint; with the environment variable "
          "TPU_ESTIMATOR_EMBEDDING_TABLES_IN_PLACE=off, tables are loaded at the start."));
    }
    ids.ids = each->places.get();
    ids.num_table_rows = each->rows->size();
    each->task->table = each->rows->Place(0);
    return absl::OkStatus();
  }

  std::vector<Each> lookups_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_STORED_VARIABLES_H_
