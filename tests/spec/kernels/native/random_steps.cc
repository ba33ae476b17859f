// SPDX-License-Identifier: Apache-2.0
// Random steps under a sanitizer: every placement, partition, rule and instruction set. The
// result may depend neither on the number of threads nor on the width of ids nor on the way ids
// are laid out, whole features at once or id by id, and lookups are compared with plain loops.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "rule_records.h"
#include "whole_step.h"

namespace tpu_estimator_embedding {
namespace {

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t Below(int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(engine_); }

 private:
  std::mt19937 engine_;
};

// Ids of samples; where they are padded, a few of them are negative.
void FillIds(Random* random, bool is_padded, Feature* feature) {
  const int64_t first = is_padded ? -1 : 0;
  const bool is_sequence = feature->plan.sequence_length > 0;
  feature->places.clear();
  if (feature->placement == Placement::kRowSplits) feature->places.push_back(0);
  for (int64_t sample = 0; sample < feature->batch_size; ++sample) {
    const bool is_single = feature->placement == Placement::kOneIdEach;
    const int64_t count = is_single ? 1 : random->Below(6);
    for (int64_t position = 0; position < count; ++position) {
      feature->ids.push_back(first + random->Below(feature->plan.vocabulary_size - first));
      if (feature->placement != Placement::kCoordinates) continue;
      feature->places.push_back(sample);
      if (feature->num_coordinates > 1) feature->places.push_back(position + is_sequence);
    }
    if (feature->placement == Placement::kRowSplits) {
      feature->places.push_back(feature->ids.size());
    }
  }
}

// The feature has its own small table, whose rows are some of the table's.
void MapRows(Random* random, int64_t num_table_rows, FeaturePlan* plan) {
  RowMap& map = plan->row_map;
  map.log2_shards = static_cast<int>(random->Below(4));
  while (num_table_rows >> map.log2_shards == 0) --map.log2_shards;
  map.rotation = random->Below(map.num_shards());
  map.rows_per_shard = num_table_rows >> map.log2_shards;
  map.row_offset = random->Below(map.rows_per_shard);
  plan->vocabulary_size =
      1 + random->Below((map.rows_per_shard - map.row_offset) << map.log2_shards);
}

// Which row of the table an id is, in the plainest way.
int64_t PlainRow(const FeaturePlan& plan, int64_t id) {
  const RowMap& map = plan.row_map;
  const int64_t num_shards = static_cast<int64_t>(std::pow(2, map.log2_shards));
  const int64_t shard = (id + map.rotation) % num_shards;
  return shard * map.rows_per_shard + map.row_offset + id / num_shards;
}

Feature MakeFeature(Random* random, const TablePlan& plan, bool is_padded) {
  Feature feature;
  feature.plan.name = "feature";
  feature.plan.combiner = plan.combiner;
  feature.plan.vocabulary_size = plan.vocabulary_size;
  if (random->Below(2) == 0) MapRows(random, plan.vocabulary_size, &feature.plan);
  feature.placement = static_cast<Placement>(random->Below(3));
  feature.batch_size = random->Below(40);
  if (feature.placement == Placement::kCoordinates) feature.num_coordinates = 1 + random->Below(2);
  const bool may_be_sequence =
      feature.placement == Placement::kRowSplits || feature.num_coordinates == 2;
  if (may_be_sequence && random->Below(3) == 0) feature.plan.sequence_length = 1 + random->Below(4);
  FillIds(random, is_padded, &feature);
  // One table may have features with weights and features without.
  const bool is_weighted = random->Below(2) == 0;
  for (size_t i = 0; is_weighted && i < feature.ids.size(); ++i) {
    feature.weights.push_back(0.5f * static_cast<float>(random->Below(5)));
  }
  return feature;
}

TablePlan MakePlan(Random* random, int number) {
  constexpr int64_t kDims[] = {1, 2, 3, 4, 8, 15, 16, 17, 32, 33, 64, 100, 128, 257, 1030};
  TablePlan plan;
  plan.vocabulary_size = random->Below(4) == 0 ? 1 : 1 + random->Below(90);
  plan.dim = kDims[random->Below(std::size(kDims))];
  plan.num_hosts = static_cast<int>(1 + random->Below(4));
  plan.strategy = static_cast<Strategy>(random->Below(2));
  plan.combiner = static_cast<Combiner>(random->Below(3));
  plan.num_cores = random->Below(3) == 0 ? 3 : 1;
  plan.optimizer.rule = number % static_cast<int>(RuleRecords().size());
  for (float& value : plan.optimizer.hyperparameters) value = 0.5f;
  plan.optimizer.moves_untouched_rows = plan.optimizer.rule == FindRule("Adam") && number % 20 < 10;
  plan.optimizer.learning_rate = 0.1f;
  plan.optimizer.step = 3;
  plan.optimizer.decay = random->Below(2) == 0 ? 0.0f : 0.125f;
  plan.optimizer.gradient_min = plan.optimizer.weight_min = -1;
  plan.optimizer.gradient_max = plan.optimizer.weight_max = 1;
  return plan;
}

// The weights of sums over `ids` in the plainest way.
std::vector<double> PlainActivations(const TablePlan& plan, const std::vector<Feature>& features) {
  const Partition partition(plan.vocabulary_size, plan.num_hosts, plan.strategy);
  std::vector<double> activations;
  for (const Feature& feature : features) {
    const int64_t length = feature.plan.sequence_length;
    const int64_t first = activations.size();
    const int64_t rows = feature.batch_size * feature.plan.rows_per_sample();
    std::vector<double> sums(rows), squares(rows);
    activations.resize(first + rows * plan.dim);
    int64_t sample = 0, position = -1;
    for (int64_t i = 0; i < static_cast<int64_t>(feature.ids.size()); ++i) {
      const int64_t previous = sample;
      if (feature.placement == Placement::kOneIdEach) sample = i;
      if (feature.placement == Placement::kCoordinates) {
        sample = feature.places[i * feature.num_coordinates];
      }
      while (feature.placement == Placement::kRowSplits && feature.places[sample + 1] <= i) {
        ++sample;
      }
      position = sample == previous ? position + 1 : 0;
      if (feature.placement == Placement::kCoordinates && length > 0) {
        position = feature.places[i * feature.num_coordinates + 1];
      }
      if (feature.ids[i] < 0 || (length > 0 && position >= length)) continue;
      const int64_t row = length > 0 ? sample * length + position : sample;
      const double weight = feature.weights.empty() ? 1 : feature.weights[i];
      sums[row] += weight;
      squares[row] += weight * weight;
      const int64_t table_row = PlainRow(feature.plan, feature.ids[i]);
      const int part = partition.Part(table_row);
      const int64_t offset = partition.Row(table_row, part) * plan.dim;
      for (int64_t j = 0; j < plan.dim; ++j) {
        const double value = 0.01f * static_cast<float>((offset + j) % 101);
        activations[first + row * plan.dim + j] += weight * value;
      }
    }
    for (int64_t i = 0; plan.combiner != Combiner::kSum && i < rows * plan.dim; ++i) {
      const int64_t row = i / plan.dim;
      const double over = plan.combiner == Combiner::kMean ? sums[row] : std::sqrt(squares[row]);
      activations[first + i] = over == 0 ? 0 : activations[first + i] / over;
    }
  }
  return activations;
}

void Require(bool holds, const char* what, int number, const RowKernels& kernels) {
  if (holds) return;
  std::fprintf(stderr, "step %d, %s: %s\n", number, kernels.level, what);
  std::exit(1);
}

// Returns whether every id was kept.
bool CheckStep(int number, const RowKernels& kernels) {
  Random random(number);
  const TablePlan plan = MakePlan(&random, number);
  const bool is_padded = random.Below(2) == 0;
  std::vector<Feature> features;
  for (int64_t i = 1 + random.Below(3); i > 0; --i) {
    features.push_back(MakeFeature(&random, plan, is_padded));
  }
  TablePlan id_by_id = plan;
  id_by_id.asks_each_id = true;
  const StepResult alone = Step<int32_t>(plan, features, kernels, 1).Run();
  Require(alone.complaint.empty(), alone.complaint.c_str(), number, kernels);
  const StepResult together = Step<int32_t>(id_by_id, features, kernels, 4).Run();
  const StepResult wide = Step<int64_t>(plan, features, kernels, 3).Run();
  for (const StepResult* other : {&together, &wide}) {
    Require(other->activations == alone.activations, "other activations", number, kernels);
    Require(other->parts == alone.parts, "other tables", number, kernels);
  }
  const std::vector<double> expected = PlainActivations(plan, features);
  Require(expected.size() == alone.activations.size(), "other shapes", number, kernels);
  for (size_t i = 0; i < expected.size(); ++i) {
    Require(std::abs(alone.activations[i] - expected[i]) <= 1e-5 * (1 + std::abs(expected[i])),
            "wrong activations", number, kernels);
  }
  return alone.keeps_every_id;
}

void CheckSteps(int num_steps, const RowKernels& kernels) {
  int num_whole = 0;
  for (int number = 0; number < num_steps; ++number) num_whole += CheckStep(number, kernels);
  Require(num_whole > num_steps / 20 && num_whole < num_steps / 2,
          "too few of either way to lay ids out", num_whole, kernels);
  std::printf("%s: %d steps\n", kernels.level, num_steps);
}

// What a fuzzer found: ids without positions were read as a sequence, beyond their end.
void CheckRefusals() {
  Feature feature;
  feature.plan = {"feature", 10, 2};
  feature.placement = Placement::kOneIdEach;
  feature.batch_size = 3;
  feature.ids = {1, 2, 3};
  TablePlan plan;
  plan.vocabulary_size = 10;
  const StepResult refused = Step<int32_t>(plan, {feature}, kBaselineKernels, 1).Run();
  Require(refused.complaint.find("without positions") != std::string::npos, "not refused", 0,
          kBaselineKernels);
}

// Rows that take 62 bits to number leave no room for places in entries of 64.
void CheckLargestEntries() {
  constexpr int64_t kRows = int64_t{1} << 62, kIds = 300, kDistinct = 7;
  std::vector<int64_t> ids(kIds), unjoined_ids(kIds);
  std::vector<int32_t> row_ends(kIds), unjoined_ends(kIds), run_rows(kIds);
  for (int64_t i = 0; i < kIds; ++i) {
    ids[i] = kRows - 1 - i % kDistinct * (kRows / kDistinct);
    row_ends[i] = static_cast<int32_t>(i + 1);
  }
  TableIds<int64_t> table;
  table.num_table_rows = kRows;
  table.num_ids = table.num_rows = kIds;
  table.ids = ids.data();
  table.row_ends = row_ends.data();
  table.run_ids = unjoined_ids.data();
  table.run_ends = unjoined_ends.data();
  table.run_rows = run_rows.data();
  ScratchPool scratch;
  RunSorter<int64_t> sorter(table, Cores(), 3, &scratch);
  for (int64_t i = 0; i < sorter.num_shares(); ++i) sorter.Count(i);
  sorter.ComputeRanges();
  for (int64_t i = 0; i < sorter.num_shares(); ++i) sorter.Scatter(i);
  for (int64_t i = 0; i < sorter.num_shares(); ++i) sorter.Sort(i);
  Require(sorter.num_shares() == 3 && sorter.num_runs() == kDistinct, "wrong runs", 0,
          kBaselineKernels);
  std::vector<int64_t> run_ids(kDistinct);
  std::vector<int32_t> run_ends(kDistinct);
  for (int64_t i = 0; i < sorter.num_shares(); ++i) {
    sorter.CopyRuns(i, run_ids.data(), run_ends.data());
  }
  for (int64_t run = 0, i = 0; run < kDistinct; ++run) {
    Require(run == 0 || run_ids[run - 1] < run_ids[run], "unsorted", 0, kBaselineKernels);
    for (int32_t last = -1; i < run_ends[run]; last = run_rows[i++]) {
      Require(run_rows[i] > last && ids[run_rows[i]] == run_ids[run], "wrong rows", 0,
              kBaselineKernels);
    }
  }
}

}  // namespace
}  // namespace tpu_estimator_embedding

int main(int argc, char** argv) {
  tpu_estimator_embedding::CheckRefusals();
  tpu_estimator_embedding::CheckLargestEntries();
  const int num_steps = argc > 1 ? std::atoi(argv[1]) : 200;
  for (const auto* kernels : tpu_estimator_embedding::AvailableRowKernels()) {
    tpu_estimator_embedding::CheckSteps(num_steps, *kernels);
  }
  return 0;
}
