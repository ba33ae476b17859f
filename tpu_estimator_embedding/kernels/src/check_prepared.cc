// SPDX-License-Identifier: Apache-2.0
#include "check_prepared.h"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace tpu_estimator_embedding {
namespace {

// Branchless loops that collect sign bits: they take a fraction of the time of the work that they
// protect.
template <class T>
class SignBits {
 public:
  using Bits = std::make_unsigned_t<T>;

  void Collect(Bits bits) { bits_ |= bits; }
  bool any() const { return (bits_ >> std::numeric_limits<T>::digits) != 0; }

 private:
  Bits bits_ = 0;
};

// Whether all values are in [0, end).
template <class T>
bool AreBelow(const T* values, int64_t size, int64_t end) {
  using Bits = typename SignBits<T>::Bits;
  const int64_t largest = std::numeric_limits<T>::max();
  const Bits last = static_cast<Bits>(std::min(end - 1, largest));
  SignBits<T> bad;
  for (int64_t i = 0; i < size; ++i) {
    const Bits value = static_cast<Bits>(values[i]);
    bad.Collect(value | (last - value));  // cannot overflow if the value is not negative
  }
  return size == 0 || (end > 0 && !bad.any());
}

// Whether the values from `begin` to `end` do not decrease, from the previous value on.
template <class T>
bool AreOrdered(const T* values, int64_t begin, int64_t end) {
  using Bits = typename SignBits<T>::Bits;
  SignBits<T> bad;
  if (begin < end) bad.Collect(static_cast<Bits>(values[begin]));
  for (int64_t i = std::max<int64_t>(begin, 1); i < end; ++i) {
    const Bits value = static_cast<Bits>(values[i]), before = static_cast<Bits>(values[i - 1]);
    bad.Collect(before | value | (value - before));
  }
  return !bad.any();
}

// Sets the range of ids of some rows, or runs; returns whether it exists.
bool FindIds(const int32_t* ends, int64_t begin, int64_t end, int64_t num_ids, int64_t* first,
             int64_t* last) {
  *first = begin == 0 ? 0 : ends[begin - 1];
  *last = ends[end - 1];
  return AreOrdered(ends, begin, end) && *first >= 0 && *last <= num_ids;
}

}  // namespace

template <class Id>
bool IsWithin(const LookupIds<Id>& ids, int64_t begin_row, int64_t end_row) {
  int64_t first, last;
  return FindIds(ids.row_ends, begin_row, end_row, ids.num_ids, &first, &last) &&
         AreBelow(ids.ids + first, last - first, ids.num_table_rows);
}

template <class Id>
bool IsWithin(const UpdateIds<Id>& ids, int64_t begin_run, int64_t end_run) {
  int64_t first, last;
  return FindIds(ids.run_ends, begin_run, end_run, ids.num_ids, &first, &last) &&
         AreOrdered(ids.run_ids, begin_run, end_run) &&
         ids.run_ids[end_run - 1] < ids.num_table_rows &&
         AreBelow(ids.run_rows + first, last - first, ids.num_rows);
}

template bool IsWithin(const LookupIds<int32_t>&, int64_t, int64_t);
template bool IsWithin(const LookupIds<int64_t>&, int64_t, int64_t);
template bool IsWithin(const UpdateIds<int32_t>&, int64_t, int64_t);
template bool IsWithin(const UpdateIds<int64_t>&, int64_t, int64_t);

}  // namespace tpu_estimator_embedding
