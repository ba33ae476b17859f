// SPDX-License-Identifier: Apache-2.0
// The op that reads all tables and slots of a host as of one step.
#ifndef TPU_ESTIMATOR_EMBEDDING_SNAPSHOT_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_SNAPSHOT_OP_H_

#include "locked_variables.h"
#include "prepared_ids.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

// Outputs share the buffers of the variables: an update that comes later copies them before it
// writes. All variables are locked at once, so that no update is between two of the outputs.
REGISTER_OP("TpuEmbeddingSnapshot")
    .Input("variables: num_variables * resource")
    .Output("values: num_variables * float")
    .Attr("num_variables: int >= 1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnknownShape);

namespace tpu_estimator_embedding {

class SnapshotOp : public tensorflow::OpKernel {
 public:
  explicit SnapshotOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {}

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 private:
  static absl::Status Run(tensorflow::OpKernelContext* context) {
    tensorflow::OpInputList inputs;
    TF_RETURN_IF_ERROR(context->input_list("variables", &inputs));
    LockedVariables variables(Access::kRead);
    TF_RETURN_IF_ERROR(variables.Lock(context, inputs));
    for (int i = 0; i < variables.size(); ++i) {
      TF_RETURN_IF_ERROR(variables.CheckIsTable(i));
      tensorflow::Tensor value;
      TF_RETURN_IF_ERROR(variables.Share(context, i, &value));
      context->set_output(i, value);
    }
    return absl::OkStatus();
  }
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_SNAPSHOT_OP_H_
