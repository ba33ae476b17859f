// SPDX-License-Identifier: Apache-2.0
// The outputs of the op that parses Examples.
#ifndef TPU_ESTIMATOR_EMBEDDING_PARSED_OUTPUTS_H_
#define TPU_ESTIMATOR_EMBEDDING_PARSED_OUTPUTS_H_

#include <algorithm>
#include <limits>
#include <vector>

#include "attribute_checks.h"
#include "parse_attributes.h"
#include "parse_block.h"
#include "write_block.h"

namespace tpu_estimator_embedding {

using ParsedOutput = FeatureOutput<tensorflow::tstring>;

// Allocates the outputs for what blocks hold.
class ParsedOutputs {
 public:
  ParsedOutputs(const ParseAttributes& attributes, const std::vector<ParsedBlock>& blocks,
                int64_t batch_size)
      : attributes_(attributes),
        blocks_(blocks),
        batch_size_(batch_size),
        outputs_(attributes.features.size()) {}

  absl::Status Allocate(tensorflow::OpKernelContext* context) {
    TF_RETURN_IF_ERROR(AllocateDense(context));
    TF_RETURN_IF_ERROR(AllocateRagged(context));
    return AllocateSparse(context);
  }

  const std::vector<ParsedOutput>& outputs() const { return outputs_; }

 private:
  absl::Status AllocateDense(tensorflow::OpKernelContext* context) {
    tensorflow::OpOutputList values;
    TF_RETURN_IF_ERROR(context->output_list("dense_values", &values));
    for (int i = 0; i < attributes_.num_dense; ++i) {
      tensorflow::TensorShape shape({batch_size_});
      TF_RETURN_IF_ERROR(shape.AppendShapeWithStatus(attributes_.dense_shapes[i]));
      TF_RETURN_IF_ERROR(AllocateValues(&values, i, shape, &outputs_[i]));
      for (const ParsedBlock& block : blocks_) {
        outputs_[i].first_of_block.push_back(block.first * attributes_.features[i].num_values);
      }
    }
    return absl::OkStatus();
  }

  absl::Status AllocateRagged(tensorflow::OpKernelContext* context) {
    tensorflow::OpOutputList values, splits;
    TF_RETURN_IF_ERROR(context->output_list("ragged_values", &values));
    TF_RETURN_IF_ERROR(context->output_list("ragged_row_splits", &splits));
    for (int i = 0; i < attributes_.num_ragged; ++i) {
      const int feature = attributes_.num_dense + i;
      ParsedOutput& output = outputs_[feature];
      const int64_t size = PlaceBlocks(feature);
      TF_RETURN_IF_ERROR(AllocateValues(&values, i, {size}, &output));
      tensorflow::Tensor* of_feature;
      TF_RETURN_IF_ERROR(splits.allocate(i, {batch_size_ + 1}, &of_feature));
      if (of_feature->dtype() == tensorflow::DT_INT64) {
        output.wide_splits = of_feature->flat<int64_t>().data();
        output.wide_splits[0] = 0;
        continue;
      }
      output.splits = of_feature->flat<int32_t>().data();
      output.splits[0] = 0;
      TF_RETURN_IF_ERROR(CheckRange("values of a feature with int32 row splits", size, 0,
                                    std::numeric_limits<int32_t>::max()));
    }
    return absl::OkStatus();
  }

  absl::Status AllocateSparse(tensorflow::OpKernelContext* context) {
    tensorflow::OpOutputList indices, values, shapes;
    TF_RETURN_IF_ERROR(context->output_list("sparse_indices", &indices));
    TF_RETURN_IF_ERROR(context->output_list("sparse_values", &values));
    TF_RETURN_IF_ERROR(context->output_list("sparse_shapes", &shapes));
    for (int i = 0; i < attributes_.num_sparse; ++i) {
      const int feature = attributes_.num_dense + attributes_.num_ragged + i;
      const int64_t size = PlaceBlocks(feature);
      TF_RETURN_IF_ERROR(AllocateValues(&values, i, {size}, &outputs_[feature]));
      tensorflow::Tensor *of_feature, *shape;
      TF_RETURN_IF_ERROR(indices.allocate(i, {size, 2}, &of_feature));
      TF_RETURN_IF_ERROR(shapes.allocate(i, {2}, &shape));
      outputs_[feature].indices = of_feature->flat<int64_t>().data();
      shape->flat<int64_t>()(0) = batch_size_;
      shape->flat<int64_t>()(1) = LongestRow(feature);
    }
    return absl::OkStatus();
  }

  static absl::Status AllocateValues(tensorflow::OpOutputList* list, int i,
                                     const tensorflow::TensorShape& shape, ParsedOutput* output) {
    tensorflow::Tensor* values;
    TF_RETURN_IF_ERROR(list->allocate(i, shape, &values));
    if (values->dtype() == tensorflow::DT_INT64) {
      output->ints = values->flat<int64_t>().data();
    } else if (values->dtype() == tensorflow::DT_FLOAT) {
      output->floats = values->flat<float>().data();
    } else {
      output->strings = values->flat<tensorflow::tstring>().data();
    }
    return absl::OkStatus();
  }

  // Returns the number of values in all blocks.
  int64_t PlaceBlocks(int feature) {
    int64_t size = 0;
    for (const ParsedBlock& block : blocks_) {
      outputs_[feature].first_of_block.push_back(size);
      size += block.sizes[feature];
    }
    return size;
  }

  int64_t LongestRow(int feature) const {
    int64_t longest = 0;
    for (const ParsedBlock& block : blocks_) longest = std::max(longest, block.longest[feature]);
    return longest;
  }

  const ParseAttributes& attributes_;
  const std::vector<ParsedBlock>& blocks_;
  const int64_t batch_size_;
  std::vector<ParsedOutput> outputs_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PARSED_OUTPUTS_H_
