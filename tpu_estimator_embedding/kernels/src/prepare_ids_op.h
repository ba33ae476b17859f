// SPDX-License-Identifier: Apache-2.0
// The op that checks and prepares the ids of a step.
#ifndef TPU_ESTIMATOR_EMBEDDING_PREPARE_IDS_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_PREPARE_IDS_OP_H_

#include <vector>

#include "check_ids.h"
#include "parallel_for.h"
#include "prepare_attributes.h"
#include "prepared_step.h"

namespace tpu_estimator_embedding {

template <class Id>
class PrepareIdsOp : public tensorflow::OpKernel {
 public:
  explicit PrepareIdsOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, attributes_.Read(construction));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    std::vector<FeatureIds> inputs;
    OP_REQUIRES_OK(context, attributes_.ReadInputs(context, &inputs));
    std::vector<bool> has_negative_ids;
    OP_REQUIRES_OK(context, Check(context, inputs, &has_negative_ids));
    OP_REQUIRES_OK(context, CountRows(context, inputs));
    PreparedStep<Id> step(context, attributes_, inputs);
    OP_REQUIRES_OK(context, step.Build(has_negative_ids));
  }

 private:
  absl::Status Check(tensorflow::OpKernelContext* context, const std::vector<FeatureIds>& inputs,
                     std::vector<bool>* has_negative_ids) const {
    const std::vector<FeaturePlan>& plans = attributes_.features;
    std::vector<CheckedFeature> checked(inputs.size());
    ParallelFor(context, inputs.size(),
                [&](int64_t i) { checked[i] = CheckFeature(plans[i % plans.size()], inputs[i]); });
    for (const CheckedFeature& feature : checked) {
      if (!feature.complaint.empty()) {
        return absl::InvalidArgumentError(feature.complaint);
      }
      has_negative_ids->push_back(feature.has_negative_ids);
    }
    return absl::OkStatus();
  }

  absl::Status CountRows(tensorflow::OpKernelContext* context,
                         const std::vector<FeatureIds>& inputs) const {
    const int64_t num_features = attributes_.features.size();
    const int64_t num_tables = attributes_.tables.size();
    const int64_t num_replicas = inputs.size() / num_features;
    tensorflow::Tensor* counts;
    TF_RETURN_IF_ERROR(context->allocate_output("row_counts", {num_tables, num_replicas}, &counts));
    for (int64_t table = 0; table < num_tables; ++table) {
      for (int64_t replica = 0; replica < num_replicas; ++replica) {
        counts->matrix<int64_t>()(table, replica) =
            inputs[replica * num_features].batch_size * attributes_.tables[table].rows_per_sample;
      }
    }
    return absl::OkStatus();
  }

  PrepareAttributes attributes_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PREPARE_IDS_OP_H_
