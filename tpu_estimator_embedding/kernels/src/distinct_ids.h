// SPDX-License-Identifier: Apache-2.0
// Finds ids among the distinct ids of a table.
#ifndef TPU_ESTIMATOR_EMBEDDING_DISTINCT_IDS_H_
#define TPU_ESTIMATOR_EMBEDDING_DISTINCT_IDS_H_

#include <algorithm>
#include <cstdint>

#include "scratch_pool.h"

namespace tpu_estimator_embedding {

// An open-addressing hash table from an id to its position.
template <class Id>
class DistinctIds {
 public:
  DistinctIds(const Id* ids, int64_t count, ScratchPool* scratch) {
    while ((int64_t{1} << log2_size_) < 2 * count) ++log2_size_;
    const int64_t size = int64_t{1} << log2_size_;
    buffer_ = scratch->Take(size * sizeof(Entry));
    entries_ = buffer_.template as<Entry>();
    std::fill_n(entries_, size, Entry{0, kNone});
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = Home(ids[i]);
      while (entries_[at].position != kNone) at = Next(at);
      entries_[at] = {ids[i], static_cast<int32_t>(i)};
    }
  }

  static constexpr int32_t kNone = -1;

  // Returns the position of an id, or `kNone`.
  int32_t Find(Id id) const {
    int64_t at = Home(id);
    while (entries_[at].position != kNone && entries_[at].id != id) at = Next(at);
    return entries_[at].position;
  }

 private:
  struct Entry {
    Id id;
    int32_t position;
  };

  // Fibonacci hashing.
  int64_t Home(Id id) const {
    return (static_cast<uint64_t>(id) * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - log2_size_);
  }
  int64_t Next(int64_t at) const { return (at + 1) & ((int64_t{1} << log2_size_) - 1); }

  int log2_size_ = 1;
  ScratchPool::Buffer buffer_;
  Entry* entries_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_DISTINCT_IDS_H_
