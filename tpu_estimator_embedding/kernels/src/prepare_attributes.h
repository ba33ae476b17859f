// SPDX-License-Identifier: Apache-2.0
// The plan, as attributes of the op that prepares ids, and its inputs.
#ifndef TPU_ESTIMATOR_EMBEDDING_PREPARE_ATTRIBUTES_H_
#define TPU_ESTIMATOR_EMBEDDING_PREPARE_ATTRIBUTES_H_

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "feature_ids.h"
#include "lay_out_ids.h"
#include "partition.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tpu_estimator_embedding {

struct TablePlan {
  Partition partition;
  Combiner combiner;
  bool is_updated_core_by_core;
  std::vector<int> features;
  bool has_weights = false;
  bool has_scales = false;
  bool has_sequences = false;
  int64_t rows_per_sample = 0;
};

class PrepareAttributes {
 public:
  std::vector<FeaturePlan> features;
  std::vector<TablePlan> tables;
  int num_hosts = 1;
  bool is_training = false;

  absl::Status Read(tensorflow::OpKernelConstruction* construction) {
    std::vector<std::string> names, placements;
    std::vector<int> lengths, table_of_feature;
    TF_RETURN_IF_ERROR(construction->GetAttr("feature_names", &names));
    TF_RETURN_IF_ERROR(construction->GetAttr("sequence_lengths", &lengths));
    TF_RETURN_IF_ERROR(construction->GetAttr("table_of_feature", &table_of_feature));
    TF_RETURN_IF_ERROR(construction->GetAttr("placements", &placements));
    TF_RETURN_IF_ERROR(construction->GetAttr("has_weights", &has_weights_));
    TF_RETURN_IF_ERROR(construction->GetAttr("training", &is_training));
    for (const std::string& name : placements) {
      placements_.push_back(name == "row_splits"    ? Placement::kRowSplits
                            : name == "coordinates" ? Placement::kCoordinates
                                                    : Placement::kOneIdEach);
    }
    std::vector<int64_t> vocabulary_sizes;
    TF_RETURN_IF_ERROR(construction->GetAttr("vocabulary_sizes", &vocabulary_sizes));
    TF_RETURN_IF_ERROR(ReadTables(construction, vocabulary_sizes));
    if (lengths.size() != names.size() || table_of_feature.size() != names.size() ||
        placements.size() != has_weights_.size() || placements.size() % names.size() != 0) {
      return absl::InvalidArgumentError("Attributes must be given for every feature.");
    }
    num_features_ = names.size();
    for (size_t i = 0; i < names.size(); ++i) {
      const int64_t size = vocabulary_sizes[table_of_feature[i]];
      features.push_back({names[i], size, lengths[i]});
      AddToTable(i, &tables[table_of_feature[i]]);
    }
    return absl::OkStatus();
  }

  // Returns the ids of every feature of every replica, replica by replica.
  absl::Status ReadInputs(tensorflow::OpKernelContext* context,
                          std::vector<FeatureIds>* inputs) const {
    tensorflow::OpInputList ids, places, weights;
    const tensorflow::Tensor* batch_sizes;
    TF_RETURN_IF_ERROR(context->input_list("ids", &ids));
    TF_RETURN_IF_ERROR(context->input_list("places", &places));
    TF_RETURN_IF_ERROR(context->input_list("weights", &weights));
    TF_RETURN_IF_ERROR(context->input("batch_sizes", &batch_sizes));
    int next_places = 0, next_weights = 0;
    for (int i = 0; i < ids.size(); ++i) {
      FeatureIds input;
      input.placement = placements_[i];
      input.batch_size = batch_sizes->flat<int64_t>()(i / features.size());
      input.ids = View(ids[i]);
      if (input.placement != Placement::kOneIdEach) {
        const tensorflow::Tensor& of_input = places[next_places++];
        input.places = View(of_input);
        if (of_input.dims() > 1) {
          input.num_coordinates = std::max<int64_t>(1, of_input.dim_size(1));
        }
      }
      if (has_weights_[i]) {
        const tensorflow::Tensor& of_input = weights[next_weights++];
        input.weights = of_input.flat<float>().data();
        input.num_weights = of_input.NumElements();
      }
      inputs->push_back(input);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadTables(tensorflow::OpKernelConstruction* construction,
                          const std::vector<int64_t>& vocabulary_sizes) {
    std::vector<std::string> combiners;
    std::vector<bool> core_by_core;
    std::string strategy;
    TF_RETURN_IF_ERROR(construction->GetAttr("combiners", &combiners));
    TF_RETURN_IF_ERROR(construction->GetAttr("updates_core_by_core", &core_by_core));
    TF_RETURN_IF_ERROR(construction->GetAttr("partition_strategy", &strategy));
    TF_RETURN_IF_ERROR(construction->GetAttr("num_hosts", &num_hosts));
    if (combiners.size() != vocabulary_sizes.size() ||
        core_by_core.size() != vocabulary_sizes.size()) {
      return absl::InvalidArgumentError("Attributes must be given for every table.");
    }
    for (size_t i = 0; i < vocabulary_sizes.size(); ++i) {
      const Partition partition(vocabulary_sizes[i], num_hosts,
                                strategy == "mod" ? Strategy::kMod : Strategy::kDiv);
      const Combiner combiner = combiners[i] == "mean"    ? Combiner::kMean
                                : combiners[i] == "sqrtn" ? Combiner::kSqrtn
                                                          : Combiner::kSum;
      tables.push_back({partition, combiner, core_by_core[i], {}});
    }
    return absl::OkStatus();
  }

  void AddToTable(int feature, TablePlan* table) const {
    table->features.push_back(feature);
    table->rows_per_sample += features[feature].rows_per_sample();
    table->has_sequences |= features[feature].sequence_length > 0;
    for (size_t i = feature; i < placements_.size(); i += num_features_) {
      table->has_weights |= has_weights_[i];
      // The scale of a single id without a weight is 1.
      table->has_scales |= table->combiner != Combiner::kSum &&
                           (placements_[i] != Placement::kOneIdEach || has_weights_[i]);
    }
  }

  static Integers View(const tensorflow::Tensor& tensor) {
    return {tensor.data(), tensor.NumElements(), tensor.dtype() == tensorflow::DT_INT64};
  }

  size_t num_features_ = 0;
  std::vector<Placement> placements_;
  std::vector<bool> has_weights_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PREPARE_ATTRIBUTES_H_
