// SPDX-License-Identifier: Apache-2.0
// Variables of the process. Those of TensorFlow belong to one session, but a program that drives a
// TPU by hand may load tables, train them and retrieve them in different graphs and sessions.
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"

// The handle of a variable of the process, which is created on first use, without a value.
REGISTER_OP("TpuEmbeddingProcessVariable")
    .Output("handle: resource")
    .Attr("owner: string")
    .Attr("variable: string")
    .Attr("dtype: type")
    .Attr("shape: shape")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      tensorflow::DataType dtype;
      tensorflow::PartialTensorShape shape;
      tensorflow::shape_inference::ShapeHandle of_value;
      TF_RETURN_IF_ERROR(context->GetAttr("dtype", &dtype));
      TF_RETURN_IF_ERROR(context->GetAttr("shape", &shape));
      TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(shape, &of_value));
      context->set_output(0, context->Scalar());
      context->set_output_handle_shapes_and_types(
          0, std::vector<tensorflow::shape_inference::ShapeAndType>{{of_value, dtype}});
      return absl::OkStatus();
    });

namespace tpu_estimator_embedding {
namespace {

using tensorflow::Var;

struct Variables {
  std::mutex mutex;
  // By owner and name.
  std::map<std::string, std::map<std::string, tensorflow::core::RefCountPtr<Var>>> by_owner;
};

// Never destroyed: threads of TensorFlow use it until the process ends.
Variables& TheVariables() {
  static Variables* const variables = new Variables;
  return *variables;
}

class ProcessVariableOp : public tensorflow::OpKernel {
 public:
  explicit ProcessVariableOp(tensorflow::OpKernelConstruction* construction)
      : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("owner", &owner_));
    OP_REQUIRES_OK(construction, construction->GetAttr("variable", &variable_));
    OP_REQUIRES_OK(construction, construction->GetAttr("dtype", &dtype_));
    OP_REQUIRES_OK(construction, construction->GetAttr("shape", &shape_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    // The session's resource manager has a reference, because ops that assign look there.
    Var* variable = nullptr;
    OP_REQUIRES_OK(context, context->resource_manager()->LookupOrCreate<Var>(
                                owner_, variable_, &variable, [this](Var** created) {
                                  *created = NewReference();
                                  return absl::OkStatus();
                                }));
    const tensorflow::core::ScopedUnref unref(variable);
    tensorflow::Tensor* handle;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &handle));
    handle->scalar<tensorflow::ResourceHandle>()() = tensorflow::MakeResourceHandle<Var>(
        context, owner_, variable_,
        std::vector<tensorflow::DtypeAndPartialTensorShape>{{dtype_, shape_}});
  }

 private:
  Var* NewReference() const {
    Variables& variables = TheVariables();
    std::lock_guard<std::mutex> lock(variables.mutex);
    tensorflow::core::RefCountPtr<Var>& variable = variables.by_owner[owner_][variable_];
    if (variable == nullptr) variable.reset(new Var(dtype_));
    variable->Ref();
    return variable.get();
  }

  std::string owner_, variable_;
  tensorflow::DataType dtype_;
  tensorflow::PartialTensorShape shape_;
};

REGISTER_KERNEL_BUILDER(Name("TpuEmbeddingProcessVariable").Device(tensorflow::DEVICE_CPU),
                        ProcessVariableOp);

}  // namespace
}  // namespace tpu_estimator_embedding

// Forgets the variables of an owner; those in use live until the last use ends.
extern "C" void tpu_embedding_drop_variables(const char* owner) {
  auto& variables = tpu_estimator_embedding::TheVariables();
  std::map<std::string, tensorflow::core::RefCountPtr<tensorflow::Var>> dropped;
  std::lock_guard<std::mutex> lock(variables.mutex);
  auto found = variables.by_owner.find(owner);
  if (found == variables.by_owner.end()) return;
  dropped.swap(found->second);
  variables.by_owner.erase(found);
}
