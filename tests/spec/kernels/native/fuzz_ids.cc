// SPDX-License-Identifier: Apache-2.0
// Fuzzes ids, row splits, coordinates and weights. Whatever they hold, a step either refuses them
// or reads and writes within its arrays. Half of the features keep their ids within the vocabulary,
// so that both ways to lay ids out are reached: tables that keep every id are laid out in either,
// and both must look the same up.
#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "whole_step.h"

namespace tpu_estimator_embedding {
namespace {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  uint8_t Byte() { return size_ == 0 ? 0 : (--size_, *data_++); }
  int64_t Below(int64_t end) { return Byte() % end; }

  // Mostly small, some of them at the ends of their range.
  int64_t Number() {
    const uint8_t byte = Byte();
    if (byte < 240) return static_cast<int64_t>(byte % 48) - 4;
    int64_t number = 0;
    for (int i = 0; i < 8; ++i)
      number = static_cast<int64_t>((static_cast<uint64_t>(number) << 8) | Byte());
    return number;
  }

  std::vector<int64_t> Numbers() {
    std::vector<int64_t> numbers(Below(24));
    for (int64_t& number : numbers) number = Number();
    if (Below(2) == 0) std::sort(numbers.begin(), numbers.end());
    return numbers;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Every id has a row of the table, whose vocabulary may be larger.
void MapRows(Bytes* bytes, int64_t num_table_rows, FeaturePlan* plan) {
  RowMap& map = plan->row_map;
  map.log2_shards = static_cast<int>(bytes->Below(3));
  while (num_table_rows >> map.log2_shards == 0) --map.log2_shards;
  map.rotation = bytes->Below(map.num_shards());
  map.rows_per_shard = num_table_rows >> map.log2_shards;
  map.row_offset = bytes->Below(map.rows_per_shard);
  const int64_t most = (map.rows_per_shard - map.row_offset) << map.log2_shards;
  plan->vocabulary_size = most - bytes->Below(std::min(most, int64_t{9}));
}

Feature MakeFeature(Bytes* bytes, const TablePlan& table) {
  Feature feature;
  feature.plan.name = "feature";
  feature.plan.combiner = table.combiner;
  feature.plan.vocabulary_size = table.vocabulary_size;
  if (bytes->Below(2) == 0) MapRows(bytes, table.vocabulary_size, &feature.plan);
  feature.plan.sequence_length = bytes->Below(3);
  feature.placement = static_cast<Placement>(bytes->Below(3));
  feature.batch_size = bytes->Below(20);
  feature.ids = bytes->Numbers();
  const bool is_within = bytes->Below(2) == 0;
  feature.places = bytes->Numbers();
  if (feature.placement == Placement::kCoordinates) {
    feature.num_coordinates = 1 + bytes->Below(2);
    feature.places.resize(feature.places.size() / feature.num_coordinates *
                          feature.num_coordinates);
  } else if (feature.placement == Placement::kRowSplits && bytes->Below(4) != 0) {
    // Nearly right, so that more than the checks is reached.
    feature.places.insert(feature.places.begin(), 0);
    feature.batch_size = feature.places.size() - 1;
    feature.ids.resize(std::clamp<int64_t>(feature.places.back(), 0, 64));
  }
  for (int64_t& id : feature.ids) {
    if (is_within) id = static_cast<int64_t>(static_cast<uint64_t>(id) % feature.plan.vocabulary_size);
  }
  if (bytes->Below(3) == 0) feature.weights.assign(bytes->Below(24), 0.5f);
  if (bytes->Below(3) == 0) feature.weights.assign(feature.ids.size(), 0.5f);
  return feature;
}

}  // namespace
}  // namespace tpu_estimator_embedding

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tpu_estimator_embedding;
  Bytes bytes(data, size);
  TablePlan plan;
  plan.vocabulary_size = 1 + bytes.Below(44);
  plan.dim = 1 + bytes.Below(20);
  plan.num_hosts = static_cast<int>(1 + bytes.Below(4));
  plan.strategy = static_cast<Strategy>(bytes.Below(2));
  plan.combiner = static_cast<Combiner>(bytes.Below(3));
  plan.num_cores = static_cast<int>(1 + bytes.Below(3));
  std::vector<Feature> features;
  for (int64_t i = 1 + bytes.Below(2); i > 0; --i) {
    features.push_back(MakeFeature(&bytes, plan));
  }
  const StepResult result = Step<int32_t>(plan, features, kBaselineKernels, 1).Run();
  plan.asks_each_id = true;
  const StepResult other = Step<int32_t>(plan, features, kBaselineKernels, 1).Run();
  if (result.activations != other.activations || result.parts != other.parts) std::abort();
  return 0;
}
