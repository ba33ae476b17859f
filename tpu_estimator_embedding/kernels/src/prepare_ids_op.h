// SPDX-License-Identifier: Apache-2.0
// The op that checks and prepares the ids of a step.
#ifndef TPU_ESTIMATOR_EMBEDDING_PREPARE_IDS_OP_H_
#define TPU_ESTIMATOR_EMBEDDING_PREPARE_IDS_OP_H_

#include <atomic>
#include <limits>
#include <string>
#include <vector>

#include "check_ids.h"
#include "parallel_for.h"
#include "prepare_attributes.h"
#include "prepare_inputs.h"
#include "prepared_step.h"
#include "scratch_pool.h"

namespace tpu_estimator_embedding {

template <class Id>
class PrepareIdsOp : public tensorflow::OpKernel {
 public:
  explicit PrepareIdsOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
    constexpr int64_t kMostIds = std::numeric_limits<Id>::max();
    OP_REQUIRES_OK(construction, attributes_.Read(construction, kMostIds));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Guarded([&] { return Run(context); }));
  }

 private:
  absl::Status Run(tensorflow::OpKernelContext* context) {
    std::vector<FeatureIds> inputs;
    TF_RETURN_IF_ERROR(ViewInputs(context, attributes_, &inputs));
    std::vector<SortedIds> sorted(inputs.size());
    std::vector<bool> has_negative_ids;
    TF_RETURN_IF_ERROR(Check(context, &inputs, &sorted, &has_negative_ids));
    TF_RETURN_IF_ERROR(CountRows(context, inputs));
    TF_RETURN_IF_ERROR(CountIds(context, inputs));
    const absl::Status status =
        PreparedStep<Id>(context, attributes_, inputs, &scratch_).Build(has_negative_ids);
    scratch_.Trim();
    return status;
  }

  // Ids whose samples decrease are sorted: `inputs` then show `sorted`.
  absl::Status Check(tensorflow::OpKernelContext* context, std::vector<FeatureIds>* inputs,
                     std::vector<SortedIds>* sorted, std::vector<bool>* has_negative_ids) {
    const std::vector<FeaturePlan>& plans = attributes_.features;
    std::vector<CheckedFeature> checked(inputs->size());
    int64_t num_ids = 0;
    for (const FeatureIds& input : *inputs) num_ids += input.ids.size;
    const int num_threads = NumThreads(context, kNanosecondsPerId * num_ids);
    TF_RETURN_IF_ERROR(ParallelFor(context, num_threads, inputs->size(), [&](int64_t i) {
      const FeaturePlan& plan = plans[i % plans.size()];
      FeatureIds* input = &(*inputs)[i];
      checked[i] = CheckFeature(plan, *input);
      if (!checked[i].is_unsorted) return;
      if (!warned_.exchange(true)) WarnOfSorting(plan.name);
      (*sorted)[i] = SortIds(plan, input);
      checked[i] = CheckFeature(plan, *input);
    }));
    for (const CheckedFeature& feature : checked) {
      if (!feature.complaint.empty()) {
        return absl::InvalidArgumentError("tpu_estimator_embedding: " + feature.complaint);
      }
      has_negative_ids->push_back(feature.has_negative_ids);
    }
    return absl::OkStatus();
  }

  static void WarnOfSorting(const std::string& feature) {
    LOG(WARNING) << "tpu_estimator_embedding: Sample indices of feature '" << feature
                 << "' decrease. Its ids, and those of other features like it, are sorted in every "
                    "step. Call tf.sparse.reorder on the SparseTensor in input_fn to save the time.";
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
            attributes_.NumRows(attributes_.tables[table], &inputs[replica * num_features]);
      }
    }
    return absl::OkStatus();
  }

  // The sizes of every table, before any ids are dropped.
  absl::Status CountIds(tensorflow::OpKernelContext* context,
                        const std::vector<FeatureIds>& inputs) const {
    const int64_t num_tables = attributes_.tables.size();
    tensorflow::Tensor* counts;
    TF_RETURN_IF_ERROR(context->allocate_output("given_counts", {num_tables}, &counts));
    auto values = counts->flat<int64_t>();
    values.setZero();
    for (size_t replica = 0; replica < inputs.size(); replica += attributes_.features.size()) {
      for (int64_t table = 0; table < num_tables; ++table) {
        for (int feature : attributes_.tables[table].features) {
          values(table) += inputs[replica + feature].ids.size;
        }
      }
    }
    return absl::OkStatus();
  }

  PrepareAttributes attributes_;
  ScratchPool scratch_;
  std::atomic<bool> warned_{false};
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PREPARE_IDS_OP_H_
