// SPDX-License-Identifier: Apache-2.0
// The ids of one feature, as an input_fn gave them: views, nothing is owned.
#ifndef TPU_ESTIMATOR_EMBEDDING_FEATURE_IDS_H_
#define TPU_ESTIMATOR_EMBEDDING_FEATURE_IDS_H_

#include <cstdint>
#include <string>

#include "combiner.h"
#include "row_map.h"

namespace tpu_estimator_embedding {

// int32 or int64 numbers.
struct Integers {
  const void* data = nullptr;
  int64_t size = 0;
  bool is_wide = false;

  int64_t operator[](int64_t i) const {
    return is_wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// Calls work(pointer) with a pointer of the right type, so that loops do not check it per number.
template <class Work>
auto Visit(const Integers& integers, const Work& work) {
  return integers.is_wide ? work(static_cast<const int64_t*>(integers.data))
                          : work(static_cast<const int32_t*>(integers.data));
}

// The encoding of the sample that an id belongs to.
enum class Placement { kOneIdEach, kRowSplits, kCoordinates };

// The ids of one feature in one replica.
struct FeatureIds {
  Placement placement = Placement::kOneIdEach;
  int64_t batch_size = 0;
  Integers ids;
  Integers places;                 // row splits, or coordinates row by row
  int64_t num_coordinates = 1;     // of each id; a sequence needs two: sample and position
  const float* weights = nullptr;  // null: 1 everywhere
  int64_t num_weights = 0;

  int64_t num_places() const { return places.size / num_coordinates; }
};

// The plan of a feature.
struct FeaturePlan {
  std::string name;
  int64_t vocabulary_size = 0;
  int64_t sequence_length = 0;  // 0: the ids of a sample are combined
  Combiner combiner = Combiner::kSum;
  int64_t samples_per_unit = 1;  // samples for each one of the batch size
  RowMap row_map = {};

  int64_t rows_per_sample() const { return sequence_length > 0 ? sequence_length : 1; }
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_FEATURE_IDS_H_
