// SPDX-License-Identifier: Apache-2.0
// Splits rows into blocks of columns whose sums fit into registers.
#ifndef TPU_ESTIMATOR_EMBEDDING_BLOCKS_H_
#define TPU_ESTIMATOR_EMBEDDING_BLOCKS_H_

#include "vectors.h"

namespace tpu_estimator_embedding {
namespace {

constexpr int64_t kFloatsPerLine = 16;   // per cache line
constexpr int64_t kMaxPrefetched = 512;  // beyond it the hardware prefetches

// Forced inline: GCC treats a function that only prefetches as one without effect, and drops
// calls of it. Also, the compiler must see that a task is a local copy, which no store can change.
#define TPU_EMBEDDING_INLINE inline __attribute__((always_inline))

// Prefetches a row, or the beginning of a long one, into the L2 cache. L1 has few line fill
// buffers; the loads of a step would queue up behind the prefetches, and updates would take twice
// as long.
TPU_EMBEDDING_INLINE void Prefetch(const float* row, int64_t dim) {
  constexpr int kToRead = 0, kSecondLevel = 2;
  const int64_t end = dim < kMaxPrefetched ? dim : kMaxPrefetched;
#pragma GCC unroll 8
  for (int64_t i = 0; i < end; i += kFloatsPerLine) {
    __builtin_prefetch(row + i, kToRead, kSecondLevel);
  }
}

template <class T>
constexpr int Lanes() {
  return sizeof(T) / sizeof(float);
}

template <class T, int kCount, bool kIsScaled>
inline void AddScaled(const float* from, float factor, T* sums) {
#pragma GCC unroll 16
  for (int k = 0; k < kCount; ++k) {
    T value;
    Load(from + k * Lanes<T>(), &value);
    sums[k] = sums[k] + (kIsScaled ? value * factor : value);
  }
}

template <class T, int kCount>
inline void StoreScaled(const T* sums, float factor, float* to) {
#pragma GCC unroll 16
  for (int k = 0; k < kCount; ++k) Store(sums[k] * factor, to + k * Lanes<T>());
}

// Calls work.Do<T, kCount>(column) for blocks of kCount Ts that cover columns 0 to dim: first
// blocks of 64 or 32 columns in vectors, then single vectors, then single columns.
template <class Work>
TPU_EMBEDDING_INLINE void ForEachBlock(int64_t dim, const Work& work) {
  int64_t column = 0;
  for (; dim - column >= 64; column += 64) work.template Do<Vector, 64 / kLanes>(column);
  for (; dim - column >= 32; column += 32) work.template Do<Vector, 32 / kLanes>(column);
  for (; dim - column >= 16; column += 16) work.template Do<Vector, 16 / kLanes>(column);
  if (kLanes < 16) {
    for (; dim - column >= kLanes; column += kLanes) work.template Do<Vector, 1>(column);
  }
  for (; column < dim; ++column) work.template Do<float, 1>(column);
}

// Calls work(dim). It is compiled for each of the usual dimensions, with which loops over columns
// unroll: they take about a fifth less time than others.
template <class Work>
TPU_EMBEDDING_INLINE void WithDim(int64_t dim, const Work& work) {
  switch (dim) {
    case 16: return work(16);
    case 32: return work(32);
    case 64: return work(64);
    case 128: return work(128);
    default: return work(dim);
  }
}

// Before the body of a lambda that is the work above: the compiler must see its constant.
#define TPU_EMBEDDING_INLINE_LAMBDA __attribute__((always_inline))

}  // namespace
}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_BLOCKS_H_
