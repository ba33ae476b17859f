// SPDX-License-Identifier: Apache-2.0
// The op that lets a variable be read from a checkpoint, instead of holding a table.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attribute_checks.h"
#include "stored_variables.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"

// Opens the files of a table. `order` are the fields of RowOrder; `pieces` has a row for each piece
// of the table: first saved row, number of rows, index of the file and offset in it.
REGISTER_OP("TpuEmbeddingOpenStoredTable")
    .Input("table: resource")
    .Input("files: string")
    .Input("pieces: int64")
    .Input("order: int64")
    .Input("kept_bytes: int64")
    .Attr("dim: int >= 1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

namespace tpu_estimator_embedding {
namespace {

using tensorflow::Var;

absl::Status IsNoTable() {
  return absl::InvalidArgumentError(
      "A stored table must consist of consecutive pieces, which together hold all its rows.");
}

class OpenStoredTableOp : public tensorflow::OpKernel {
 public:
  explicit OpenStoredTableOp(tensorflow::OpKernelConstruction* construction)
      : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dim", &dim_));
    OP_REQUIRES(construction, dim_ >= 1 && dim_ <= kMostColumns, IsNoTable());
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 private:
  enum Column { kFirstRow, kNumRows, kFile, kOffset, kNumColumns };
  enum Field { kRowsOfPart, kFirstId, kIdStep, kVocabularySize, kNumSavedParts, kNumFields };

  absl::Status Run(tensorflow::OpKernelContext* context) const {
    const tensorflow::Tensor *kept_bytes, *order_fields;
    TF_RETURN_IF_ERROR(context->input("kept_bytes", &kept_bytes));
    TF_RETURN_IF_ERROR(context->input("order", &order_fields));
    if (kept_bytes->NumElements() != 1) return IsNoTable();
    RowOrder order;
    TF_RETURN_IF_ERROR(ReadOrder(*order_fields, &order));
    std::vector<StoredPiece> pieces;
    TF_RETURN_IF_ERROR(OpenPieces(context, order.vocabulary_size, &pieces));
    StoredValue value{std::make_shared<StoredTable>(order, dim_, std::move(pieces),
                                                    kept_bytes->flat<int64_t>()(0))};
    tensorflow::Tensor tensor(tensorflow::DT_VARIANT, tensorflow::TensorShape({}));
    tensor.scalar<tensorflow::Variant>()() = std::move(value);
    tensorflow::core::RefCountPtr<Var> variable;
    TF_RETURN_IF_ERROR(tensorflow::LookupOrCreateResource<Var>(
        context, tensorflow::HandleFromInput(context, 0), &variable, [](Var** created) {
          *created = new Var(tensorflow::DT_FLOAT);
          return absl::OkStatus();
        }));
    tensorflow::mutex_lock lock(*variable->mu());
    *variable->tensor() = tensor;
    variable->is_initialized = true;
    return absl::OkStatus();
  }

  absl::Status ReadOrder(const tensorflow::Tensor& fields, RowOrder* order) const {
    if (fields.NumElements() != kNumFields) return IsNoTable();
    const auto values = fields.flat<int64_t>();
    *order = {values(kRowsOfPart), values(kFirstId), values(kIdStep), values(kVocabularySize),
              values(kNumSavedParts)};
    // Bytes of rows are counted in 64 bits.
    const int64_t most_rows = (int64_t{1} << 60) / dim_;
    const auto is_size = [=](int64_t value) { return value >= 1 && value <= most_rows; };
    if (!is_size(order->num_rows) || !is_size(order->id_step) || order->first_id < 0 ||
        !is_size(order->vocabulary_size) || !is_size(order->num_saved_parts) ||
        order->first_id >= order->vocabulary_size ||
        order->num_saved_parts > order->vocabulary_size ||
        order->num_rows - 1 > (order->vocabulary_size - 1 - order->first_id) / order->id_step) {
      return IsNoTable();
    }
    return absl::OkStatus();
  }

  // Opens the pieces, which must hold the rows up to `num_rows`.
  absl::Status OpenPieces(tensorflow::OpKernelContext* context, int64_t num_rows,
                          std::vector<StoredPiece>* pieces) const {
    const tensorflow::Tensor *names, *places;
    TF_RETURN_IF_ERROR(context->input("files", &names));
    TF_RETURN_IF_ERROR(context->input("pieces", &places));
    if (places->dims() != 2 || places->dim_size(1) != kNumColumns) return IsNoTable();
    std::vector<std::shared_ptr<StoredFile>> files;
    for (int64_t i = 0; i < names->NumElements(); ++i) {
      std::string problem;
      files.push_back(StoredFile::Open(std::string(names->flat<tensorflow::tstring>()(i)),
                                       &problem));
      if (files.back() == nullptr) return absl::FailedPreconditionError(problem);
    }
    const auto values = places->matrix<int64_t>();
    int64_t next_row = 0;
    for (int64_t i = 0; i < places->dim_size(0); ++i) {
      const int64_t file = values(i, kFile), count = values(i, kNumRows);
      if (values(i, kFirstRow) != next_row || count < 1 || count > num_rows - next_row ||
          file < 0 || file >= static_cast<int64_t>(files.size()) || values(i, kOffset) < 0) {
        return IsNoTable();
      }
      pieces->push_back({next_row, count, files[file], values(i, kOffset)});
      next_row += count;
    }
    return next_row == num_rows ? absl::OkStatus() : IsNoTable();
  }

  int64_t dim_;
};

REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingOpenStoredTable").Device(tensorflow::DEVICE_CPU),
                        OpenStoredTableOp);

}  // namespace
}  // namespace tpu_estimator_embedding
