// SPDX-License-Identifier: Apache-2.0
#include "check_ids.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <type_traits>

namespace tpu_estimator_embedding {
namespace {

std::string Complaint(const std::string& what, const FeaturePlan& plan, const std::string& rest) {
  return what + " of feature '" + plan.name + "' must be " + rest;
}

// Whether any id is negative, and whether any may be beyond the vocabulary. It uses sign bits
// only, because SSE2 cannot compare 64-bit integers.
struct Suspicion {
  bool is_negative, is_beyond;
};

template <class Integer>
Suspicion Suspect(const Integer* ids, int64_t size, int64_t vocabulary_size) {
  using Bits = std::make_unsigned_t<Integer>;
  const int64_t largest = std::numeric_limits<Integer>::max();
  const Bits last = static_cast<Bits>(std::min(vocabulary_size - 1, largest));
  Bits below = 0, beyond = 0;
  for (int64_t i = 0; i < size; ++i) {
    const Bits id = static_cast<Bits>(ids[i]);
    below |= id;
    beyond |= last - id;  // overflows for some negative ids: a false alarm
  }
  constexpr int kSign = std::numeric_limits<Bits>::digits - 1;
  return {(below >> kSign) != 0, (beyond >> kSign) != 0};
}

std::string CheckVocabulary(const FeaturePlan& plan, const Integers& ids, bool* has_negative) {
  const Suspicion suspicion =
      Visit(ids, [&](const auto* data) { return Suspect(data, ids.size, plan.vocabulary_size); });
  *has_negative = suspicion.is_negative;
  int64_t position = suspicion.is_beyond ? 0 : ids.size;
  while (position < ids.size && ids[position] < plan.vocabulary_size) ++position;
  if (position == ids.size) return "";
  return Complaint("Ids", plan,
                   "in [0, " + std::to_string(plan.vocabulary_size) +
                       "), its vocabulary_size, got " + std::to_string(ids[position]) +
                       ". Raise vocabulary_size, or map the ids into the vocabulary in input_fn. "
                       "It stands at position " +
                       std::to_string(position) + ".");
}

std::string CheckAligned(const FeaturePlan& plan, const std::string& what, int64_t count,
                         int64_t num_ids) {
  if (count == num_ids) return "";
  return Complaint(what, plan,
                   "as many as its ids, " + std::to_string(num_ids) + ", got " +
                       std::to_string(count) + ". Make both from tensors with the same indices.");
}

std::string CheckSampleCount(const FeaturePlan& plan, int64_t count, int64_t batch_size) {
  if (count == batch_size) return "";
  return Complaint("Samples", plan,
                   std::to_string(batch_size) + ", the batch size, got " + std::to_string(count) +
                       ". Give every feature the same batch size.");
}

std::string CheckRowSplits(const FeaturePlan& plan, const FeatureIds& ids) {
  const Integers& splits = ids.places;
  for (int64_t i = 1; i < splits.size; ++i) {
    if (splits[i] < splits[i - 1]) {
      return Complaint("Row splits", plan, "in increasing order, got some that decrease.");
    }
  }
  std::string complaint = CheckSampleCount(plan, splits.size - 1, ids.batch_size);
  if (!complaint.empty()) return complaint;
  if (splits[0] != 0) {
    return Complaint("Row splits", plan, "0 at first, got " + std::to_string(splits[0]) + ".");
  }
  return CheckAligned(plan, "Row splits", splits[splits.size - 1], ids.ids.size);
}

// Whether the coordinates of id `a` are below those of id `b`.
bool IsBefore(const FeaturePlan& plan, const FeatureIds& ids, int64_t a, int64_t b) {
  a *= ids.num_coordinates;
  b *= ids.num_coordinates;
  if (ids.places[a] != ids.places[b]) return ids.places[a] < ids.places[b];
  return plan.sequence_length > 0 && ids.places[a + 1] < ids.places[b + 1];
}

bool IsSorted(const FeaturePlan& plan, const FeatureIds& ids) {
  for (int64_t i = 1; i < ids.num_places(); ++i) {
    if (IsBefore(plan, ids, i, i - 1)) return false;
  }
  return true;
}

std::string CheckPositions(const FeaturePlan& plan, const FeatureIds& ids) {
  if (plan.sequence_length == 0) return "";
  if (ids.num_coordinates < 2) {
    return "Ids of sequence feature '" + plan.name +
           "' must be ragged, or sparse with sample indices [n, 2], got sample indices without "
           "positions.";
  }
  for (int64_t i = 1; i < ids.places.size; i += ids.num_coordinates) {
    if (ids.places[i] < 0) {
      return Complaint("Positions", plan, "at least 0, got " + std::to_string(ids.places[i]) + ".");
    }
  }
  return "";
}

std::string CheckCoordinates(const FeaturePlan& plan, const FeatureIds& ids, bool* is_unsorted) {
  const int64_t count = ids.num_places();
  std::string complaint = CheckPositions(plan, ids);
  if (complaint.empty()) complaint = CheckAligned(plan, "Sample indices", count, ids.ids.size);
  if (!complaint.empty()) return complaint;
  *is_unsorted = !IsSorted(plan, ids);
  if (count > 0 && !*is_unsorted) {
    const int64_t first = ids.places[0], last = ids.places[(count - 1) * ids.num_coordinates];
    if (first < 0 || last >= ids.batch_size) {
      return Complaint("Sample indices", plan,
                       "in [0, " + std::to_string(ids.batch_size) + "), the batch size, got [" +
                           std::to_string(first) + " " + std::to_string(last) +
                           "]. Give every feature the same batch size.");
    }
  }
  return "";
}

std::string CheckOneIdEach(const FeaturePlan& plan, const FeatureIds& ids) {
  const std::string complaint = CheckPositions(plan, ids);
  return complaint.empty() ? CheckSampleCount(plan, ids.ids.size, ids.batch_size) : complaint;
}

std::string CheckPlaces(const FeaturePlan& plan, const FeatureIds& ids, bool* is_unsorted) {
  switch (ids.placement) {
    case Placement::kOneIdEach:
      return CheckOneIdEach(plan, ids);
    case Placement::kRowSplits:
      return CheckRowSplits(plan, ids);
    case Placement::kCoordinates:
      return CheckCoordinates(plan, ids, is_unsorted);
  }
  return "";
}

}  // namespace

CheckedFeature CheckFeature(const FeaturePlan& plan, const FeatureIds& ids) {
  CheckedFeature checked;
  checked.complaint = CheckVocabulary(plan, ids.ids, &checked.has_negative_ids);
  if (checked.complaint.empty() && ids.weights != nullptr) {
    checked.complaint = CheckAligned(plan, "Weights", ids.num_weights, ids.ids.size);
  }
  if (checked.complaint.empty()) {
    checked.complaint = CheckPlaces(plan, ids, &checked.is_unsorted);
  }
  return checked;
}

SortedIds SortIds(const FeaturePlan& plan, FeatureIds* ids) {
  std::vector<int64_t> order(ids->num_places());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return IsBefore(plan, *ids, a, b); });
  SortedIds sorted;
  for (int64_t i : order) {
    sorted.ids.push_back(ids->ids[i]);
    for (int64_t k = 0; k < ids->num_coordinates; ++k) {
      sorted.places.push_back(ids->places[i * ids->num_coordinates + k]);
    }
    if (ids->weights != nullptr) sorted.weights.push_back(ids->weights[i]);
  }
  ids->ids = {sorted.ids.data(), ids->ids.size, true};
  ids->places = {sorted.places.data(), ids->places.size, true};
  if (ids->weights != nullptr) ids->weights = sorted.weights.data();
  return sorted;
}

}  // namespace tpu_estimator_embedding
