// SPDX-License-Identifier: Apache-2.0
// Counts and decodes varints, several from each word of memory.
//
// A branch for each length of a varint would be mispredicted often: the lengths of ids are random.
#ifndef TPU_ESTIMATOR_EMBEDDING_PACKED_VARINTS_H_
#define TPU_ESTIMATOR_EMBEDDING_PACKED_VARINTS_H_

#include <cstdint>
#include <cstring>

#include "wire_reader.h"

namespace tpu_estimator_embedding {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are loaded as they are stored");

constexpr int kWordBytes = 8;

// Loads the first of up to 8 bytes, those beyond the end as 0.
inline uint64_t LoadBytes(const uint8_t* bytes, const uint8_t* end) {
  uint64_t word = 0;
  if (static_cast<size_t>(end - bytes) >= sizeof word) {
    std::memcpy(&word, bytes, sizeof word);
    return word;
  }
  for (int i = 0; bytes + i < end; ++i) word |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  return word;
}

// The highest bit of each byte that ends a varint.
inline uint64_t EndBits(uint64_t word) { return ~word & 0x8080808080808080u; }

// The bits up to the lowest one of `ends`, including it.
inline uint64_t UpToFirst(uint64_t ends) { return ends ^ (ends - 1); }

// The number of bytes up to the first end.
inline int BytesToFirst(uint64_t ends) { return (__builtin_ctzll(ends) + 1) / 8; }

inline int CountEnds(uint64_t ends) {
  return static_cast<int>(((ends >> 7) * 0x0101010101010101u) >> 56);
}

// Joins the low 7 bits of all bytes.
inline int64_t JoinGroups(uint64_t word) {
  word &= 0x7f7f7f7f7f7f7f7fu;
  word = (word & 0x007f007f007f007fu) | (word & 0x7f007f007f007f00u) >> 1;
  word = (word & 0x00003fff00003fffu) | (word & 0x3fff00003fff0000u) >> 2;
  return static_cast<int64_t>((word & 0x0fffffffu) | (word & 0x0fffffff00000000u) >> 4);
}

// Returns the number of varints in `size` bytes, -1 if one of them is too long or has no end. Bytes
// up to `end` may be read.
inline int64_t CountVarints(const uint8_t* bytes, int64_t size, const uint8_t* end) {
  int64_t count = 0;
  int run = 0;  // bytes since the last end
  for (; size > 0; size -= kWordBytes, bytes += kWordBytes) {
    const int step = size < kWordBytes ? static_cast<int>(size) : kWordBytes;
    uint64_t ends = EndBits(LoadBytes(bytes, end)) & (~uint64_t{0} >> (8 * (kWordBytes - step)));
    run += ends == 0 ? step : BytesToFirst(ends) - 1;
    if (run >= kMostVarintBytes) return -1;
    if (ends != 0) run = step - 1 - (63 - __builtin_clzll(ends)) / 8;
    count += CountEnds(ends);
  }
  return run == 0 ? count : -1;
}

// Decodes a varint of more than 8 bytes; returns the byte after it.
inline const uint8_t* DecodeLong(const uint8_t* bytes, int64_t* value) {
  uint64_t bits = 0;
  int shift = 0;
  do {
    bits |= static_cast<uint64_t>(*bytes & 0x7f) << shift;
    shift += 7;
  } while (*bytes++ >= 0x80);
  *value = static_cast<int64_t>(bits);
  return bytes;
}

// Decodes `count` varints that `CountVarints` has counted, two at a time. Bytes up to `end` may be
// read.
inline void DecodeVarints(const uint8_t* bytes, const uint8_t* end, int64_t count,
                          int64_t* values) {
  int64_t* const last = values + count;
  while (values < last) {
    const uint64_t word = LoadBytes(bytes, end);
    const uint64_t ends = EndBits(word), other_ends = ends & (ends - 1);
    if (ends == 0) {
      bytes = DecodeLong(bytes, values++);
      continue;
    }
    const uint64_t first = UpToFirst(ends);
    *values++ = JoinGroups(word & first);
    if (values == last || other_ends == 0) {
      bytes += BytesToFirst(ends);
      continue;
    }
    *values++ = JoinGroups((word & UpToFirst(other_ends) & ~first) >> (8 * BytesToFirst(ends)));
    bytes += BytesToFirst(other_ends);
  }
}

}  // namespace tpu_estimator_embedding

#endif  // TPU_ESTIMATOR_EMBEDDING_PACKED_VARINTS_H_
