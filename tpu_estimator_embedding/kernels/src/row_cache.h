// SPDX-License-Identifier: Apache-2.0
// Rows of a table, one after another in memory, and where each of them is.
#ifndef TPU_ESTIMATOR_EMBEDDING_ROW_CACHE_H_
#define TPU_ESTIMATOR_EMBEDDING_ROW_CACHE_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace tpu_estimator_embedding {

// An open-addressing hash table from the number of a row to its place. The system gives memory when
// it is first written, so that a cache with room for many rows needs that of the rows in it.
class RowCache {
 public:
  static constexpr int64_t kNone = -1;

  // The bytes of a cache for each row that it has room for, at most.
  static constexpr int64_t BytesOfRow(int64_t dim) {
    return dim * sizeof(float) + 4 * sizeof(Entry);
  }

  // Has room for a positive number of rows; throws std::bad_alloc if there is no memory.
  RowCache(int64_t dim, int64_t capacity) : dim_(dim), capacity_(capacity) {
    while ((int64_t{1} << log2_size_) < 2 * capacity) ++log2_size_;
    entries_.reset(static_cast<Entry*>(std::calloc(int64_t{1} << log2_size_, sizeof(Entry))));
    rows_.reset(static_cast<float*>(std::malloc(capacity * dim * sizeof(float))));
    if (entries_ == nullptr || rows_ == nullptr) throw std::bad_alloc();
  }

  int64_t size() const { return size_; }
  bool is_full() const { return size_ == capacity_; }

  // Returns the place of a row, or `kNone`.
  int64_t Find(int64_t row) const {
    int64_t at = Home(row);
    while (entries_[at].next_place != 0 && entries_[at].row != row) at = Next(at);
    return entries_[at].next_place - 1;
  }
  // Returns the place for a row that is not in the cache, which must not be full.
  int64_t Add(int64_t row) {
    int64_t at = Home(row);
    while (entries_[at].next_place != 0) at = Next(at);
    entries_[at] = {row, ++size_};
    return size_ - 1;
  }
  void Prefetch(int64_t row) const { __builtin_prefetch(&entries_[Home(row)]); }

  float* Place(int64_t place) { return rows_.get() + place * dim_; }

 private:
  struct Entry {
    int64_t row;
    int64_t next_place;  // 0 if there is no row here
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  // Fibonacci hashing.
  int64_t Home(int64_t row) const {
    return (static_cast<uint64_t>(row) * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - log2_size_);
  }
  int64_t Next(int64_t at) const { return (at + 1) & ((int64_t{1} << log2_size_) - 1); }

  const int64_t dim_, capacity_;
  int log2_size_ = 1;
  int64_t size_ = 0;
  std::unique_ptr<Entry[], Free> entries_;
  std::unique_ptr<float[], Free> rows_;
};

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_ROW_CACHE_H_
