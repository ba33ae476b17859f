// SPDX-License-Identifier: Apache-2.0
// The op that parses serialized Examples.
#ifndef TPU_ESTIMATOR_EMBEDDING_PARSE_EXAMPLES_DEFINITION_H_
#define TPU_ESTIMATOR_EMBEDDING_PARSE_EXAMPLES_DEFINITION_H_

#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tpu_estimator_embedding {

inline absl::Status ParseExamplesShapes(tensorflow::shape_inference::InferenceContext* context) {
  using tensorflow::shape_inference::InferenceContext;
  using tensorflow::shape_inference::ShapeHandle;
  ShapeHandle serialized;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 1, &serialized));
  std::vector<tensorflow::PartialTensorShape> dense_shapes;
  tensorflow::DataTypeVector ragged_types;
  int num_sparse;
  TF_RETURN_IF_ERROR(context->GetAttr("dense_shapes", &dense_shapes));
  TF_RETURN_IF_ERROR(context->GetAttr("ragged_types", &ragged_types));
  TF_RETURN_IF_ERROR(context->GetAttr("num_sparse", &num_sparse));
  context->set_output(0, context->Scalar());
  int output = 1;
  for (const auto& shape : dense_shapes) {
    ShapeHandle of_example, of_batch;
    TF_RETURN_IF_ERROR(context->MakeShapeFromPartialTensorShape(shape, &of_example));
    TF_RETURN_IF_ERROR(context->Concatenate(serialized, of_example, &of_batch));
    if (output < context->num_outputs()) context->set_output(output++, of_batch);
  }
  tensorflow::shape_inference::DimensionHandle num_splits;
  TF_RETURN_IF_ERROR(context->Add(context->Dim(serialized, 0), 1, &num_splits));
  const ShapeHandle values = context->Vector(InferenceContext::kUnknownDim);
  for (size_t i = 0; i < ragged_types.size(); ++i) context->set_output(output++, values);
  for (size_t i = 0; i < ragged_types.size(); ++i) {
    context->set_output(output++, context->Vector(num_splits));
  }
  for (int i = 0; i < num_sparse; ++i) {
    context->set_output(output++, context->Matrix(InferenceContext::kUnknownDim, 2));
  }
  for (int i = 0; i < num_sparse; ++i) context->set_output(output++, values);
  for (int i = 0; i < num_sparse; ++i) context->set_output(output++, context->Vector(2));
  return absl::OkStatus();
}

}  // namespace tpu_estimator_embedding

// Parses a batch of serialized `tf.train.Example`s as TensorFlow's ParseExampleV2 does. A default
// without values means that every example must have the feature. Examples that ParseExampleV2
// refuses are not valid; the outputs then are empty.
REGISTER_OP("TpuEmbeddingParseExamples")
    .Input("serialized: string")
    .Input("dense_defaults: dense_types")
    .Output("is_valid: bool")
    .Output("dense_values: dense_types")
    .Output("ragged_values: ragged_types")
    .Output("ragged_row_splits: ragged_split_types")
    .Output("sparse_indices: num_sparse * int64")
    .Output("sparse_values: sparse_types")
    .Output("sparse_shapes: num_sparse * int64")
    .Attr("dense_keys: list(string) >= 0")
    .Attr("dense_types: list({int64, float, string}) >= 0")
    .Attr("dense_shapes: list(shape) >= 0")
    .Attr("ragged_keys: list(string) >= 0")
    .Attr("ragged_types: list({int64, float, string}) >= 0")
    .Attr("ragged_split_types: list({int32, int64}) >= 0")
    .Attr("sparse_keys: list(string) >= 0")
    .Attr("sparse_types: list({int64, float, string}) >= 0")
    .Attr("num_sparse: int >= 0")
    .SetShapeFn(tpu_estimator_embedding::ParseExamplesShapes);

#endif  // TPU_ESTIMATOR_EMBEDDING_PARSE_EXAMPLES_DEFINITION_H_
