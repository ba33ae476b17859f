// SPDX-License-Identifier: Apache-2.0
// The inputs of the op that prepares ids, as views.
#ifndef TPU_ESTIMATOR_EMBEDDING_PREPARE_INPUTS_H_
#define TPU_ESTIMATOR_EMBEDDING_PREPARE_INPUTS_H_

#include <vector>

#include "attribute_checks.h"
#include "feature_ids.h"
#include "prepare_attributes.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tpu_estimator_embedding {

inline Integers ViewIntegers(const tensorflow::Tensor& tensor) {
  return {tensor.data(), tensor.NumElements(), tensor.dtype() == tensorflow::DT_INT64};
}

// Row splits are a vector; coordinates a vector of samples or a matrix with their positions.
inline absl::Status ViewPlaces(const tensorflow::Tensor& places, FeatureIds* input) {
  const int most_dims = input->placement == Placement::kRowSplits ? 1 : 2;
  TF_RETURN_IF_ERROR(CheckDims("places", places, 1, most_dims));
  input->places = ViewIntegers(places);
  if (places.dims() == 2) {
    TF_RETURN_IF_ERROR(CheckRange("columns of places", places.dim_size(1), 1, kMostInStep));
    input->num_coordinates = places.dim_size(1);
  }
  return absl::OkStatus();
}

// Returns the ids of every feature of every replica, replica by replica. `CheckFeature` checks
// whether ids, places and weights match.
inline absl::Status ViewInputs(tensorflow::OpKernelContext* context,
                               const PrepareAttributes& attributes,
                               std::vector<FeatureIds>* inputs) {
  tensorflow::OpInputList ids, places, weights;
  const tensorflow::Tensor* batch_sizes;
  TF_RETURN_IF_ERROR(context->input_list("ids", &ids));
  TF_RETURN_IF_ERROR(context->input_list("places", &places));
  TF_RETURN_IF_ERROR(context->input_list("weights", &weights));
  TF_RETURN_IF_ERROR(context->input("batch_sizes", &batch_sizes));
  const int64_t num_features = attributes.features.size();
  TF_RETURN_IF_ERROR(CheckDims("batch_sizes", *batch_sizes, 1, 1));
  TF_RETURN_IF_ERROR(
      CheckCount("batch_sizes", "replica", ids.size() / num_features, batch_sizes->NumElements()));
  int next_places = 0, next_weights = 0;
  for (int i = 0; i < ids.size(); ++i) {
    FeatureIds input;
    input.placement = attributes.placements[i];
    const int64_t batch_size = batch_sizes->flat<int64_t>()(i / num_features);
    TF_RETURN_IF_ERROR(CheckRange("batch_sizes", batch_size, 0, kMostInStep));
    input.batch_size = batch_size * attributes.features[i % num_features].samples_per_unit;
    TF_RETURN_IF_ERROR(CheckRange("samples of a feature", input.batch_size, 0, kMostInStep));
    input.ids = ViewIntegers(ids[i]);
    if (input.placement != Placement::kOneIdEach) {
      TF_RETURN_IF_ERROR(ViewPlaces(places[next_places++], &input));
    }
    if (attributes.has_weights[i]) {
      const tensorflow::Tensor& of_input = weights[next_weights++];
      input.weights = of_input.flat<float>().data();
      input.num_weights = of_input.NumElements();
    }
    inputs->push_back(input);
  }
  return absl::OkStatus();
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PREPARE_INPUTS_H_
