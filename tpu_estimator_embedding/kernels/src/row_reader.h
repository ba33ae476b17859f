// SPDX-License-Identifier: Apache-2.0
// Reads the ids of a feature row of activations by row of activations.
#ifndef TPU_ESTIMATOR_EMBEDDING_ROW_READER_H_
#define TPU_ESTIMATOR_EMBEDDING_ROW_READER_H_

#include <algorithm>

#include "feature_ids.h"

namespace tpu_estimator_embedding {

// The ids of a row are contiguous for every placement. A sequence has a row for each position
// below its length; ids at later positions are skipped.
class RowReader {
 public:
  RowReader(const FeaturePlan& plan, const FeatureIds& ids)
      : ids_(ids), length_(plan.sequence_length) {}

  // Sets the range of ids of the next row. Rows must be read in order, each once.
  void Next(int64_t* begin, int64_t* end) {
    switch (ids_.placement) {
      case Placement::kOneIdEach:
        *begin = row_;
        *end = row_ + 1;
        break;
      case Placement::kRowSplits:
        NextOfRowSplits(begin, end);
        break;
      case Placement::kCoordinates:
        NextOfCoordinates(begin, end);
        break;
    }
    ++row_;
  }

 private:
  void NextOfRowSplits(int64_t* begin, int64_t* end) {
    if (length_ == 0) {
      *begin = next_;
      *end = next_ = ids_.places[row_ + 1];
      return;
    }
    const int64_t sample = row_ / length_, position = row_ % length_;
    const int64_t last = ids_.places[sample + 1];
    *begin = std::min(ids_.places[sample] + position, last);
    *end = std::min(*begin + 1, last);
  }

  void NextOfCoordinates(int64_t* begin, int64_t* end) {
    const int64_t count = ids_.ids.size;
    if (length_ == 0) {
      *begin = next_;
      while (next_ < count && Sample(next_) == row_) ++next_;
      *end = next_;
      return;
    }
    const int64_t sample = row_ / length_, position = row_ % length_;
    while (next_ < count && Sample(next_) < sample) ++next_;  // beyond the length
    *begin = next_;
    while (next_ < count && Sample(next_) == sample && Position(next_) == position) ++next_;
    *end = next_;
  }

  int64_t Sample(int64_t i) const { return ids_.places[i * ids_.num_coordinates]; }
  int64_t Position(int64_t i) const { return ids_.places[i * ids_.num_coordinates + 1]; }

  const FeatureIds ids_;
  const int64_t length_;
  int64_t row_ = 0;
  int64_t next_ = 0;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_ROW_READER_H_
