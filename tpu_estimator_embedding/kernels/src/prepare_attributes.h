// SPDX-License-Identifier: Apache-2.0
// The plan, as attributes of the op that prepares ids.
#ifndef TPU_ESTIMATOR_EMBEDDING_PREPARE_ATTRIBUTES_H_
#define TPU_ESTIMATOR_EMBEDDING_PREPARE_ATTRIBUTES_H_

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attribute_checks.h"
#include "feature_ids.h"
#include "lay_out_ids.h"
#include "partition.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tpu_estimator_embedding {

constexpr int64_t kMostRows = int64_t{1} << 62;  // of a table
constexpr int64_t kMostShardBits = 32;

struct TablePlan {
  Partition partition;
  bool is_updated_core_by_core;
  std::vector<int> features;
  bool has_weights = false;
  bool has_scales = false;
  bool has_sequences = false;
};

class PrepareAttributes {
 public:
  std::vector<FeaturePlan> features;
  std::vector<TablePlan> tables;
  std::vector<Placement> placements;  // of every feature of every replica, replica by replica
  std::vector<bool> has_weights;      // the same
  int num_hosts = 1;
  bool is_training = false;

  // `most_rows` is the largest number of rows in a part of a table that the op's id type can index.
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

  // Returns the rows of activations of a table in one replica, whose inputs begin at `inputs`.
  int64_t NumRows(const TablePlan& table, const FeatureIds* inputs) const {
    int64_t num_rows = 0;
    for (int feature : table.features) {
      num_rows += inputs[feature].batch_size * features[feature].rows_per_sample();
    }
    return num_rows;
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
    std::vector<bool> core_by_core;
    std::string strategy;
    TF_RETURN_IF_ERROR(construction->GetAttr("updates_core_by_core", &core_by_core));
    TF_RETURN_IF_ERROR(construction->GetAttr("partition_strategy", &strategy));
    TF_RETURN_IF_ERROR(construction->GetAttr("num_hosts", &num_hosts));
    const int64_t count = vocabulary_sizes.size();
    TF_RETURN_IF_ERROR(CheckCount("updates_core_by_core", "table", count, core_by_core.size()));
    TF_RETURN_IF_ERROR(CheckAll("vocabulary_sizes", vocabulary_sizes, 1, kMostRows));
    for (int64_t i = 0; i < count; ++i) {
      const Partition partition(vocabulary_sizes[i], num_hosts,
                                strategy == "mod" ? Strategy::kMod : Strategy::kDiv);
      TF_RETURN_IF_ERROR(
          CheckRange("rows of a host, as Tid numbers them,", partition.num_rows(0), 1, most_rows));
      tables.push_back({partition, core_by_core[i], {}});
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
    // Every pair of a row and a replica that may update it needs a distinct number.
    TF_RETURN_IF_ERROR(CheckAll("vocabulary_sizes", vocabulary_sizes, 1,
                                kMostRows / (placements.size() / count)));
    for (int64_t i = 0; i < count; ++i) features.push_back({names[i], 0, lengths[i]});
    TF_RETURN_IF_ERROR(ReadCombiners(construction));
    TF_RETURN_IF_ERROR(ReadSamples(construction));
    TF_RETURN_IF_ERROR(ReadRowMaps(construction));
    for (int64_t i = 0; i < count; ++i) {
      TF_RETURN_IF_ERROR(CheckRowMap(features[i], vocabulary_sizes[table_of_feature[i]]));
      AddToTable(i, count, &tables[table_of_feature[i]]);
    }
    for (const TablePlan& table : tables) {
      int64_t rows = 0;
      for (int feature : table.features) {
        rows += features[feature].rows_per_sample();
        TF_RETURN_IF_ERROR(CheckRange("sequence_lengths of a table", rows, 0, kMostInStep));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadCombiners(tensorflow::OpKernelConstruction* construction) {
    std::vector<std::string> combiners;
    TF_RETURN_IF_ERROR(construction->GetAttr("combiners", &combiners));
    TF_RETURN_IF_ERROR(CheckCount("combiners", "feature", features.size(), combiners.size()));
    for (size_t i = 0; i < features.size(); ++i) {
      features[i].combiner = combiners[i] == "mean"    ? Combiner::kMean
                             : combiners[i] == "sqrtn" ? Combiner::kSqrtn
                                                       : Combiner::kSum;
    }
    return absl::OkStatus();
  }

  absl::Status ReadSamples(tensorflow::OpKernelConstruction* construction) {
    std::vector<int64_t> samples;
    TF_RETURN_IF_ERROR(construction->GetAttr("samples_per_unit", &samples));
    TF_RETURN_IF_ERROR(
        CheckCount("samples_per_unit", "feature", features.size(), samples.size()));
    TF_RETURN_IF_ERROR(CheckAll("samples_per_unit", samples, 1, kMostInStep));
    for (size_t i = 0; i < features.size(); ++i) features[i].samples_per_unit = samples[i];
    return absl::OkStatus();
  }

  // Every feature has an element in each list.
  absl::Status ReadRowMaps(tensorflow::OpKernelConstruction* construction) {
    std::vector<int64_t> sizes, log2_shards, rotations, row_offsets, rows_per_shard;
    TF_RETURN_IF_ERROR(construction->GetAttr("feature_vocabulary_sizes", &sizes));
    TF_RETURN_IF_ERROR(construction->GetAttr("log2_shards", &log2_shards));
    TF_RETURN_IF_ERROR(construction->GetAttr("rotations", &rotations));
    TF_RETURN_IF_ERROR(construction->GetAttr("row_offsets", &row_offsets));
    TF_RETURN_IF_ERROR(construction->GetAttr("rows_per_shard", &rows_per_shard));
    for (const auto& [name, values] :
         {std::pair("feature_vocabulary_sizes", &sizes), std::pair("log2_shards", &log2_shards),
          std::pair("rotations", &rotations), std::pair("row_offsets", &row_offsets),
          std::pair("rows_per_shard", &rows_per_shard)}) {
      TF_RETURN_IF_ERROR(CheckCount(name, "feature", features.size(), values->size()));
      TF_RETURN_IF_ERROR(CheckAll(name, *values, 0, kMostRows));
    }
    TF_RETURN_IF_ERROR(CheckAll("log2_shards", log2_shards, 0, kMostShardBits));
    for (size_t i = 0; i < features.size(); ++i) {
      features[i].vocabulary_size = sizes[i];
      features[i].row_map = {static_cast<int>(log2_shards[i]), rotations[i], row_offsets[i],
                             rows_per_shard[i]};
    }
    return absl::OkStatus();
  }

  // Every id of the feature's vocabulary needs a row of the table.
  static absl::Status CheckRowMap(const FeaturePlan& feature, int64_t num_table_rows) {
    const RowMap& map = feature.row_map;
    TF_RETURN_IF_ERROR(
        CheckRange("feature_vocabulary_sizes", feature.vocabulary_size, 1, num_table_rows));
    TF_RETURN_IF_ERROR(CheckRange("rotations", map.rotation, 0, map.num_shards() - 1));
    TF_RETURN_IF_ERROR(
        CheckRange("rows_per_shard", map.rows_per_shard, 1, num_table_rows >> map.log2_shards));
    const int64_t last_row = (feature.vocabulary_size - 1) >> map.log2_shards;
    return CheckRange("row_offsets", map.row_offset, 0, map.rows_per_shard - 1 - last_row);
  }

  absl::Status CheckReplicas(int64_t num_features) const {
    const int64_t count = placements.size();
    TF_RETURN_IF_ERROR(CheckCount("has_weights", "placement", count, has_weights.size()));
    return CheckCount("placements", "feature of each replica",
                      count / num_features * num_features, count);
  }

  // Every feature of every replica has ids, and places and weights if the attributes say so.
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
    table->has_sequences |= features[feature].sequence_length > 0;
    for (size_t i = feature; i < placements.size(); i += num_features) {
      table->has_weights |= has_weights[i];
      // The scale of a single id without a weight is 1.
      table->has_scales |= features[feature].combiner != Combiner::kSum &&
                           (placements[i] != Placement::kOneIdEach || has_weights[i]);
    }
  }
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PREPARE_ATTRIBUTES_H_
