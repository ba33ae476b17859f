// SPDX-License-Identifier: Apache-2.0
// The plan, as attributes of the op that prepares ids.
#ifndef TPU_ESTIMATOR_EMBEDDING_PREPARE_ATTRIBUTES_H_
#define TPU_ESTIMATOR_EMBEDDING_PREPARE_ATTRIBUTES_H_

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "attribute_checks.h"
#include "feature_ids.h"
#include "lay_out_ids.h"
#include "partition.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tpu_estimator_embedding {

constexpr int64_t kMostRows = int64_t{1} << 62;  // of a table

// Ends are int32, and loops look some ids further than they are.
constexpr int64_t kMostInStep = std::numeric_limits<int32_t>::max() - 1024;

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
  std::vector<Placement> placements;  // of every feature of every replica, replica by replica
  std::vector<bool> has_weights;      // the same
  int num_hosts = 1;
  bool is_training = false;

  // `most_rows` is how many rows of a part of a table the ids of the op can number.
  absl::Status Read(tensorflow::OpKernelConstruction* construction, int64_t most_rows) {
    TF_RETURN_IF_ERROR(construction->GetAttr("training", &is_training));
    TF_RETURN_IF_ERROR(construction->GetAttr("has_weights", &has_weights));
    TF_RETURN_IF_ERROR(ReadPlacements(construction));
    std::vector<int64_t> vocabulary_sizes;
    TF_RETURN_IF_ERROR(construction->GetAttr("vocabulary_sizes", &vocabulary_sizes));
    TF_RETURN_IF_ERROR(ReadTables(construction, vocabulary_sizes, most_rows));
    TF_RETURN_IF_ERROR(ReadFeatures(construction, vocabulary_sizes));
    return CheckInputs(construction);
  }

 private:
  absl::Status ReadPlacements(tensorflow::OpKernelConstruction* construction) {
    std::vector<std::string> names;
    TF_RETURN_IF_ERROR(construction->GetAttr("placements", &names));
    for (const std::string& name : names) {
      placements.push_back(name == "row_splits"    ? Placement::kRowSplits
                           : name == "coordinates" ? Placement::kCoordinates
                                                   : Placement::kOneIdEach);
    }
    return absl::OkStatus();
  }

  absl::Status ReadTables(tensorflow::OpKernelConstruction* construction,
                          const std::vector<int64_t>& vocabulary_sizes, int64_t most_rows) {
    std::vector<std::string> combiners;
    std::vector<bool> core_by_core;
    std::string strategy;
    TF_RETURN_IF_ERROR(construction->GetAttr("combiners", &combiners));
    TF_RETURN_IF_ERROR(construction->GetAttr("updates_core_by_core", &core_by_core));
    TF_RETURN_IF_ERROR(construction->GetAttr("partition_strategy", &strategy));
    TF_RETURN_IF_ERROR(construction->GetAttr("num_hosts", &num_hosts));
    const int64_t count = vocabulary_sizes.size();
    TF_RETURN_IF_ERROR(CheckCount("combiners", "table", count, combiners.size()));
    TF_RETURN_IF_ERROR(CheckCount("updates_core_by_core", "table", count, core_by_core.size()));
    TF_RETURN_IF_ERROR(CheckAll("vocabulary_sizes", vocabulary_sizes, 1, kMostRows));
    for (int64_t i = 0; i < count; ++i) {
      const Partition partition(vocabulary_sizes[i], num_hosts,
                                strategy == "mod" ? Strategy::kMod : Strategy::kDiv);
      TF_RETURN_IF_ERROR(
          CheckRange("rows of a host, as Tid numbers them,", partition.num_rows(0), 1, most_rows));
      const Combiner combiner = combiners[i] == "mean"    ? Combiner::kMean
                                : combiners[i] == "sqrtn" ? Combiner::kSqrtn
                                                          : Combiner::kSum;
      tables.push_back({partition, combiner, core_by_core[i], {}});
    }
    return absl::OkStatus();
  }

  absl::Status ReadFeatures(tensorflow::OpKernelConstruction* construction,
                            const std::vector<int64_t>& vocabulary_sizes) {
    std::vector<std::string> names;
    std::vector<int64_t> lengths, table_of_feature;
    TF_RETURN_IF_ERROR(construction->GetAttr("feature_names", &names));
    TF_RETURN_IF_ERROR(construction->GetAttr("sequence_lengths", &lengths));
    TF_RETURN_IF_ERROR(construction->GetAttr("table_of_feature", &table_of_feature));
    const int64_t count = names.size(), most_table = tables.size() - 1;
    TF_RETURN_IF_ERROR(CheckCount("sequence_lengths", "feature", count, lengths.size()));
    TF_RETURN_IF_ERROR(CheckCount("table_of_feature", "feature", count, table_of_feature.size()));
    TF_RETURN_IF_ERROR(CheckAll("sequence_lengths", lengths, 0, kMostInStep));
    TF_RETURN_IF_ERROR(CheckAll("table_of_feature", table_of_feature, 0, most_table));
    TF_RETURN_IF_ERROR(CheckReplicas(count));
    // So that every row has a number of its own for each replica that may update it.
    TF_RETURN_IF_ERROR(CheckAll("vocabulary_sizes", vocabulary_sizes, 1,
                                kMostRows / (placements.size() / count)));
    for (int64_t i = 0; i < count; ++i) {
      features.push_back({names[i], vocabulary_sizes[table_of_feature[i]], lengths[i]});
      AddToTable(i, count, &tables[table_of_feature[i]]);
    }
    for (const TablePlan& table : tables) {
      TF_RETURN_IF_ERROR(
          CheckRange("sequence_lengths of a table", table.rows_per_sample, 0, kMostInStep));
    }
    return absl::OkStatus();
  }

  absl::Status CheckReplicas(int64_t num_features) const {
    const int64_t count = placements.size();
    TF_RETURN_IF_ERROR(CheckCount("has_weights", "placement", count, has_weights.size()));
    return CheckCount("placements", "feature of each replica",
                      count / num_features * num_features, count);
  }

  // Every feature of every replica has ids, and places and weights where it is said to have some.
  absl::Status CheckInputs(tensorflow::OpKernelConstruction* construction) const {
    std::vector<tensorflow::DataType> id_types, place_types;
    int64_t num_weights;
    TF_RETURN_IF_ERROR(construction->GetAttr("id_types", &id_types));
    TF_RETURN_IF_ERROR(construction->GetAttr("place_types", &place_types));
    TF_RETURN_IF_ERROR(construction->GetAttr("num_weights", &num_weights));
    const auto one_id_each =
        std::count(placements.begin(), placements.end(), Placement::kOneIdEach);
    TF_RETURN_IF_ERROR(CheckCount("ids", "placement", placements.size(), id_types.size()));
    TF_RETURN_IF_ERROR(CheckCount("places", "placement but one_id_each",
                                  placements.size() - one_id_each, place_types.size()));
    return CheckCount("weights", "true one of has_weights",
                      std::count(has_weights.begin(), has_weights.end(), true), num_weights);
  }

  void AddToTable(int64_t feature, int64_t num_features, TablePlan* table) const {
    table->features.push_back(static_cast<int>(feature));
    table->rows_per_sample += features[feature].rows_per_sample();
    table->has_sequences |= features[feature].sequence_length > 0;
    for (size_t i = feature; i < placements.size(); i += num_features) {
      table->has_weights |= has_weights[i];
      // The scale of a single id without a weight is 1.
      table->has_scales |= table->combiner != Combiner::kSum &&
                           (placements[i] != Placement::kOneIdEach || has_weights[i]);
    }
  }
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PREPARE_ATTRIBUTES_H_
