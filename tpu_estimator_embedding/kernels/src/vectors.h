// SPDX-License-Identifier: Apache-2.0
// Vectors of floats, and functions on them that are not operators.
// Compiled separately for each instruction set: every unit that includes this has its own copy, in
// an unnamed namespace, so that the linker cannot mix code of different sets.
#ifndef TPU_ESTIMATOR_EMBEDDING_VECTORS_H_
#define TPU_ESTIMATOR_EMBEDDING_VECTORS_H_

#include <cmath>
#include <cstdint>

namespace tpu_estimator_embedding {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
typedef float UnalignedVector
    __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

inline void Load(const float* from, Vector* to) {
  *to = *reinterpret_cast<const UnalignedVector*>(from);
}
inline void Store(Vector from, float* to) { *reinterpret_cast<UnalignedVector*>(to) = from; }
inline void Load(const float* from, float* to) { *to = *from; }
inline void Store(float from, float* to) { *to = from; }

inline float Sqrt(float x) { return __builtin_sqrtf(x); }
inline Vector Sqrt(Vector x) {
  Vector root;
  for (int lane = 0; lane < kLanes; ++lane) root[lane] = __builtin_sqrtf(x[lane]);
  return root;
}

inline float Power(float x, float exponent) { return powf(x, exponent); }
inline Vector Power(Vector x, float exponent) {
  Vector power;
  for (int lane = 0; lane < kLanes; ++lane) power[lane] = powf(x[lane], exponent);
  return power;
}

// A NaN stays a NaN: it fails both comparisons.
template <class T>
inline T Clip(T x, T low, T high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

template <class T>
inline T Fill(float value) {
  return T{} + value;
}

template <class T>
inline T Abs(T x) {
  return x < T{} ? -x : x;
}

template <class T>
inline T Sign(T x) {
  const T one = Fill<T>(1.0f);
  return x > T{} ? one : (x < T{} ? -one : T{});
}

}  // namespace
}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_VECTORS_H_
