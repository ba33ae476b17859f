// SPDX-License-Identifier: Apache-2.0
// Arranges the ids of a table that keeps every id in one part, as most tables do.
#ifndef TPU_ESTIMATOR_EMBEDDING_WHOLE_SHARES_H_
#define TPU_ESTIMATOR_EMBEDDING_WHOLE_SHARES_H_

#include <algorithm>

#include "lay_out_ids.h"

namespace tpu_estimator_embedding {

// Its loops have no conditions on single ids, so that they can be vectorized.
template <class Id>
class WholeShares {
 public:
  WholeShares(const TableIds<Id>& part, float* scales)
      : ids_(part.ids),
        row_ends_(part.row_ends),
        weights_(part.weights),
        scales_(scales) {}

  void Append(const Share& share) {
    const FeatureIds& ids = *share.ids;
    Visit(ids.ids, [&](const auto* from) { AppendIds(from, ids.ids.size, share.plan->row_map); });
    if (weights_ != nullptr) AppendWeights(ids);
    EndRows(ids);
    if (scales_ != nullptr) AppendScales(ids, share.plan->combiner);
    ids_ += ids.ids.size;
    count_ += static_cast<int32_t>(ids.ids.size);
    row_ends_ += ids.batch_size;
  }

 private:
  template <class Integer>
  void AppendIds(const Integer* from, int64_t count, const RowMap map) {
    Id* const to = ids_;
    if (map.is_identity()) {
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Id>(from[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Id>(map.Row(from[i]));
    }
  }

  void AppendWeights(const FeatureIds& ids) {
    if (ids.weights == nullptr) {
      std::fill_n(weights_, ids.ids.size, 1.0f);
    } else {
      std::copy_n(ids.weights, ids.ids.size, weights_);
    }
    weights_ += ids.ids.size;
  }

  void EndRows(const FeatureIds& ids) {
    switch (ids.placement) {
      case Placement::kOneIdEach:
        for (int32_t row = 0; row < ids.batch_size; ++row) row_ends_[row] = count_ + row + 1;
        return;
      case Placement::kRowSplits:
        return Visit(ids.places, [&](const auto* splits) {
          for (int64_t row = 0; row < ids.batch_size; ++row) {
            row_ends_[row] = count_ + static_cast<int32_t>(splits[row + 1]);
          }
        });
      case Placement::kCoordinates:
        return EndRowsOfCoordinates(ids);
    }
  }

  // The last id of a row sets its end; a row without ids ends where the previous one does.
  void EndRowsOfCoordinates(const FeatureIds& ids) {
    std::fill_n(row_ends_, ids.batch_size, count_);
    Visit(ids.places, [&](const auto* places) {
      for (int64_t i = 0; i < ids.ids.size; ++i) {
        row_ends_[places[i * ids.num_coordinates]] = count_ + static_cast<int32_t>(i + 1);
      }
    });
    for (int64_t row = 1; row < ids.batch_size; ++row) {
      row_ends_[row] = std::max(row_ends_[row], row_ends_[row - 1]);
    }
  }

  void AppendScales(const FeatureIds& ids, Combiner combiner) {
    int32_t begin = count_;
    for (int64_t row = 0; row < ids.batch_size; ++row) {
      const int32_t end = row_ends_[row];
      RowWeights weights = RowWeights::OfCount(end - begin);
      if (ids.weights != nullptr) {
        weights = {};
        for (int32_t i = begin; i < end; ++i) weights.Add(ids.weights[i - count_]);
      }
      *scales_++ = Scale(combiner, weights);
      begin = end;
    }
  }

  // The position of the next share.
  Id* ids_;
  int32_t* row_ends_;
  float *weights_, *scales_;
  int32_t count_ = 0;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_WHOLE_SHARES_H_
