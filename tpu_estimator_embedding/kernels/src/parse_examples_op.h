// SPDX-License-Identifier: Apache-2.0
// The op that parses serialized Examples, in blocks that threads share.
#ifndef TPU_ESTIMATOR_EMBEDDING_PARSE_EXAMPLES_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_PARSE_EXAMPLES_OP_H_

#include <algorithm>
#include <utility>
#include <vector>

#include "parallel_for.h"
#include "parse_attributes.h"
#include "parse_block.h"
#include "parsed_outputs.h"

namespace tpu_estimator_embedding {

class ParseExamplesOp : public tensorflow::OpKernel {
 public:
  explicit ParseExamplesOp(tensorflow::OpKernelConstruction* construction)
      : OpKernel(construction) {
    OP_REQUIRES_OK(construction, attributes_.Read(construction));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 private:
  static constexpr int64_t kBlocksPerThread = 4;  // so that no thread waits long for another
  static constexpr int64_t kLeastBlock = 32;      // examples; for fewer, a thread is not worth it

  absl::Status Run(tensorflow::OpKernelContext* context) {
    const tensorflow::Tensor* serialized;
    TF_RETURN_IF_ERROR(context->input("serialized", &serialized));
    TF_RETURN_IF_ERROR(CheckDims("serialized", *serialized, 1, 1));
    const std::vector<std::string_view> records = View(*serialized);
    std::vector<ExampleFeature> features = attributes_.features;
    std::vector<DefaultValues> defaults(features.size());
    TF_RETURN_IF_ERROR(ViewDefaults(context, &features, &defaults));
    const int64_t batch_size = records.size();
    const int64_t num_shares = kBlocksPerThread * NumThreads(context);
    const int64_t block_size = std::max(kLeastBlock, (batch_size + num_shares - 1) / num_shares);
    std::vector<ParsedBlock> blocks((batch_size + block_size - 1) / block_size);
    TF_RETURN_IF_ERROR(ParallelFor(context, blocks.size(), [&](int64_t i) {
      blocks[i] = ParseBlock(features, records, i * block_size,
                             std::min(batch_size, (i + 1) * block_size));
    }));
    const bool is_valid = std::all_of(blocks.begin(), blocks.end(),
                                      [](const ParsedBlock& block) { return block.is_valid; });
    TF_RETURN_IF_ERROR(SetValid(context, is_valid));
    if (!is_valid) return ParsedOutputs(attributes_, {}, 0).Allocate(context);  // not read
    ParsedOutputs outputs(attributes_, blocks, batch_size);
    TF_RETURN_IF_ERROR(outputs.Allocate(context));
    return ParallelFor(context, blocks.size(), [&](int64_t i) {
      WriteBlock(features, defaults, records, blocks[i], i, outputs.outputs());
    });
  }

  static absl::Status SetValid(tensorflow::OpKernelContext* context, bool is_valid) {
    tensorflow::Tensor* output;
    TF_RETURN_IF_ERROR(context->allocate_output("is_valid", {}, &output));
    output->scalar<bool>()() = is_valid;
    return absl::OkStatus();
  }

  static std::vector<std::string_view> View(const tensorflow::Tensor& tensor) {
    const auto strings = tensor.flat<tensorflow::tstring>();
    std::vector<std::string_view> views;
    views.reserve(strings.size());
    for (int64_t i = 0; i < strings.size(); ++i) {
      views.emplace_back(strings(i).data(), strings(i).size());
    }
    return views;
  }

  absl::Status ViewDefaults(tensorflow::OpKernelContext* context,
                            std::vector<ExampleFeature>* features,
                            std::vector<DefaultValues>* defaults) const {
    tensorflow::OpInputList inputs;
    TF_RETURN_IF_ERROR(context->input_list("dense_defaults", &inputs));
    for (int i = 0; i < inputs.size(); ++i) {
      const tensorflow::Tensor& values = inputs[i];
      ExampleFeature& feature = (*features)[i];
      feature.is_required = values.NumElements() == 0;
      if (feature.is_required) continue;
      TF_RETURN_IF_ERROR(CheckRange("number of default values", values.NumElements(),
                                    feature.num_values, feature.num_values));
      if (feature.type == ValueType::kInt64) {
        (*defaults)[i].ints = values.flat<int64_t>().data();
      } else if (feature.type == ValueType::kFloat) {
        (*defaults)[i].floats = values.flat<float>().data();
      } else {
        (*defaults)[i].strings = View(values);
      }
    }
    return absl::OkStatus();
  }

  ParseAttributes attributes_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PARSE_EXAMPLES_OP_H_
