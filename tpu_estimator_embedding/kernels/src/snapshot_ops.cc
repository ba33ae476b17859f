// SPDX-License-Identifier: Apache-2.0
// The op that begins a snapshot of tables and slots, and the functions that read and end it.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "locked_variables.h"
#include "row_snapshots.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

// Begins a snapshot of matrices of float32 and outputs its number. Updates wait while the rows that
// are kept for it need more than `most_bytes`.
REGISTER_OP("TpuEmbeddingBeginSnapshot")
    .Input("variables: num_variables * resource")
    .Input("most_bytes: int64")
    .Output("snapshot: int64")
    .Attr("num_variables: int >= 1")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Scalar());
      return absl::OkStatus();
    });

namespace tpu_estimator_embedding {
namespace {

class BeginSnapshotOp : public tensorflow::OpKernel {
 public:
  explicit BeginSnapshotOp(tensorflow::OpKernelConstruction* construction)
      : OpKernel(construction) {}

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 private:
  static absl::Status Run(tensorflow::OpKernelContext* context) {
    tensorflow::OpInputList inputs;
    const tensorflow::Tensor* most_bytes;
    TF_RETURN_IF_ERROR(context->input_list("variables", &inputs));
    TF_RETURN_IF_ERROR(context->input("most_bytes", &most_bytes));
    if (most_bytes->NumElements() != 1 || most_bytes->flat<int64_t>()(0) < 0) {
      return absl::InvalidArgumentError("`most_bytes` must be a number that is not negative.");
    }
    tensorflow::Tensor* number;
    TF_RETURN_IF_ERROR(context->allocate_output(0, {}, &number));
    auto snapshot = std::make_shared<StepSnapshot>();
    snapshot->most_bytes = most_bytes->flat<int64_t>()(0);
    LockedVariables variables(Access::kRead);
    TF_RETURN_IF_ERROR(variables.Lock(context, inputs));
    for (int i = 0; i < variables.size(); ++i) {
      TF_RETURN_IF_ERROR(variables.CheckIsTable(i));
      if (variables.first(i) != i || variables.tensor(i).dim_size(0) > RowSnapshot::kMostRows) {
        return absl::InvalidArgumentError(absl::StrCat(
            "`", variables.name(i), "` must be given once, and have fewer than 2**32 rows."));
      }
      tensorflow::Tensor value;
      TF_RETURN_IF_ERROR(variables.Share(context, i, &value));
      snapshot->parts.emplace_back(new RowSnapshot(variables.Reference(i), value));
    }
    number->scalar<int64_t>()() = StepSnapshots::Get().Begin(std::move(snapshot));
    if (number->scalar<int64_t>()() != 0) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "A snapshot of these tables is still being written. End it first.");
  }
};

REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingBeginSnapshot").Device(tensorflow::DEVICE_CPU),
                        BeginSnapshotOp);

std::shared_ptr<StepSnapshot> FindPart(int64_t number, int64_t part) {
  auto snapshot = StepSnapshots::Get().Find(number);
  const bool has_part = snapshot != nullptr && part >= 0 &&
                        part < static_cast<int64_t>(snapshot->parts.size());
  return has_part ? snapshot : nullptr;
}

}  // namespace
}  // namespace tpu_estimator_embedding

// Copies the next rows of a part, in order; returns whether there are such rows.
extern "C" bool tpu_embedding_snapshot_read(int64_t number, int64_t part, int64_t begin,
                                            int64_t count, float* rows) {
  const auto snapshot = tpu_estimator_embedding::FindPart(number, part);
  return snapshot != nullptr && snapshot->parts[part]->Read(begin, count, rows);
}

// Frees the memory of a part that was read.
extern "C" void tpu_embedding_snapshot_release(int64_t number, int64_t part) {
  const auto snapshot = tpu_estimator_embedding::FindPart(number, part);
  if (snapshot == nullptr) return;
  tpu_estimator_embedding::StepSnapshots::Get().Release(snapshot.get(),
                                                        snapshot->parts[part].get());
}

// Ends a snapshot; returns how many bytes of rows it has kept at most, -1 if there is none.
extern "C" int64_t tpu_embedding_snapshot_end(int64_t number) {
  auto& snapshots = tpu_estimator_embedding::StepSnapshots::Get();
  const auto snapshot = snapshots.Find(number);
  if (snapshot == nullptr) return -1;
  snapshots.End(number);
  return snapshot->peak_bytes;
}
